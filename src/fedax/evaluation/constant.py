"""The constant predictor: what a model must beat to have learnt anything.

It gives every row the same outputs: of classes the log of their shares in the training rows, so that it predicts the
majority and its loss is the best that a constant can have; of numbers their mean. Personal models are compared with a
constant of each client, from the client's own training rows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fedax.data.federation import Federation, Rows
from fedax.problem import Problem
from fedax.problem.losses import row_loss

Array = np.ndarray[Any, Any]
CLASSES = ("cross_entropy", "next_token", "logistic")
MOST = 500  # clients with a constant each
Constant = dict[str, Any]
#: what was found, for as long as its federation and problem live: the runs of a comparison share it
_FOUND: WeakKeyDictionary[Federation, WeakKeyDictionary[Problem, dict[Any, Constant | None]]] = WeakKeyDictionary()


def constant_predictor(
    problem: Problem, federation: Federation, parts: Iterable[str], *, personal: bool = False
) -> Constant | None:
    """The constant's name, and its metrics on some parts as a history has them; None for a loss of the user's own.

    personal: also give the metrics of one constant for each client.

    >>> from fedax.models import model
    >>> clients = Federation.from_clients([{"x": np.zeros((4, 1)), "y": np.array([0, 0, 0, 1])}])
    >>> made = constant_predictor(Problem(model("linear", outputs=2), loss="cross_entropy"), clients, ["train"])
    >>> made["name"], made["values"]["train_accuracy"]
    ('Majority class', 0.75)
    """
    found = _FOUND.setdefault(federation, WeakKeyDictionary()).setdefault(problem, {})
    asked = tuple(parts), personal
    if asked not in found:
        found[asked] = _predictor(problem, federation, *asked)
    return copy.deepcopy(found[asked])


def _predictor(problem: Problem, federation: Federation, parts: Iterable[str], personal: bool) -> Constant | None:
    y = federation.arrays.get("y")
    if y is None or problem.builtin is None or problem.model is None:
        return None
    if problem.builtin in CLASSES and (y.ndim > 1 or y.dtype.kind not in "biuf"):
        return None  # a label for each position
    outputs = max(int(y.max()) + 1, problem.outputs_per_row or 1) if problem.builtin == "cross_entropy" else 1
    whole = _constant(problem.builtin, y[_rows(federation.train)], outputs)
    values: dict[str, float] = {}
    for part in parts:
        rows = federation.part(part)
        if not rows.count.any():
            continue
        values |= _measure(f"{part}_", problem, [(whole, y[_rows(rows)])])
        if personal and 1 < federation.clients <= MOST:
            mine = [i for i in range(federation.clients) if rows.count[i]]
            own = [(_constant(problem.builtin, y[federation.train.of(i)], outputs), y[rows.of(i)]) for i in mine]
            values |= _measure(f"personal_{part}_", problem, own)
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


def _measure(prefix: str, problem: Problem, held: Sequence[tuple[Array, Array]]) -> dict[str, float]:
    """The metrics of constants on some rows each: (outputs, labels); the records of equal labels are computed once."""
    import jax.numpy as jnp

    loss, right = row_loss(str(problem.builtin))
    own: dict[str, Callable[[Any, Any], Any] | None] = {"loss": loss, "accuracy": right}
    found = [np.unique(labels, return_inverse=True, axis=0) for _, labels in held]
    ends = np.cumsum([len(known) for known, _ in found])
    z = jnp.asarray(
        np.concatenate([np.broadcast_to(c, (len(k), *c.shape)) for (c, _), (k, _) in zip(held, found, strict=True)])
    )
    y = jnp.asarray(np.concatenate([known for known, _ in found]))
    values: dict[str, float] = {}
    for name, metric in problem.metrics.items():
        rows = own.get(name, metric.rows)
        if rows is None:
            continue
        each = np.split(
            np.asarray(rows(z, y), np.float64), ends[:-1]
        )  # one call for all: it goes operation by operation
        parts = [metric.statistic_of(records[of.ravel()]) for records, (_, of) in zip(each, found, strict=True)]
        value = metric.merged(parts)
        if np.isfinite(value):
            values[f"{prefix}{name}"] = value
    return values
