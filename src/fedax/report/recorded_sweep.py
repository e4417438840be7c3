"""A sweep as its directory tells it: the score over two hyper-parameters, and how sparse and accurate each setting
was on its way (thesis, Figure 4.11)."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedax.report.columns import better, number, parse, text, title
from fedax.runs.files import EXPERIMENT

SWEEP, HISTORIES = "sweep.csv", "histories.jsonl"
DECIDES = ("metric", "goal", "over", "target", "mode")
#: The thesis looks at rounds 10, 30, 100 and 300 of 300.
SHARES = (1 / 30, 1 / 10, 1 / 3, 1)


def read_sweep(folder: Path, labels: Sequence[str]) -> dict[str, Any] | None:
    """What the page draws of a sweep; None if there is no sweep, or if it cannot be read.

    labels: those of the page's methods, in its order of colours; empty for one of another directory.
    """
    try:
        experiment = json.loads((folder / EXPERIMENT).read_bytes())
        about = experiment["sweep"]
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
            }
            for label in dict.fromkeys(row["algorithm"] for row in rows)
            if label in labels
        ]
        of = {label: [row for row in rows if row["algorithm"] == label] for label in labels if label}
        words = [_best(label, _means(mine, fields), values, metric, goal) for label, mine in of.items()]
        known = [str(method["label"]) for method in methods]
        judged = parse(metric)
        progress = _progress(_histories(folder / HISTORIES), known, fields, metric)
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
    how = [f"mean over the last {over} rounds" if over else "at the last round"]
    how += [f"the best over {' and '.join(fields[2:])}"] if fields[2:] else []
    return {
        "name": str(experiment.get("name") or folder.resolve().name),
        "title": title(metric),
        "percent": judged is not None and judged.percent,
        "words": [sentence for sentence in words if sentence],
        "how": ", ".join(how),
        "goal": goal,
        "fields": fields[:2],
        "axes": [[f"{value:g}" for value in values[name]] for name in fields[:2]],
        "methods": methods,
        "progress": progress,
    }


def _heat(
    rows: list[dict[str, str]], fields: list[str], values: dict[str, list[float]], goal: str
) -> list[list[float | None]]:
    """The mean score over seeds at each pair of the first two fields' values; the best over any other fields.

    A setting that diverged with any seed has no score.
    """
    means = _means(rows, fields)
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


def _means(rows: list[dict[str, str]], fields: list[str]) -> dict[tuple[float, ...], float]:
    """The mean score over seeds of each setting; NaN for one that diverged with any seed."""
    by_setting: dict[tuple[float, ...], list[float]] = {}
    for row in rows:
        score = float(row["score"]) if row["score"] else math.nan
        by_setting.setdefault(tuple(float(row[name]) for name in fields), []).append(score)
    return {setting: math.fsum(scores) / len(scores) for setting, scores in by_setting.items()}


def _best(
    label: str,
    means: Mapping[tuple[float, ...], float],
    values: dict[str, list[float]],
    metric: str,
    goal: str,
) -> str:
    """A method's best setting in a sentence, and whether it is at the edge of the grid; nothing if all diverged.

    >>> tried = {"lr": [0.1, 1.0, 10.0]}
    >>> _best("A", {(0.1,): 0.7, (1.0,): 0.8, (10.0,): 0.9}, tried, "test_accuracy", "max")
    'A: lr 10 is the best of 3 settings, with test accuracy 90.00 %. lr 10 is at the edge of what was tried; values \
beyond it may be better.'
    """
    known = {setting: score for setting, score in means.items() if not math.isnan(score)}
    if not known:
        return ""
    found = (max if goal == "max" else min)(known, key=known.__getitem__)
    setting = dict(zip(values, found, strict=True))
    words, about = title(metric), parse(metric)
    score = f"{words[:1].lower()}{words[1:]} {text(metric, known[found])}{' %' if about and about.percent else ''}"
    chosen = ", ".join(f"{name} {value:g}" for name, value in setting.items())
    beyond = edge_warning(setting, at_the_edge(setting, values))
    said = f"{label}: {chosen} is the best of {len(means)} settings, with {score}."
    return f"{said} {beyond}" if beyond else said


def at_the_edge(setting: Mapping[str, float], values: Mapping[str, Sequence[float]]) -> tuple[str, ...]:
    """The fields whose value is the smallest or the largest that was tried, of three or more.

    >>> at_the_edge({"lr": 0.1, "mu": 1.0}, {"lr": [0.1, 1.0, 10.0], "mu": [0.1, 1.0, 10.0]})
    ('lr',)
    """
    return tuple(
        name
        for name, value in setting.items()
        if len(tried := values.get(name, ())) > 2 and value in (min(tried), max(tried))
    )


def edge_warning(setting: Mapping[str, float], edge: Sequence[str]) -> str:
    """A sentence on the fields at the edge of the grid; nothing without any.

    >>> edge_warning({"lr": 1.0, "mu": 3.0}, ("lr", "mu"))
    'lr 1 and mu 3 are at the edge of what was tried; values beyond them may be better.'
    """
    if not edge:
        return ""
    named = " and ".join(f"{name} {setting[name]:g}" for name in edge)
    are, them = ("is", "it") if len(edge) == 1 else ("are", "them")
    return f"{named} {are} at the edge of what was tried; values beyond {them} may be better."


def _histories(path: Path) -> list[dict[str, Any]]:
    """The rows of every setting; a line cut short by a crash ends them."""
    rows: list[dict[str, Any]] = []
    if path.is_file():
        with path.open(encoding="utf-8") as file:
            for line in file:
                try:
                    rows.append(json.loads(line))
                except ValueError:
                    break
    return rows


def _accuracies(columns: Collection[str]) -> list[str]:
    """The metrics of the shared model on held-out rows of which more is better, AUC and accuracy first; then F1 of the
    support.

    >>> _accuracies(["round", "f1", "train_accuracy", "test_loss", "test_auc", "test_accuracy", "test_accuracy_std"])
    ['test_auc', 'test_accuracy', 'f1']
    """
    parsed = {key: found for key in columns if (found := parse(key)) and found.part != "train"}
    plain = [key for key, found in parsed.items() if found.higher and not found.statistic and not found.personal]
    return [*sorted(plain, key=lambda key: parsed[key].order), *(key for key in columns if key == "f1")]


def _progress(rows: list[dict[str, Any]], labels: list[str], fields: list[str], metric: str) -> dict[str, Any] | None:
    """Density, accuracy (or another metric of which more is better, or what the sweep is judged by) and name of every
    setting at four rounds, method by method; None where no density was measured."""
    measured = [row for row in rows if "density" in row]
    if not measured:
        return None
    known = _accuracies(measured[0])
    key = metric if better(metric) == "max" or not known else known[0]
    if key == "density":
        return None
    done = sorted({int(row["round"]) for row in measured})
    rounds = list(dict.fromkeys(min(done, key=lambda r: abs(r - share * done[-1])) for share in SHARES))
    points: list[list[list[list[Any]]]] = [[[] for _ in rounds] for _ in labels]
    for row in measured:
        at = number(row["density"]), number(row.get(key))
        if row["algorithm"] in labels and row["round"] in rounds and all(map(math.isfinite, at)):
            name = ", ".join(f"{field} {row[field]:g}" for field in fields)
            points[labels.index(row["algorithm"])][rounds.index(row["round"])].append([*at, name])
    about = parse(key)
    return {
        "title": title(key),
        "percent": about is not None and about.percent,
        "better": better(key),
        "rounds": rounds,
        "points": points,
    }
