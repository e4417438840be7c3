"""Regularizers of a matrix through its singular values; each selected leaf is a matrix of its own.

A function of X = U diag(s) V' that keeps the singular vectors is X V diag(w(s)) V' for some factors w. In single
precision V and s come from the eigenvalues of X'X, taken in double precision: that is faster than a singular
value decomposition, and nearer the truth, since squaring costs half of twice the digits. In double precision
the lost digits would be missed, so there it is the singular value decomposition.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedax.errors import FedaxError
from fedax.regularizers.base import Penalty, Regularizer
from fedax.regularizers.constraints import Ball, to_simplex
from fedax.regularizers.norms import shrink
from fedax.regularizers.precision import epsilon, in_double

Factors = Callable[[jax.Array, Any], jax.Array]


def spectral(factors: Factors, a: jax.Array, t: Any) -> jax.Array:
    """U diag(s w) V' for a = U diag(s) V' and w = factors(s, t), a function defined at a module's top level."""
    if a.shape[0] < a.shape[1]:
        return spectral(factors, a.T, t).T
    t = jnp.asarray(t, a.dtype)
    if a.dtype == jnp.float64:
        u, s, vt = jnp.linalg.svd(a, full_matrices=False)
        return (u * (s * factors(s, t))) @ vt
    return in_double(_by_gram(factors))(a, t)


@functools.cache
def _by_gram(factors: Factors) -> Callable[..., jax.Array]:
    def function(a: jax.Array, t: jax.Array) -> jax.Array:
        squares, v = jnp.linalg.eigh(a.T @ a, symmetrize_input=False)
        s = jnp.sqrt(jnp.maximum(squares, 0))
        result: jax.Array = a @ ((v * factors(s, t)) @ v.T)
        return result

    return function


def _to_ball(s: jax.Array, radius: Any) -> jax.Array:
    inside = jnp.sum(s) <= radius
    (projected,) = to_simplex([s], radius)
    return jnp.where(inside, 1, projected / jnp.where(s > 0, s, 1))


def _signs(s: jax.Array, tolerance: Any) -> jax.Array:
    positive = s > tolerance * jnp.max(s)
    return jnp.where(positive, 1 / jnp.where(positive, s, 1), 0)


def _check_matrix(psi: Regularizer, path: str, a: Any) -> None:
    if len(a.shape) != 2:
        raise FedaxError(
            f"{psi.name} acts on matrices, but leaf {path!r} has shape {tuple(a.shape)}: choose the matrices with on="
        )


@dataclasses.dataclass(frozen=True)
class Nuclear(Penalty):
    """psi(X) = strength * sum of the singular values of X, summed over the selected leaves, each a matrix.

    Its prox lowers each singular value by t * strength and stops at 0, which lowers the rank.

    >>> from fedax import Vector
    >>> Nuclear(1.0).prox(Vector(jnp.array([[3.0, 0.0], [0.0, 0.5]])), 2.0).tree.tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """

    def check_leaf(self, path: str, a: Any) -> None:
        _check_matrix(self, path, a)

    def leaf_value(self, a: jax.Array) -> jax.Array:
        return self.strength * jnp.sum(jnp.linalg.svd(a, compute_uv=False))

    def leaf_prox(self, a: jax.Array, t: Any) -> jax.Array:
        return spectral(shrink, a, t * self.strength)

    def leaf_subgradient(self, a: jax.Array) -> jax.Array:
        tolerance = max(a.shape) * epsilon(a.dtype)  # numpy.linalg.matrix_rank's
        return self.strength * spectral(_signs, a, tolerance)


@dataclasses.dataclass(frozen=True)
class NuclearBall(Ball):
    """The singular values of each selected leaf, a matrix, sum to at most the radius.

    >>> from fedax import Vector
    >>> NuclearBall(1.0).prox(Vector(jnp.array([[1.0, 0.0], [0.0, 0.5]])), 1.0).tree.tolist()
    [[0.75, 0.0], [0.0, 0.25]]
    """

    def check_leaf(self, path: str, a: Any) -> None:
        _check_matrix(self, path, a)

    def leaf_project(self, a: jax.Array) -> jax.Array:
        return spectral(_to_ball, a, self.radius)
