"""Norms and squared norms."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from fedax.regularizers.base import Regularizer


@dataclasses.dataclass(frozen=True)
class L1(Regularizer):
    """psi(x) = strength * sum |x_j|; its prox is soft thresholding.

    >>> from fedax import Vector
    >>> L1(1.0).prox(Vector(jnp.array([3.0, -0.5])), 2.0).tree.tolist()
    [1.0, -0.0]
    """

    def leaf_value(self, a: jax.Array) -> jax.Array:
        return self.strength * jnp.sum(jnp.abs(a))

    def leaf_prox(self, a: jax.Array, t: Any) -> jax.Array:
        return jnp.sign(a) * jnp.maximum(jnp.abs(a) - t * self.strength, 0)

    def leaf_subgradient(self, a: jax.Array) -> jax.Array:
        return self.strength * jnp.sign(a)


@dataclasses.dataclass(frozen=True)
class SquaredL2(Regularizer):
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
