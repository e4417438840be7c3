"""The curves of a paper's figure, from the histories of our runs: means over seeds, as small as a picture needs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from fedax.papers.reproductions.description import Picture
from fedax.report import RecordedRun

Curve: TypeAlias = list[tuple[float, float]]
Curves: TypeAlias = dict[str, dict[str, Curve]]  # by part and method


def curves(picture: Picture, parts: Mapping[str, Sequence[RecordedRun]]) -> Curves:
    """Each method's curve in each part, at the rounds that all of its seeds have reached, to four digits.

    >>> from pathlib import Path
    >>> rows = {"round": 0, "f1": 0.5}, {"round": 5, "f1": 1.0}
    >>> run = RecordedRun(Path("."), rows, {"algorithm": {"label": "FedMiD"}})
    >>> curves(Picture(y="f1"), {"": [run]})
    {'': {'FedMiD': [(0.0, 0.5), (5.0, 1.0)]}}
    """
    found: Curves = {}
    for part, runs in parts.items():
        labels = [name for name in dict.fromkeys(run.label for run in runs) if name in (picture.methods or [name])]
        made = {label: _mean(picture, [run for run in runs if run.label == label]) for label in labels}
        if made := {label: curve for label, curve in made.items() if len(curve) > 1}:
            found[part] = made
    return found


def _mean(picture: Picture, seeds: Sequence[RecordedRun]) -> Curve:
    by_round: dict[int, list[tuple[float, float]]] = {}
    for run in seeds:
        for row in run.rows:
            column = picture.column(row)
            if column in row and picture.x in row:
                by_round.setdefault(row["round"], []).append((row[picture.x], row[column]))
    whole = [points for _, points in sorted(by_round.items()) if len(points) == len(seeds)]
    return [
        (_short(statistics.fmean(x)), _short(statistics.fmean(y))) for x, y in (zip(*p, strict=True) for p in whole)
    ]


def _short(value: float) -> float:
    return float(f"{value:.4g}")
