"""What decides between the settings of a sweep."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from fedax.errors import FedaxError, unknown
from fedax.evaluation.metrics import BALANCED
from fedax.experiments.sweep_table import SweepTable
from fedax.report.columns import better

Rows = Sequence[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Judge:
    """A metric, whether more of it is better, the last rounds whose mean decides, and a target.

    >>> judge = Judge("f1", "max", rounds=4, over=2, target=1.0)
    >>> history = [{"round": r, "f1": f1} for r, f1 in enumerate([0.0, 0.2, 0.8, 1.0, 0.9])]
    >>> judge.score(history), judge.reached(history)
    (0.95, 3)
    """

    metric: str
    goal: str
    rounds: int
    over: int | None = None
    target: float | None = None

    @property
    def title(self) -> str:
        """The score in words.

        >>> Judge("f1", "max", rounds=500, over=100).title
        'f1, mean over the last 100 rounds'
        """
        return f"{self.metric}{'' if self.over is None else f', mean over the last {self.over} rounds'}"

    def score(self, history: Rows) -> float:
        """The score of the setting with this history; NaN if it did not finish."""
        if not history or history[-1]["round"] < self.rounds:
            return math.nan
        first = self.rounds - (self.over or 1)
        return statistics.fmean(row[self.metric] for row in history if row["round"] > first)

    def best(self, history: Rows) -> dict[str, Any]:
        """The row with the best value of the metric."""
        pick = max if self.goal == "max" else min
        return pick(history, key=lambda row: float(row[self.metric]), default={})

    def reached(self, history: Rows) -> int | None:
        """The first evaluated round at which the metric reached the target; None if there is none."""
        return next((row["round"] for row in history if self._meets(row[self.metric])), None)

    def _meets(self, value: float) -> bool:
        if self.target is None:
            return False
        return value >= self.target if self.goal == "max" else value <= self.target

    def order(self, scores: Iterable[float], reached: Iterable[int | None]) -> tuple[float, float]:
        """The best comes first: by the mean score over seeds, then by the rounds to the target."""
        score = statistics.fmean(scores)
        rounds = statistics.fmean(math.inf if r is None else r for r in reached)
        return (-score if self.goal == "max" else score), rounds


def judge(table: SweepTable, rounds: int, columns: Sequence[Collection[str]]) -> Judge:
    """The judge of a sweep, given the columns of each method's history.

    >>> judge(SweepTable(lr=[0.1]), 10, [["round", "train_loss"]]).metric
    'train_loss'
    """
    common = [name for name in columns[0] if name != "round" and all(name in other for other in columns)]
    metric = _default(common) if table.metric is None else table.metric
    if table.bare is not None:
        columns_of = [f"{own}{part}_{metric}" for part in ("test", "validation", "train") for own in ("", "personal_")]
        metric = next((name for name in columns_of if name in common), metric)
    if metric not in common:
        raise FedaxError(f"sweep.metric: {unknown('metric', metric, common)}")
    goal = table.goal or better(metric) or "min"
    return Judge(metric, goal, rounds, table.over, table.target)


def _default(columns: Sequence[str]) -> str:
    for part in ("test", "validation", "train"):
        names = [f"{own}{part}_{name}" for name in (*BALANCED, "accuracy") for own in ("", "personal_")]
        for name in (*names, f"{part}_objective", f"{part}_loss", f"personal_{part}_loss"):
            if name in columns:
                return name
    raise FedaxError("sweep.metric is missing: these methods have no accuracy or loss in common to be judged by")
