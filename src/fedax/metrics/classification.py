"""Metrics of classes: records of (outputs, labels) on the device, statistics of records, and their values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fedax.metrics.base import Floats, Metric, flatten

BINS = 4096  # of scores: auc, average_precision
WIDTHS = 15  # of probabilities: calibration_error

# Records, on the device.


def _labels(z: Any, y: Any) -> Any:
    """Labels 0 .. classes - 1; of one output, 1 where y > 0."""
    y = y.reshape(y.shape[0])
    return (y > 0) if flatten(z).shape[1] == 1 else y


def _predicted(z: Any, y: Any) -> Any:
    """The true class, the predicted one, and how many classes there are."""
    import jax.numpy as jnp

    flat = flatten(z)
    guess = flat[:, 0] > 0 if flat.shape[1] == 1 else jnp.argmax(flat, axis=1)
    classes = jnp.full(len(flat), max(2, flat.shape[1]))
    return jnp.stack([a.astype(jnp.float32) for a in (_labels(z, y), guess, classes)], axis=1)


def _log_odds(z: Any, y: Any) -> Any:
    """The log-odds of the positive class, or of each of more than two, and the true class."""
    import jax
    import jax.numpy as jnp

    flat, label = flatten(z), _labels(z, y).astype(jnp.float32)[:, None]
    if flat.shape[1] == 1:
        return jnp.concatenate([flat, label], axis=1)
    if flat.shape[1] == 2:
        return jnp.concatenate([flat[:, 1:] - flat[:, :1], label], axis=1)
    same = jnp.eye(flat.shape[1], dtype=bool)
    others = jax.nn.logsumexp(jnp.where(same, -jnp.inf, flat[:, None, :]), axis=2)
    return jnp.concatenate([flat - others, label], axis=1)


def _confidence(z: Any, y: Any) -> Any:
    """The largest probability, and whether its class is the true one."""
    import jax
    import jax.numpy as jnp

    flat = flatten(z)
    if flat.shape[1] == 1:
        flat = jnp.concatenate([jnp.zeros_like(flat), flat], axis=1)
    probability = jax.nn.softmax(flat, axis=1)
    right = jnp.argmax(flat, axis=1) == (_labels(z, y))
    return jnp.stack([probability.max(axis=1), right.astype(probability.dtype)], axis=1)


def _negative_log_likelihood(z: Any, y: Any) -> Any:
    """The sum over a row's labels, and their number; where a row has several, a label below 0 does not count."""
    import jax
    import jax.numpy as jnp

    if z.ndim > 2:
        logs, label = jax.nn.log_softmax(z, axis=-1), y.astype(jnp.int32)
        own = jnp.take_along_axis(logs, jnp.maximum(label, 0)[..., None], axis=-1)[..., 0]
        counted = (label >= 0).astype(own.dtype)
        return jnp.stack([-flatten(own * counted).sum(axis=1), flatten(counted).sum(axis=1)], axis=1)
    flat, label = flatten(z), _labels(z, y)
    if flat.shape[1] == 1:
        found = jax.nn.softplus(jnp.where(label, -flat[:, 0], flat[:, 0]))
    else:
        logs = jax.nn.log_softmax(flat, axis=1)
        found = -jnp.take_along_axis(logs, label.astype(jnp.int32)[:, None], axis=1)[:, 0]
    return jnp.stack([found, jnp.ones_like(found)], axis=1)


def _among_five(z: Any, y: Any) -> Any:
    import jax.numpy as jnp

    flat = flatten(z)
    own = jnp.take_along_axis(flat, y.reshape(-1).astype(jnp.int32)[:, None], axis=1)
    # of equal outputs the first come first, as in a stable sort
    before = (flat > own) | ((flat == own) & (jnp.arange(flat.shape[1]) < y.reshape(-1)[:, None]))
    return jnp.sum(before, axis=1) < 5


# Statistics of records, and their values.


def _confusion(records: Floats) -> Floats:
    """Rows by true and predicted class."""
    true, guess, classes = records.astype(np.int64).T
    size = int(classes[0])
    return np.bincount(true * size + guess, minlength=size * size).reshape(size, size).astype(np.float64)


def _balanced(table: Floats) -> float:
    of = table.sum(axis=1)
    return float(np.mean(np.diag(table)[of > 0] / of[of > 0]))


def _macro_f1(table: Floats) -> float:
    right, both = np.diag(table), table.sum(axis=0) + table.sum(axis=1)
    return float(np.mean(2 * right[both > 0] / both[both > 0]))


