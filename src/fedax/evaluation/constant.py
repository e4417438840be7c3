"""The constant predictor: what a model must beat to have learnt anything.

It gives every row the same outputs: of classes the log of their shares in the training rows, so that it predicts the
majority and its loss is the best that a constant can have; of numbers their mean. Beside personal models stands one
constant a client, from the client's own training rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fedax.data.federation import Federation, Rows
from fedax.problem import Problem
from fedax.problem.losses import row_loss

Array = np.ndarray[Any, Any]
CLASSES = ("cross_entropy", "logistic")


def constant_predictor(problem: Problem, federation: Federation, parts: Iterable[str]) -> dict[str, Any] | None:
    """Its name, and its metrics on some parts as a history has them; None where the loss is of the user's own.

    >>> from fedax.models import model
    >>> clients = Federation.from_clients([{"x": np.zeros((4, 1)), "y": np.array([0, 0, 0, 1])}])
    >>> made = constant_predictor(Problem(model("linear", outputs=2), loss="cross_entropy"), clients, ["train"])
    >>> made["name"], made["values"]["train_accuracy"]
    ('Majority class', 0.75)
    """
    y = federation.arrays.get("y")
    if y is None or problem.builtin is None or problem.model is None:
        return None
    if problem.builtin in CLASSES and y.ndim > 1:
        return None  # a label for each position
    outputs = 1 if problem.builtin == "logistic" else int(y.max()) + 1
    outputs = max(outputs, getattr(problem.model, "outputs", outputs) if problem.builtin == "cross_entropy" else 0)
    whole = _constant(problem.builtin, y[_rows(federation.train)], outputs)
    values: dict[str, float] = {}
    for part in parts:
        rows = federation.part(part)
        index = _rows(rows)
        if not len(index):
            continue
        z = np.broadcast_to(whole, (len(index), *whole.shape))
        values |= {f"{part}_{name}": value for name, value in _measure(problem, z, y[index]).items()}
        if federation.clients > 1:
            own = [_constant(problem.builtin, y[federation.train.of(i)], outputs) for i in range(federation.clients)]
            z = np.concatenate([np.broadcast_to(c, (n, *c.shape)) for c, n in zip(own, rows.count, strict=True)])
            mine = np.concatenate([np.arange(s, s + n) for s, n in zip(rows.start, rows.count, strict=True)])
            values |= {f"personal_{part}_{name}": value for name, value in _measure(problem, z, y[mine]).items()}
    return {"name": "Majority class" if problem.builtin in CLASSES else "Mean", "values": values}


def _rows(rows: Rows) -> Array:
    """The row numbers of all clients, each once."""
    ranges = {(int(s), int(n)) for s, n in zip(rows.start, rows.count, strict=True) if n}
    return np.unique(np.concatenate([np.arange(s, s + n) for s, n in ranges])) if ranges else np.zeros(0, np.int64)


def _constant(loss: str, y: Array, outputs: int) -> Array:
    """The outputs of the best constant, of shares that count one further row of each class."""
    if loss not in CLASSES:
        mean: Array = np.asarray(y, np.float64).reshape(len(y), -1).mean(axis=0)
        return mean
    if loss == "logistic":
        ones = float((y > 0).sum())
        return np.array([np.log((ones + 1) / (len(y) - ones + 1))])
    counts = np.bincount(y, minlength=outputs) + 1.0
    made: Array = np.log(counts / counts.sum())
    return made


def _measure(problem: Problem, z: Array, y: Array) -> dict[str, float]:
    import jax.numpy as jnp

    loss, right = row_loss(str(problem.builtin))
    outputs, labels = jnp.asarray(z), jnp.asarray(y)
    found = {}
    for name, metric in problem.metrics.items():
        if name == "loss":
            value = float(jnp.mean(loss(outputs, labels)))
        elif name == "accuracy":
            value = float(jnp.mean(right(outputs, labels))) if right is not None else np.nan
        else:
            value = metric.of(metric.rows(outputs, labels))
        if np.isfinite(value):
            found[name] = value
    return found
