"""Regularizers of a matrix through its singular values; each selected leaf is a matrix of its own.

The singular value decomposition is LAPACK's. For 32 x 32 matrices on a CPU the eigenvalues of X'X are found in less
than two thirds of its time, but they hold half of the digits: with small thresholds, an error of 1e-4 in single
precision. In double precision they are exact again, and take as long.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap

from fedax.errors import FedaxError
from fedax.regularizers.base import Penalty, Regularizer, epsilon
from fedax.regularizers.constraints import Ball, to_simplex
from fedax.regularizers.norms import soft

# LAPACK is called for one matrix at a time: for a batch, jaxlib hands its calls to the threads that devices also
# wait on for each other's sums, and with one device a core they can wait for ever.
# It gets zeros in place of NaN and infinity, about which it would complain on the screen.
_svd: Callable[..., Any] = sequential_vmap(lambda a: tuple(jnp.linalg.svd(_finite(a), full_matrices=False)))
_singular_values: Callable[..., Any] = sequential_vmap(lambda a: jnp.linalg.svd(_finite(a), compute_uv=False))


def _finite(a: jax.Array) -> jax.Array:
    return jnp.where(jnp.all(jnp.isfinite(a)), a, 0)


def _spectral(change: Callable[[jax.Array], jax.Array], a: jax.Array) -> jax.Array:
    """The matrix with the singular vectors of a and changed singular values: U diag(change(s)) V'."""
    u, s, vt = _svd(a)
    changed: jax.Array = (u * change(s)) @ vt
    return jnp.where(jnp.all(jnp.isfinite(a)), changed, jnp.nan)


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
        return self.strength * jnp.sum(_singular_values(a))

    def leaf_prox(self, a: jax.Array, t: Any) -> jax.Array:
        return _spectral(lambda s: soft(s, t * self.strength), a)

    def leaf_subgradient(self, a: jax.Array) -> jax.Array:
        rounding = max(a.shape) * epsilon(a.dtype)  # below it numpy.linalg.matrix_rank sees a zero
        return self.strength * _spectral(lambda s: jnp.where(s > rounding * jnp.max(s), 1, 0), a)


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
        u, s, vt = _svd(a)
        (shrunk,) = to_simplex([s], self.radius)
        return jnp.where(jnp.sum(s) <= self.radius, a, (u * shrunk) @ vt)
