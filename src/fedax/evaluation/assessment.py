"""How good a model on a table is, in more than one number: ranking, calibration, confusion; or residuals.

All numbers are computed on rows that no model trained on, where there are any. A client has an AUC only if it has rows
of both classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedax.data.federation import Federation
from fedax.problem import Problem

Array = np.ndarray[Any, Any]
BINS = 10  # of a calibration curve, each with as many rows
POINTS = 1500  # of a picture of residuals


def assess(
    problem: Problem,
    federation: Federation,
    labels: Sequence[Any] | None,
    model: Any | None,
    personal: Callable[[int], Any] | None,
) -> dict[str, Any]:
    """The assessment of the shared model and that of the clients' own models, each where such models exist.

    labels: of the classes; None for a regression.
    """
    part = next(name for name in ("test", "validation", "train") if federation.part(name).count.sum())
    rows = federation.part(part)
    index = [np.arange(s, s + n) for s, n in zip(rows.start, rows.count, strict=True)]
    found: dict[str, Any] = {"part": part, "rows": int(rows.count.sum()), "labels": labels}
    whole = np.concatenate(index)
    arrays = {key: array[whole] for key, array in federation.arrays.items() if key in ("x", "y")}
    who = np.repeat(np.arange(federation.clients), rows.count)
    if model is not None:
        z = np.asarray(problem.outputs(model, arrays), np.float64)
        found["shared"] = _assessed(z.reshape(len(whole), -1), arrays["y"], who, federation.names, labels)
    if personal is not None:
        parts = [
            np.asarray(problem.outputs(personal(i), {"x": federation.arrays["x"][own]}), np.float64)
            for i, own in enumerate(index)
            if len(own)
        ]
        z = np.concatenate(parts).reshape(len(whole), -1)
        found["personal"] = _assessed(z, arrays["y"], who, federation.names, labels)
    return found


def _assessed(z: Array, y: Array, who: Array, names: Sequence[str], labels: Sequence[Any] | None) -> dict[str, Any]:
    if labels is not None:
        return _classes(z, y, who, names)
    return _numbers(z[:, 0], np.asarray(y, np.float64).reshape(len(z), -1)[:, 0])


def _classes(z: Array, y: Array, who: Array, names: Sequence[str]) -> dict[str, Any]:
    proba = _probabilities(z)
    classes, truth = proba.shape[1], (y > 0).astype(int) if z.shape[1] == 1 else y.astype(int)
    guess = proba.argmax(axis=1)
    confusion = np.bincount(truth * classes + guess, minlength=classes**2).reshape(classes, classes)
    # of two classes the second is what is looked for; of more, the most probable one
    sure, right = (proba[:, 1], truth == 1) if classes == 2 else (proba.max(axis=1), guess == truth)
    found: dict[str, Any] = {"confusion": confusion.tolist(), "calibration": _calibration(sure, right)}
    found |= _ranking(proba, truth)
    by_client = {}
    for i in np.unique(who):
        mine = who == i
        by_client[names[int(i)]] = _ranking(proba[mine], truth[mine]).get("auc")
    found["auc_by_client"] = by_client
    return found


def _probabilities(z: Array) -> Array:
    whole = np.concatenate([np.zeros_like(z), z], axis=1) if z.shape[1] == 1 else z
    shifted = np.exp(whole - whole.max(axis=1, keepdims=True))
    made: Array = shifted / shifted.sum(axis=1, keepdims=True)
    return made


def _ranking(proba: Array, truth: Array) -> dict[str, float]:
    """Exact AUC and average precision, each class against the rest; nothing where there is one class alone."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    chosen = [1] if proba.shape[1] == 2 else range(proba.shape[1])
    there = [c for c in chosen if 0 < (truth == c).sum() < len(truth)]
    if not there:
        return {}
    auc = [roc_auc_score(truth == c, proba[:, c]) for c in there]
    precision = [average_precision_score(truth == c, proba[:, c]) for c in there]
    return {"auc": float(np.mean(auc)), "average_precision": float(np.mean(precision))}


def _calibration(sure: Array, right: Array) -> list[list[float]]:
    """Each tenth of the rows, from the least probable: its rows, their mean probability, the share that came true."""
    parts = np.array_split(np.argsort(sure, kind="stable"), min(BINS, len(sure)))
    return [[len(part), float(sure[part].mean()), float(right[part].mean())] for part in parts if len(part)]


def _numbers(z: Array, y: Array) -> dict[str, Any]:
    error = z - y
    spread = float(((y - y.mean()) ** 2).mean())
    some = np.linspace(0, len(z) - 1, min(POINTS, len(z))).astype(int)
    return {
        "rmse": float(np.sqrt((error**2).mean())),
        "mae": float(np.abs(error).mean()),
        "r2": float(1 - (error**2).mean() / spread) if spread > 0 else None,
        "bias": float(error.mean()),
        "quantiles": [float(q) for q in np.quantile(-error, [0.05, 0.25, 0.5, 0.75, 0.95])],
        "points": [[float(f"{p:.5g}"), float(f"{r:.5g}")] for p, r in zip(z[some], (y - z)[some], strict=True)],
    }
