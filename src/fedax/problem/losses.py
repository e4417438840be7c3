"""Losses by name: one number a row, and whether the row was predicted rightly.

cross_entropy   outputs [rows, classes] or [rows, positions, classes], a label 0 .. classes-1 for each
logistic        one output a row, labels 0/1 or -1/+1:  log(1 + exp(-y z))
squared         (output - y)^2 / 2, summed over outputs
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedax.errors import unknown
from fedax.outside import is_outside, load

RowLoss = Callable[[Any, Any], jax.Array]


def cross_entropy(z: jax.Array, y: jax.Array) -> jax.Array:
    """-log softmax(z)[y] for each row, the mean over its positions where a row has several.

    >>> cross_entropy(jnp.zeros((1, 4)), jnp.array([2])).round(3).tolist()
    [1.3860000371932983]
    """
    chosen = jnp.take_along_axis(z, y.astype(jnp.int32)[..., None], axis=-1)[..., 0]
    return _a_row(jax.nn.logsumexp(z, axis=-1) - chosen)


def _a_row(values: jax.Array) -> jax.Array:
    """One number a row: the mean over a row's positions, where it has several."""
    return values if values.ndim == 1 else jnp.mean(values.reshape(values.shape[0], -1), axis=-1)


def logistic(z: jax.Array, y: jax.Array) -> jax.Array:
    """log(1 + exp(-s z)) for each row, with the sign s = +1 where y > 0 and -1 elsewhere.

    >>> logistic(jnp.zeros((2, 1)), jnp.array([0, 1])).round(3).tolist()
    [0.6930000185966492, 0.6930000185966492]
    """
    z = z.reshape(z.shape[0])
    return jax.nn.softplus(jnp.where(y > 0, -z, z))


def squared(z: jax.Array, y: jax.Array) -> jax.Array:
    """(z - y)^2 / 2 for each row, summed over outputs.

    >>> squared(jnp.array([[3.0]]), jnp.array([1.0])).tolist()
    [2.0]
    """
    difference = z.reshape(z.shape[0], -1) - y.reshape(y.shape[0], -1)
    return jnp.sum(difference**2, axis=-1) / 2


def mse(z: jax.Array, y: jax.Array) -> jax.Array:
    """(z - y)^2 for each row, summed over outputs.

    >>> mse(jnp.array([[3.0]]), jnp.array([1.0])).tolist()
    [4.0]
    """
    return 2 * squared(z, y)


def _argmax(z: jax.Array, y: jax.Array) -> jax.Array:
    right = jnp.argmax(z, axis=-1) == y
    return right if right.ndim == 1 else _a_row(right.astype(z.dtype))


def _sign(z: jax.Array, y: jax.Array) -> jax.Array:
    return (z.reshape(z.shape[0]) > 0) == (y > 0)


#: name -> (loss of a row, whether a row is right or None where that has no meaning)
LOSSES: dict[str, tuple[RowLoss, RowLoss | None]] = {
    "cross_entropy": (cross_entropy, _argmax),
    "logistic": (logistic, _sign),
    "squared": (squared, None),
    "mse": (mse, None),
}


def row_loss(name: str) -> tuple[RowLoss, RowLoss | None]:
    """A loss of `LOSSES`, or a function (outputs, y) of one number a row by "mymodule:my_loss" or "file.py:my_loss".

    >>> row_loss("fedax.problem.losses:mse")[0](jnp.array([[3.0]]), jnp.array([1.0])).tolist()
    [4.0]
    """
    if is_outside(name):
        check = lambda found: callable(found) and not isinstance(found, type)  # noqa: E731
        return load(name, "loss", check, "it must be a function of (outputs, y) that gives one number a row"), None
    if name not in LOSSES:
        raise unknown("loss", name, LOSSES)
    return LOSSES[name]
