"""Norms and squared norms."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

import fedax.lazy_optax as optax
from fedax.errors import FedaxError
from fedax.regularizers.base import Leaves, Penalty, Regularizer, require


def soft(a: jax.Array, t: Any) -> jax.Array:
    """Soft thresholding: each entry moves towards 0 by t and stops there."""
    return jnp.sign(a) * jnp.maximum(jnp.abs(a) - t, 0)


def shrink(length: jax.Array, t: Any) -> jax.Array:
    """The factor that shortens a block of a given Euclidean length by t, and 0 for a block no longer than t."""
    beyond = length > t
    return jnp.where(beyond, 1 - t / jnp.where(beyond, length, 1), 0)


@dataclasses.dataclass(frozen=True)
class L1(Penalty):
    """psi(x) = strength * sum |x_j|; its prox is soft thresholding.

    >>> from fedax import Vector
    >>> L1(1.0).prox(Vector(jnp.array([3.0, -0.5])), 2.0).tree.tolist()
    [1.0, -0.0]
    """

    def leaf_value(self, a: jax.Array) -> jax.Array:
        return self.strength * jnp.sum(jnp.abs(a))

    def leaf_prox(self, a: jax.Array, t: Any) -> jax.Array:
        return soft(a, t * self.strength)

    def leaf_subgradient(self, a: jax.Array) -> jax.Array:
        return self.strength * jnp.sign(a)


@dataclasses.dataclass(frozen=True)
class L2(Penalty):
    """psi(x) = strength * ||x||, the norm (not its square) of all selected leaves as one vector.

    Its prox shortens the vector by t * strength, to exactly 0 if it was no longer than that. For one norm a
    leaf, add an L2 for each; for one a row or column, see GroupLasso.

    >>> from fedax import Vector
    >>> L2(1.0).prox(Vector({"v": jnp.array([3.0]), "w": jnp.array([4.0])}), 2.5).tree
    {'v': Array([1.5], dtype=float32), 'w': Array([2.], dtype=float32)}
    """

    def joint_value(self, leaves: Leaves) -> jax.Array:
        length: jax.Array = optax.tree.norm(leaves)
        return self.strength * length

    def joint_prox(self, leaves: Leaves, t: Any) -> Leaves:
        factor = shrink(optax.tree.norm(leaves), t * self.strength)
        return [a * factor.astype(a.dtype) for a in leaves]

    def joint_subgradient(self, leaves: Leaves) -> Leaves:
        length = optax.tree.norm(leaves)
        factor = jnp.where(length > 0, self.strength / jnp.where(length > 0, length, 1), 0)
        return [a * factor.astype(a.dtype) for a in leaves]


@dataclasses.dataclass(frozen=True)
class SquaredL2(Penalty):
    """psi(x) = strength / 2 * sum x_j^2, the ridge penalty.

    >>> from fedax import Vector
    >>> float(SquaredL2(1.0).value(Vector(jnp.array([3.0, 4.0]))))
    12.5
    """

    smooth = True

    def leaf_value(self, a: jax.Array) -> jax.Array:
        return self.strength / 2 * jnp.sum(a**2)

    def leaf_prox(self, a: jax.Array, t: Any) -> jax.Array:
        shrunk: jax.Array = a / (1 + t * self.strength)
        return shrunk

    def leaf_subgradient(self, a: jax.Array) -> jax.Array:
        return self.strength * a


@dataclasses.dataclass(frozen=True)
class ElasticNet(Regularizer):
    """psi(x) = l1 * sum |x_j| + l2 / 2 * sum x_j^2; its prox is soft thresholding, then shrinking.

    >>> from fedax import Vector
    >>> ElasticNet(1.0, 1.0).prox(Vector(jnp.array([3.0, -0.5])), 1.0).tree.tolist()
    [1.0, -0.0]
    """

    l1: float
    l2: float

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("l1", "l2"):
            require(self, field, "[0, inf)", lambda v: 0 <= v < float("inf"))

    def leaf_value(self, a: jax.Array) -> jax.Array:
        return self.l1 * jnp.sum(jnp.abs(a)) + self.l2 / 2 * jnp.sum(a**2)

    def leaf_prox(self, a: jax.Array, t: Any) -> jax.Array:
        shrunk: jax.Array = soft(a, t * self.l1) / (1 + t * self.l2)
        return shrunk

    def leaf_subgradient(self, a: jax.Array) -> jax.Array:
        return self.l1 * jnp.sign(a) + self.l2 * a


@dataclasses.dataclass(frozen=True)
class AlongAxis(Penalty):
    """A penalty for which one axis of each leaf is not like the others."""

    axis: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.axis, bool) or not isinstance(self.axis, int):
            raise FedaxError(f"{self.name}: axis must be a whole number, not {self.axis!r}")

    def check_leaf(self, path: str, a: Any) -> None:
        if not -len(a.shape) <= self.axis < len(a.shape):
            raise FedaxError(f"{self.name}: leaf {path!r} of shape {tuple(a.shape)} has no axis {self.axis}")


@dataclasses.dataclass(frozen=True)
class GroupLasso(AlongAxis):
    """psi(x) = strength * sum over groups g of ||x_g||, which zeroes whole groups.

    axis: the axis of each leaf that numbers its groups. In a kernel of shape (inputs, outputs), 0 (the default)
        makes a group of each input feature and -1 one of each neuron. Groups of leaves of different sizes
        weigh the same; for the weights sqrt(size), add one GroupLasso a leaf.

    >>> from fedax import Vector
    >>> GroupLasso(1.0).prox(Vector(jnp.array([[3.0, 4.0], [0.3, 0.4]])), 2.5).tree.tolist()
    [[1.5, 2.0], [0.0, 0.0]]
    """

    def _lengths(self, a: jax.Array) -> jax.Array:
        others = tuple(i for i in range(a.ndim) if i != self.axis % a.ndim)
        return jnp.sqrt(jnp.sum(a**2, axis=others, keepdims=True))

    def leaf_value(self, a: jax.Array) -> jax.Array:
        return self.strength * jnp.sum(self._lengths(a))

    def leaf_prox(self, a: jax.Array, t: Any) -> jax.Array:
        return a * shrink(self._lengths(a), t * self.strength)

    def leaf_subgradient(self, a: jax.Array) -> jax.Array:
        lengths = self._lengths(a)
        return self.strength * a / jnp.where(lengths > 0, lengths, 1)