def _precision(table: Floats) -> float:
    """0 where nothing is predicted positive, as in scikit-learn."""
    return float(table[1, 1] / max(1.0, table[:, 1].sum()))


def _recall(table: Floats) -> float:
    """NaN where there is no positive row."""
    return float(table[1, 1] / table[1].sum()) if table[1].sum() else math.nan


def _histograms(records: Floats) -> Floats:
    """[classes, negative or positive, bins]: how many rows have a score in each bin, class by class."""
    scores, label = records[:, :-1], records[:, -1].astype(np.int64)
    count = scores.shape[1]
    with np.errstate(invalid="ignore"):
        squashed = np.where(np.isinf(scores), np.sign(scores), scores / (1 + np.abs(scores)))
    place = np.clip((np.nan_to_num(squashed) + 1) / 2 * BINS, 0, BINS - 1).astype(np.int64)
    positive = label[:, None] == (np.arange(count) if count > 1 else 1)
    flat = (np.arange(count) * 2 + positive) * BINS + place
    # by weights, so that the table is made of floats at once: a client fills few of its bins
    table: Floats = np.bincount(flat.ravel(), np.ones(flat.size), count * 2 * BINS).astype(np.float64, copy=False)
    return table.reshape(count, 2, BINS)


def _over_classes(table: Floats, areas: Callable[[Floats, Floats], Floats]) -> float:
    """The mean over classes with rows both inside and outside; NaN if there is none."""
    filled = table[:, :, table.any(axis=(0, 1))]  # bins without rows change nothing, and a client has many of them
    both = np.all(filled.sum(axis=2) > 0, axis=1)
    return float(np.mean(areas(filled[both, 0], filled[both, 1]))) if both.any() else math.nan


def _auc(table: Floats) -> float:
    def areas(negative: Floats, positive: Floats) -> Floats:
        below = np.cumsum(negative, axis=1) - negative / 2
        found: Floats = (positive * below).sum(axis=1) / (positive.sum(axis=1) * negative.sum(axis=1))
        return found

    return _over_classes(table, areas)


def _average_precision(table: Floats) -> float:
    def areas(negative: Floats, positive: Floats) -> Floats:
        above = positive[:, ::-1]
        right = np.cumsum(above, axis=1)
        taken = right + np.cumsum(negative[:, ::-1], axis=1)
        found: Floats = (above * right / np.maximum(taken, 1)).sum(axis=1) / positive.sum(axis=1)
        return found

    return _over_classes(table, areas)


def _calibration(records: Floats) -> Floats:
    """Bins by rows, summed probabilities and right ones."""
    at = np.clip(np.ceil(records[:, 0] * WIDTHS) - 1, 0, WIDTHS - 1).astype(np.int64)
    sums = [np.bincount(at, weights, WIDTHS) for weights in (np.ones(len(at)), records[:, 0], records[:, 1])]
    return np.stack(sums, axis=1)


def _calibration_error(table: Floats) -> float:
    return float(np.abs(table[:, 1] - table[:, 2]).sum() / table[:, 0].sum())


def _on_classes(name: str, rows: Any, statistic: Any, finish: Any, **more: Any) -> Metric:
    return Metric(name, rows, **{"higher": True, "fits": "classes", **more}, statistic=statistic, finish=finish)


_TWO = (2, 2)
CLASSIFICATION = (
    Metric("top_5", _among_five, higher=True, percent=True, title="top-5 accuracy", fits="classes", classes=(6, None)),
    _on_classes("balanced_accuracy", _predicted, _confusion, _balanced, percent=True),
    _on_classes("macro_f1", _predicted, _confusion, _macro_f1, title="macro F1"),
    _on_classes("precision", _predicted, _confusion, _precision, percent=True, classes=_TWO),
    _on_classes("recall", _predicted, _confusion, _recall, percent=True, classes=_TWO),
    _on_classes("auc", _log_odds, _histograms, _auc, title="AUC"),
    _on_classes("average_precision", _log_odds, _histograms, _average_precision),
    _on_classes("calibration_error", _confidence, _calibration, _calibration_error, higher=False),
    _on_classes(
        "perplexity",
        _negative_log_likelihood,
        lambda records: records.sum(axis=0),
        lambda sums: math.exp(min(700.0, sums[0] / sums[1])),  # exp of more is beyond a float
        higher=False,
    ),
)
