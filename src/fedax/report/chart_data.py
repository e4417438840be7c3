"""The numbers behind the pictures, ready for the page's script."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from fedax.report.columns import AXES, COUNTERS, DIAGNOSTICS, better, number, parse, title
from fedax.report.data_section import partitions
from fedax.report.personal_table import alone, by_client
from fedax.report.sentences import stop
from fedax.report.summary import Group
from fedax.runs.reading import RecordedRun

POINTS = 1500  # of a curve: more cannot be told apart on a screen


def payload(groups: list[Group]) -> dict[str, Any]:
    """Everything the script draws; see script.js for the other side."""
    curves = [_curve(group) for group in groups]
    return {
        "groups": [{"label": group.label, "runs": len(group.runs), "finished": group.finished} for group in groups],
        "axes": {axis: title for axis, title in AXES.items() if any(axis in curve["x"] for curve in curves)},
        "measures": measures(key for curve in curves for key in curve["y"]),
        "curves": curves,
        "partitions": partitions(groups),
        "clients": [_client_values(i, run) for i, group in enumerate(groups) for run in group.runs],
    }


def measures(keys: Iterable[str]) -> list[dict[str, Any]]:
    """What the curves can show: a shared and a personal metric of one meaning together; then diagnostics,
    which say what they tell.

    >>> [m["title"] for m in measures(["drift", "test_loss", "personal_test_loss"])]
    ['Test loss', 'Drift']
    """
    names = list(dict.fromkeys(keys))
    metrics = {key: metric for key in names if (metric := parse(key))}
    ordered = sorted(metrics, key=lambda key: metrics[key].order) + [key for key in names if key not in metrics]
    found: dict[str, dict[str, Any]] = {}
    for key in ordered:
        percent = key in metrics and metrics[key].percent
        plain = key.removeprefix("personal_")
        about: dict[str, Any] = {"title": title(key), "percent": percent, "better": better(key)}
        if plain in DIAGNOSTICS:
            about["tells"] = DIAGNOSTICS[plain][1]
        found.setdefault(title(key), about)["shared" if key == plain else "personal"] = key
    return list(found.values())


def _curve(group: Group) -> dict[str, Any]:
    """Mean, lowest and highest over the seeds at each round, and where runs stopped early."""
    by_round: dict[int, list[dict[str, float]]] = {}
    for run in group.runs:
        for row in run.rows:
            by_round.setdefault(int(row["round"]), []).append(_values(row))
    rounds = _thin(sorted(by_round))
    keys = dict.fromkeys(key for rows in by_round.values() for row in rows for key in row)
    over = {key: [_over(row[key] for row in by_round[r] if key in row) for r in rounds] for key in keys}
    stops = [{"at": _values(run.rows[-1]), "text": stop(run)} for run in group.runs if run.rows and not run.finished]
    return {
        "x": {axis: [mean for mean, _, _ in over[axis]] for axis in AXES if axis in over},
        "y": {
            key: {"mean": [o[0] for o in at], "low": [o[1] for o in at], "high": [o[2] for o in at]}
            for key, at in over.items()
            if key not in AXES and key not in COUNTERS
        },
        "stops": stops,
    }


def _values(row: dict[str, Any]) -> dict[str, float]:
    """The numbers of a row, with the floats sent either way added up."""
    numeric = {k: number(v) for k, v in row.items() if v is None or isinstance(v, int | float)}
    sent = [numeric[key] for key in ("floats_up", "floats_down") if key in numeric]
    return numeric | ({"floats": sum(sent)} if sent else {})


def _over(values: Iterable[float]) -> tuple[float, float, float]:
    there = list(values)
    if not there or any(math.isnan(value) for value in there):
        return math.nan, math.nan, math.nan
    return math.fsum(there) / len(there), min(there), max(there)


def _thin(rounds: list[int]) -> list[int]:
    every = -(-len(rounds) // POINTS)
    return rounds if every <= 1 else [*rounds[:-1:every], rounds[-1]]


def _client_values(group: int, run: RecordedRun) -> dict[str, Any]:
    """A run's metrics client by client: at each of its moments, for each metric, the values of every model."""
    kept = by_client(run)
    names = run.clients.get("names")
    about = {
        "group": group,
        "seed": "unknown" if run.seed is None else str(run.seed),
        "names": names if isinstance(names, list) else [],
    }
    if kept is None:
        return about | {"alone": False, "joined": [], "unseen": [], "moments": _final_values(run)}
    moments = {
        name: {"round": moment.round, "metrics": _by_title(moment.values)} for name, moment in kept.moments.items()
    }
    who = {"alone": alone(kept), "joined": kept.joined.tolist(), "unseen": kept.unseen.tolist()}
    return about | who | {"moments": moments}


def _by_title(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for model, parts in values.items():
        for part, metrics in parts.items():
            for name, per_client in metrics.items():
                if metric := parse(f"{part}_{name}"):
                    of = found.setdefault(metric.title, {"percent": metric.percent, "higher": metric.higher})
                    of[model] = [number(value) for value in per_client.tolist()]
    return found


def _final_values(run: RecordedRun) -> dict[str, dict[str, Any]]:
    """The last moment of a run that kept its final metrics only."""
    values = run.clients.get("values")
    found: dict[str, dict[str, Any]] = {}
    for part, metrics in (values if isinstance(values, dict) else {}).items():
        for name, per_client in (metrics if isinstance(metrics, dict) else {}).items():
            metric = parse(f"{part}_{name}")
            if metric and isinstance(per_client, list):
                of = found.setdefault(metric.title, {"percent": metric.percent, "higher": metric.higher})
                of["personal" if metric.personal else "shared"] = [number(value) for value in per_client]
    return {"last": {"round": run.round, "metrics": found}} if found else {}


def embed(data: Any) -> str:
    """JSON that is safe inside a script element: no tag can open or close, no NaN.

    >>> embed({"a": [float("nan"), "</script>"], "b": 1 / 3})
    '{"a":[null,"\\\\u003c/script>"],"b":0.3333333}'
    """
    shown = json.dumps(_finite(data), separators=(",", ":"), allow_nan=False)
    return shown.replace("<", "\\u003c")


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    if isinstance(data, float):
        return float(f"{data:.7g}") if math.isfinite(data) else None
    return data
