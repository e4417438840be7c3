"""From the directories that runs leave to the numbers that a paper prints."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedax.evaluation.protocol import interval, table
from fedax.papers.reproductions.description import Quantity
from fedax.papers.reproductions.verdict import Measured
from fedax.report import RecordedRun
from fedax.report.columns import better
from fedax.report.personal_table import by_client
from fedax.report.recorded_sweep import SWEEP
from fedax.report.summary import final


def measured(quantity: Quantity, parts: Mapping[str, Sequence[RecordedRun]]) -> Measured | None:
    """A quantity over the seeds of its part, or over those of all parts; None if no run is of its method."""
    found = _values(quantity, parts)
    less = quantity.subtrahend()
    if less is not None:
        off = _values(less, parts)
        found = [a - b for a, b in zip(found, off, strict=True)] if len(found) == len(off) else []
    return spread(found)


def quickest(quantity: Quantity, folders: Mapping[str, Path]) -> Measured | None:
    """The fewest rounds in which any setting of a sweep reaches its target; `folders` are those of the parts."""
    found: dict[tuple[str, str], float] = {}
    for part, folder in folders.items():
        if quantity.part not in (None, part):
            continue
        with (folder / SWEEP).open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row["algorithm"] == quantity.method:
                    rounds = float(row["rounds_to_target"] or math.inf)
                    found[part, row["seed"]] = min(rounds, found.get((part, row["seed"]), math.inf))
    return spread(list(found.values()))


def spread(values: Sequence[float]) -> Measured | None:
    """The mean over seeds with the half-width of its 95 % interval.

    >>> spread([1.0, 3.0]).mean, spread([1.0, math.nan]).mean, spread([])
    (2.0, nan, None)
    """
    if not values:
        return None
    if not all(map(math.isfinite, values)):
        return Measured(statistics.fmean(values), None, len(values), tuple(values))
    mean, half = interval(values)
    return Measured(mean, None if math.isnan(half) else half, len(values), tuple(values))


def _values(quantity: Quantity, parts: Mapping[str, Sequence[RecordedRun]]) -> list[float]:
    mine = [runs for part, runs in parts.items() if quantity.part in (None, part)]
    runs = [run for one in mine for run in sorted(one, key=_seed)]  # claims pair the numbers of one seed
    scale = 100 if quantity.percent else 1
    return [scale * value(quantity, run) for run in runs if run.label == quantity.method]


def _seed(run: RecordedRun) -> int:
    return run.seed or 0


def value(quantity: Quantity, run: RecordedRun) -> float:
    """A quantity of one run; NaN where it diverged or has no such metric.

    >>> from pathlib import Path
    >>> run = RecordedRun(Path("."), ({"round": 5, "f1": 0.9}, {"round": 10, "f1": 1.0}), state={"status": "finished"})
    >>> f1 = Quantity(method="FedMiD", metric="f1")
    >>> value(f1, run), value(f1.model_copy(update={"reaches": 1.0}), run)
    (1.0, 10.0)
    """
    if run.status == "diverged":
        return math.nan
    if quantity.model not in (None, "own"):
        return _of_clients(quantity, run)
    own = f"personal_{quantity.metric}"
    metric = own if quantity.model == "own" and any(own in row for row in run.rows) else quantity.metric
    if quantity.reaches is not None:
        hits = [
            row["round"] for row in run.rows if row["round"] > 0 and _reached(metric, row.get(metric), quantity.reaches)
        ]
        return float(min(hits, default=math.inf))
    if quantity.best:
        there = [float(row[metric]) for row in run.rows if metric in row]
        return max(there, default=math.nan) if better(metric) == "max" else min(there, default=math.nan)
    if quantity.each_round:
        begun = [row for row in run.rows if row["round"] > 0 and metric in row]
        if len(begun) < 2:
            return math.nan
        grown, rounds = (begun[-1][column] - begun[0][column] for column in (metric, "round"))
        return float(grown / rounds)
    if quantity.over is not None and run.rows:
        first = run.rows[-1]["round"] - quantity.over if quantity.over else 0
        return statistics.fmean(float(row[metric]) for row in run.rows if row["round"] > first and metric in row)
    found = final(run, metric)
    return math.nan if found is None else found


def _reached(metric: str, now: float | None, target: float) -> bool:
    """Whether a metric is at its target, or on the better side of it; a rank has no better side.

    >>> _reached("test_accuracy", 0.86, 0.85), _reached("rank", 17, 16), _reached("train_loss", 0.2, 0.3)
    (True, False, True)
    """
    if now is None:
        return False
    return {"max": now >= target, "min": now <= target, "": now == target}[better(metric)]


def _of_clients(quantity: Quantity, run: RecordedRun) -> float:
    """The mean over clients of a model's metric at the last round."""
    kept = by_client(run)
    part, _, metric = quantity.metric.partition("_")
    lines = [] if kept is None else table(kept, part=part, metric=metric)
    wanted = ("last", quantity.group, quantity.model)
    means = [float(line["mean"]) for line in lines if (line["moment"], line["group"], line["model"]) == wanted]
    return means[0] if means else math.nan
