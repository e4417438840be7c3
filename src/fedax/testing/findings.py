"""What the suite found: a list of checks that reads like a table."""

from __future__ import annotations

import dataclasses
import textwrap
from itertools import zip_longest
from typing import Literal

from rich.table import Table

Status = Literal["passed", "failed", "skipped"]
WIDTH, NAME = 110, 44  # of the plain table and its column of names
_COLOURS = {"passed": "green", "failed": "bold red", "skipped": "dim"}


class Broken(AssertionError):
    """A property that does not hold; the message shows the numbers."""


class Skipped(Exception):
    """A check that has nothing to say about a method; the message says why."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One property of one method: its name, how it went, and the numbers."""

    name: str
    status: Status
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class Report:
    """All checks of one method.

    >>> report = Report("Mine(lr=0.1)", [Check("purity", "passed"), Check("sizes", "failed", "up = 2, sends d")])
    >>> report.passed
    False
    >>> print(report)
    Mine(lr=0.1): 1 passed, 1 failed
    passed   purity
    failed   sizes   up = 2, sends d
    """

    method: str
    checks: list[Check]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not self.failed

    @property
    def failed(self) -> list[Check]:
        """The checks that failed."""
        return [check for check in self.checks if check.status == "failed"]

    @property
    def title(self) -> str:
        """The method, and how many checks went which way."""
        found = [check.status for check in self.checks]
        counts = ", ".join(f"{found.count(s)} {s}" for s in ("passed", "failed", "skipped") if s in found)
        return f"{self.method}: {counts or 'nothing was checked'}"

    def table(self) -> Table:
        """The report for a terminal."""
        table = Table(title=self.title, title_justify="left")
        for heading in ("check", "status", "detail"):
            table.add_column(heading, overflow="fold")
        for check in self.checks:
            table.add_row(check.name, f"[{_COLOURS[check.status]}]{check.status}", _plain(check.detail))
        return table

    def __str__(self) -> str:
        wide = min(NAME, max((len(check.name) for check in self.checks), default=0))
        lines = [self.title]
        for check in self.checks:
            columns = zip_longest(
                [check.status],
                textwrap.wrap(check.name, wide),
                textwrap.wrap(check.detail, WIDTH - wide - 11),
                fillvalue="",
            )
            lines += [f"{status:<9}{name:<{wide}}  {detail}".rstrip() for status, name, detail in columns]
        return "\n".join(lines)

    def raise_if_failed(self) -> None:
        """Raise an AssertionError with the table if any check failed."""
        if self.failed:
            raise AssertionError(str(Report(self.method, self.failed)))


def _plain(text: str) -> str:
    return text.replace("[", r"\[")
