"""How a command ends: the exit code, the one line that a mistake gets, and what an experiment leaves on the screen."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedax.experiments import Outcome, Swept

_LONG = re.compile(r"\S{200,}")  # a word too long to be worth showing whole
BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130


class Ended(Exception):
    """A command that has printed everything ends with this exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def fail(message: str, code: int) -> int:
    """Say what is wrong, in one line, and return the exit code."""
    shown = _LONG.sub(lambda word: f"{word[0][:60]}...", " ".join(message.split()))
    print(
        "error:", "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in shown), file=sys.stderr
    )
    return code


def goes_on(folder: Path) -> str:
    """The sentence that says how to go on with what was stopped.

    >>> goes_on(Path("runs/first"))
    '`fedax resume runs/first` goes on'
    """
    from fedax.runtime import process_count

    count = process_count()
    return f"`fedax resume {shlex.quote(str(folder))}`{f' in {count} processes' if count > 1 else ''} goes on"


def conclude(outcome: Outcome) -> None:
    """Show its tables, and end as its runs ended."""
    from fedax.cli.console import console
    from fedax.cli.results import show_protocol, show_table
    from fedax.runs.files import REPORT

    inside = [run.folder for run in outcome.runs]
    if outcome.worked:
        show_table(console(), inside)
        show_protocol(console(), inside)
    if (outcome.folder / REPORT).is_file():
        console().print(f"Report: {outcome.folder / REPORT}", markup=False, highlight=False, soft_wrap=True)
    further = goes_on(outcome.folder)
    code = 0
    for run in outcome.runs:
        if run.status != "finished":
            code = max(code, INTERRUPTED if run.status == "interrupted" else FAILED)
            hint = "" if run.status == "diverged" else f"; {further}"
            fail(f"{run.message} ({run.label}, seed {run.seed}){hint}", code)
    if outcome.left and code != INTERRUPTED:
        code = fail(f"interrupted before {outcome.left} of the runs; {further}", INTERRUPTED)
    if code:
        raise Ended(code)


def conclude_sweep(swept: Swept) -> None:
    """Show the best settings, and end as it ended."""
    from fedax.cli.console import console
    from fedax.cli.results import show_best
    from fedax.runs.files import REPORT

    inside = [path for best in swept.methods for path in best.folders]
    if inside:
        show_best(console(), swept)
        console().print(f"Report: {swept.folder / REPORT}", markup=False, highlight=False, soft_wrap=True)
    code = 0
    for best in swept.methods:
        if best.setting is None:
            code = fail(f"every setting of {best.label} diverged: smaller values usually help", FAILED)
    if swept.interrupted:
        code = fail(f"interrupted: what had finished is in {swept.folder}; {goes_on(swept.folder)}", INTERRUPTED)
    if code:
        raise Ended(code)
