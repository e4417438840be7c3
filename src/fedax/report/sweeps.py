"""A sweep as its directory tells it: the score over two hyper-parameters, and how dense each setting came out."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedax.report.metrics import number
from fedax.report.runs import EXPERIMENT

SWEEP = "sweep.csv"
DECIDES = ("metric", "goal", "over", "target")


def read_sweep(folder: Path, labels: Sequence[str]) -> dict[str, Any] | None:
    """What the page draws of a sweep; None where there is none, or it cannot be read.

    labels: those of the page's methods, in its order of colours.
    """
    try:
        about = json.loads((folder / EXPERIMENT).read_bytes())["sweep"]
        with (folder / SWEEP).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        fields = [name for name in about if name not in DECIDES]
        metric, goal, over = str(about["metric"]), about["goal"], about["over"]
        values = {name: [float(value) for value in about[name]] for name in fields}
        methods = [
            {
                "label": label,
                "group": labels.index(label),
                "z": _heat([row for row in rows if row["algorithm"] == label], fields, values, goal),
                "points": _points([row for row in rows if row["algorithm"] == label], fields, metric),
            }
            for label in dict.fromkeys(row["algorithm"] for row in rows)
            if label in labels
        ]
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
    title = metric.replace("_", " ")
    return {
        "title": title[0].upper() + title[1:],
        "how": f"mean over the last {over} rounds" if over else "at the last round",
        "goal": goal,
        "fields": fields[:2],
        "axes": [[f"{value:g}" for value in values[name]] for name in fields[:2]],
        "dense": metric != "density" and any(method["points"] for method in methods),
        "methods": methods,
    }


def _heat(
    rows: list[dict[str, str]], fields: list[str], values: dict[str, list[float]], goal: str
) -> list[list[float | None]]:
    """The mean score over seeds at each pair of the first two fields' values; the best over any other fields.

    A setting that diverged with any seed has no score.
    """
    by_setting: dict[tuple[float, ...], list[float]] = {}
    for row in rows:
        score = float(row["score"]) if row["score"] else math.nan
        by_setting.setdefault(tuple(float(row[name]) for name in fields), []).append(score)
    means = {setting: math.fsum(scores) / len(scores) for setting, scores in by_setting.items()}
    best = max if goal == "max" else min
    first, second = values[fields[0]], values[fields[1]] if len(fields) > 1 else [None]
    return [
        [
            best(
                (m for at, m in means.items() if at[:2] == ((x,) if y is None else (x, y)) and not math.isnan(m)),
                default=None,
            )
            for x in first
        ]
        for y in second
    ]


def _points(rows: list[dict[str, str]], fields: list[str], metric: str) -> list[list[Any]]:
    """Density, metric and name of every setting that came to its end."""
    kept = [row for row in rows if row.get("density") and row["score"]]
    return [
        [
            number(float(row["density"])),
            number(float(row[metric])),
            ", ".join(f"{name} {float(row[name]):g}" for name in fields),
        ]
        for row in kept
    ]
