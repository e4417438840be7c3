"""The value of one metric for every client, and its summary over clients."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedax.metrics import METRICS, Metric

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One metric for every client, NaN for a client without rows or where it has no meaning.

    whole: its value on all rows together; None for a mean over rows.
    statistics: each client's, where they were asked for.
    """

    values: Floats
    rows: Floats
    whole: float | None = None
    statistics: tuple[Floats, ...] = ()

    @property
    def overall(self) -> float:
        """The value on all rows together."""
        if self.whole is not None:
            return self.whole
        some = self.rows > 0
        return float(np.sum(self.values[some] * self.rows[some]) / np.sum(self.rows[some]))


def summary(prefix: str, metrics: Mapping[str, Measurement], known: Mapping[str, Metric] = METRICS) -> dict[str, float]:
    """Over all rows; then over clients: mean, spread, and the mean of the worst tenth.

    known: the metrics by name, which say what is worst. Clients for whom a metric has no meaning are left out.

    >>> m = Measurement(np.array([0.5, 1.0]), np.array([1.0, 3.0]))
    >>> summary("test_", {"accuracy": m})
    {'test_accuracy': 0.875, 'test_accuracy_mean': 0.75, 'test_accuracy_std': 0.25, 'test_accuracy_worst': 0.5}
    """
    row: dict[str, float] = {}
    for name, metric in metrics.items():
        there = metric.rows > 0
        if metric.whole is not None:
            there &= ~np.isnan(metric.values)
            if np.isnan(metric.whole) or not there.any():
                continue
        values = np.sort(metric.values[there])
        if not known[name].higher:
            values = values[::-1]
        tenth = max(1, round(len(values) / 10))
        row[f"{prefix}{name}"] = metric.overall
        row[f"{prefix}{name}_mean"] = float(np.mean(values))
        with np.errstate(invalid="ignore"):  # a diverged model's losses may be infinite
            row[f"{prefix}{name}_std"] = float(np.std(values))
        row[f"{prefix}{name}_worst"] = float(np.mean(values[:tenth]))
    return row


class Merge:
    """Statistics of clients, one after the other: each one's value, and all of them together."""

    def __init__(self, metric: Metric, keep: bool = False) -> None:
        self.metric, self.keep, self.values = metric, keep, list[float]()
        self.statistics: list[Floats | None] = []
        self.total: Floats | None = None

    def add(self, records: Floats, times: int = 1) -> None:
        """A client's records, or those of several clients with the same rows."""
        metric = self.metric
        found = metric.statistic_of(records) if len(records) else None
        self.values.append(np.nan if found is None else metric.finished(found))
        if self.keep:
            self.statistics.append(found)
        for _ in range(times if found is not None else 0):
            self.total = found if self.total is None else metric.merge(self.total, found)

    def measurement(self, count: Any, which: Any) -> Measurement:
        """The measurement; `which` gives the number of each client's value: clients with the same rows share one."""
        whole = np.nan if self.total is None else self.metric.finished(self.total)
        kept = tuple(s for i in which if (s := self.statistics[i]) is not None) if self.keep else ()
        return Measurement(np.asarray(self.values)[which], count.astype(np.float64), whole, kept)
