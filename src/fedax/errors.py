"""Errors that a user can act on: one sentence that names the field, the value and what is allowed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any


class FedaxError(ValueError):
    """Base class of every error that Fedax raises on purpose; its message is one line, whatever values it shows.

    >>> str(FedaxError("x is [1\\n 2]: it must be a number"))
    'x is [1 2]: it must be a number'
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(re.sub(r"\s*\n\s*", " ", str(message)))


class DivergedError(FedaxError):
    """Training met NaN or infinity; `round` is the first bad round, `result` the result of the rounds before it."""

    def __init__(self, message: str, *, round: int, result: Any = None) -> None:
        super().__init__(message)
        self.round = round
        self.result = result


class LostProcessError(FedaxError):
    """Another process of the run is gone."""


def nearest(name: str, allowed: Iterable[str]) -> str | None:
    """The allowed name closest to a mistyped one, or None.

    >>> nearest("fedavgg", ["FedAvg", "SCAFFOLD"])
    'FedAvg'
    """
    by_lower = {a.lower(): a for a in allowed}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[found[0]] if found else None


def unknown(kind: str, name: object, allowed: Iterable[str]) -> FedaxError:
    """The error for a name that is not in a list.

    >>> str(unknown("algorithm", "FedAvgg", ["FedAvg", "SCAFFOLD"]))
    "unknown algorithm 'FedAvgg': did you mean 'FedAvg'? Allowed: FedAvg, SCAFFOLD"
    """
    names = list(allowed)
    guess = nearest(str(name), names)
    hint = f"did you mean {guess!r}? " if guess else ""
    return FedaxError(f"unknown {kind} {name!r}: {hint}Allowed: {', '.join(names)}")
