"""Losses by name: one number for each row, and whether the row was predicted correctly.

cross_entropy   outputs [rows, classes] or [rows, positions, classes], a label 0 .. classes-1 for each; positions whose
                label is -100 are left out. Outputs [rows, classes, positions], as PyTorch has them, are taken too.
next_token      cross_entropy of each position's outputs and the next position's label
logistic        one output a row, labels 0/1 or -1/+1:  log(1 + exp(-y z))
squared         (output - y)^2 / 2, summed over outputs
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedax.errors import FedaxError, unknown
from fedax.outside import is_outside, load

LEFT_OUT = -100  # the label of a position that does not count, as in PyTorch
RowLoss = Callable[[Any, Any], jax.Array]
#: PyTorch's losses, and their counterparts
PYTORCHS = {
    "CrossEntropyLoss": "cross_entropy",
    "cross_entropy": "cross_entropy",
    "BCEWithLogitsLoss": "logistic",
    "binary_cross_entropy_with_logits": "logistic",
    "MSELoss": "mse",
    "mse_loss": "mse",
}


def cross_entropy(z: jax.Array, y: jax.Array) -> jax.Array:
    """-log softmax(z)[y] for each row, the mean over its positions where a row has several.

    >>> cross_entropy(jnp.zeros((1, 4)), jnp.array([2])).round(3).tolist()
    [1.3860000371932983]
    >>> cross_entropy(jnp.zeros((1, 3, 4)), jnp.array([[2, 0, -100]])).round(3).tolist()
    [1.3860000371932983]
    """
    z, label = classes_last(z, y), y.astype(jnp.int32)
    chosen = jnp.take_along_axis(z, jnp.maximum(label, 0)[..., None] if label.ndim > 1 else label[..., None], axis=-1)
    return _a_row(jax.nn.logsumexp(z, axis=-1) - chosen[..., 0], label)


def classes_last(z: Any, y: Any) -> Any:
    """Outputs with their classes as the last axis; with classes as the second, as in PyTorch, if only that fits y.

    >>> classes_last(jnp.zeros((1, 7, 3, 4)), jnp.zeros((1, 3, 4))).shape
    (1, 3, 4, 7)
    """
    second = z.shape[:-1] != y.shape and z.shape[:1] + z.shape[2:] == y.shape
    return jnp.moveaxis(z, 1, -1) if second else z


def _a_row(values: jax.Array, label: jax.Array) -> jax.Array:
    """One number a row: the mean over a row's positions, where it has several, without those that are left out."""
    if values.ndim == 1:
        return values
    values, counted = (a.reshape(a.shape[0], -1) for a in (values, label != LEFT_OUT))
    return jnp.sum(jnp.where(counted, values, 0), axis=-1) / jnp.maximum(jnp.sum(counted, axis=-1), 1)


def aligned(z: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The outputs of all positions but the last, and the labels that come next.

    >>> aligned(jnp.zeros((1, 3, 4)), jnp.array([[7, 8, 9]]))[1].tolist()
    [[8, 9]]
    """
    return z[:, :-1], y[:, 1:]


def next_token(z: jax.Array, y: jax.Array) -> jax.Array:
    """-log softmax(z_t)[y_(t+1)] for each row, the mean over its positions t; y may be the tokens themselves.

    >>> next_token(jnp.zeros((1, 3, 4)), jnp.array([[2, 0, -100]])).round(3).tolist()
    [1.3860000371932983]
    """
    return cross_entropy(*aligned(z, y))


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
    right = jnp.argmax(classes_last(z, y), axis=-1) == y
    return right if right.ndim == 1 else _a_row(right.astype(z.dtype), y)


def _sign(z: jax.Array, y: jax.Array) -> jax.Array:
    return (z.reshape(z.shape[0]) > 0) == (y > 0)


#: name -> (loss of a row, whether a row is right or None where that has no meaning)
LOSSES: dict[str, tuple[RowLoss, RowLoss | None]] = {
    "cross_entropy": (cross_entropy, _argmax),
    "next_token": (next_token, lambda z, y: _argmax(*aligned(z, y))),
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


def refuse_pytorchs(loss: Any) -> None:
    """Refuse a loss that is PyTorch's, and name its counterpart.

    >>> refuse_pytorchs(mse)
    """
    name = getattr(loss, "__name__", type(loss).__name__)
    home = getattr(loss, "__module__", None) or type(loss).__module__
    if not home.startswith("torch."):
        return
    own = "give a function of (outputs, y) that gives one number a row"
    advice = f"give its counterpart, loss={PYTORCHS[name]!r}" if name in PYTORCHS else own
    raise FedaxError(f"loss is PyTorch's {name}, and losses are computed in JAX: {advice}")
