"""A metric: a record of each row, a statistic of records that can be merged, and the value of a statistic."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedax.errors import FedaxError

Floats = NDArray[np.float64]
Fits = Literal["any", "classes", "numbers"]


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric by name.

    rows: a function of (outputs, y), or on a problem without a model of (params, batch), that gives a number or a
        short record for each row: an array [rows] or [rows, numbers].
    higher: whether more is better.
    percent: whether it is shown in per cent.
    title: its name in words; default the name with spaces.
    statistic: from the records of some rows, [rows, numbers], to an array that can be merged; None for the mean of
        `rows` over rows, which needs no statistic.
    finish: from a statistic to the value, NaN where it has no meaning.
    merge: of two statistics; default their sum.
    fits: "classes", "numbers" or "any": what the loss compares.
    classes: the fewest and the most classes it has a meaning for; None for no limit.

    >>> close = Metric("close", lambda z, y: abs(z[:, 0] - y) < 1, higher=True, percent=True)
    >>> close.of([True, False])
    0.5
    >>> worst = Metric(
    ...     "largest_error",
    ...     lambda z, y: abs(z[:, 0] - y),
    ...     higher=False,
    ...     statistic=lambda errors: errors.max(axis=0),
    ...     merge=np.maximum,
    ...     finish=lambda statistic: statistic[0],
    ... )
    >>> worst.merged([worst.statistic_of([1, 3]), worst.statistic_of([2])])
    3.0
    """

    name: str
    rows: Callable[[Any, Any], Any]
    higher: bool
    percent: bool = False
    title: str = ""
    statistic: Callable[[Floats], Any] | None = None
    finish: Callable[[Floats], Any] | None = None
    merge: Callable[[Any, Any], Any] = np.add
    fits: Fits = "any"
    classes: tuple[int, int | None] = (2, None)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise FedaxError(f"a metric's name is {self.name!r}: it must be small letters, digits and underscores")
        if re.search(r"_(mean|std|worst)$", self.name):
            raise FedaxError(
                f"a metric's name is {self.name!r}: _mean, _std and _worst say how clients are put together"
            )
        if not callable(self.rows):
            raise FedaxError(f"metric {self.name!r}: rows must be a function of (outputs, y), not {self.rows!r}")
        if not isinstance(self.higher, bool):
            raise FedaxError(f"metric {self.name!r}: higher must be True or False, not {self.higher!r}")
        if (self.statistic is None) != (self.finish is None):
            raise FedaxError(f"metric {self.name!r}: statistic and finish go together, give both or neither")

    @property
    def mean(self) -> bool:
        """Whether it is the mean of its rows."""
        return self.statistic is None

    @property
    def words(self) -> str:
        """Its name in words."""
        return self.title or self.name.replace("_", " ")

    def statistic_of(self, records: Any) -> Floats:
        """The statistic of some rows' records, [rows] or [rows, numbers]; of a mean, its sum and how many rows."""
        found = np.asarray(records, np.float64)
        found = found.reshape(len(found), -1)
        if self.statistic is None:
            return np.array([found.sum(), len(found)])
        made = self.statistic(found)
        try:
            return np.asarray(made, np.float64)
        except (TypeError, ValueError):
            raise FedaxError(f"metric {self.name!r}: statistic must give an array of numbers, not {made!r}") from None

    def finished(self, statistic: Floats) -> float:
        """The value of a statistic."""
        if self.finish is None:
            return float(statistic[0] / statistic[1]) if statistic[1] else math.nan
        with np.errstate(invalid="ignore", divide="ignore"):
            value = self.finish(statistic)
        try:
            return float(value)
        except (TypeError, ValueError):
            raise FedaxError(f"metric {self.name!r}: finish must give a number, not {value!r}") from None

    def merged(self, statistics: Iterable[Floats]) -> float:
        """The value of several statistics together; NaN of none."""
        found = list(statistics)
        return self.finished(functools.reduce(self.merge, found)) if found else math.nan

    def of(self, records: Any) -> float:
        """The value on some rows, given their records."""
        return self.finished(self.statistic_of(records))

    def describe(self) -> dict[str, Any]:
        """The fields that a reader of a run's files needs.

        >>> from fedax.metrics import METRICS
        >>> METRICS["auc"].describe()
        {'name': 'auc', 'title': 'AUC', 'higher': True, 'percent': False}
        """
        return {"name": self.name, "title": self.words, "higher": self.higher, "percent": self.percent}


def flatten(z: Any) -> Any:
    """Outputs as [rows, numbers]."""
    return z.reshape(z.shape[0], -1)
