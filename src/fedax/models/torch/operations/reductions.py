"""Sums, means, extremes and norms along axes; running sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedax.models.torch.operations.elementwise import absolute
from fedax.models.torch.registry import operation

Axes = int | Sequence[int] | None
Pair = tuple[jax.Array, jax.Array]


def axes_of(dim: Axes) -> int | tuple[int, ...] | None:
    """PyTorch's axes for JAX: none, and an empty list, mean all of them.

    >>> axes_of([0, 1]), axes_of([]), axes_of(-1)
    ((0, 1), None, -1)
    """
    return dim if dim is None or isinstance(dim, int) else tuple(dim) or None


def _along(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduced(x: jax.Array, dim: Axes = None, keepdim: bool = False, dtype: Any = None) -> jax.Array:
        x = x if dtype is None else x.astype(dtype)
        found: jax.Array = function(x, axes_of(dim), keepdims=keepdim)
        return found

    return reduced


operation("aten.sum.dim_IntList")(_along(jnp.sum))
operation("aten.mean.dim")(_along(jnp.mean))
operation("aten.prod.dim_int")(_along(jnp.prod))
operation("aten.amax.default")(_along(jnp.max))
operation("aten.amin.default")(_along(jnp.min))
operation("aten.any.dim", "aten.any.dims", "aten.any.default")(_along(jnp.any))
operation("aten.all.dim", "aten.all.dims", "aten.all.default")(_along(jnp.all))
operation("aten.logsumexp.default")(_along(jax.scipy.special.logsumexp))


@operation("aten.sum.default")
def total(x: jax.Array, dtype: Any = None) -> jax.Array:
    """The sum of all entries."""
    return jnp.sum(x, dtype=dtype)


@operation("aten.mean.default")
def mean(x: jax.Array, dtype: Any = None) -> jax.Array:
    """The mean of all entries."""
    return jnp.mean(x, dtype=dtype)


@operation("aten.prod.default")
def product_of_all(x: jax.Array, dtype: Any = None) -> jax.Array:
    """The product of all entries."""
    return jnp.prod(x, dtype=dtype)


@operation("aten.max.default")
def largest(x: jax.Array) -> jax.Array:
    """The largest of all entries."""
    return jnp.max(x)


@operation("aten.min.default")
def smallest(x: jax.Array) -> jax.Array:
    """The smallest of all entries."""
    return jnp.min(x)


@operation("aten.max.dim")
def max_along(x: jax.Array, dim: int, keepdim: bool = False) -> Pair:
    """The largest entries along an axis, and where they are: the gradient goes to that one."""
    return _picked(x, jnp.argmax(x, dim, keepdims=True), dim, keepdim)


@operation("aten.min.dim")
def min_along(x: jax.Array, dim: int, keepdim: bool = False) -> Pair:
    """The smallest entries along an axis, and where they are."""
    return _picked(x, jnp.argmin(x, dim, keepdims=True), dim, keepdim)


@operation("aten.argmax.default")
def argmax(x: jax.Array, dim: int | None = None, keepdim: bool = False) -> jax.Array:
    """Where the largest entry is."""
    return jnp.argmax(x, dim, keepdims=keepdim)


@operation("aten.argmin.default")
def argmin(x: jax.Array, dim: int | None = None, keepdim: bool = False) -> jax.Array:
    """Where the smallest entry is."""
    return jnp.argmin(x, dim, keepdims=keepdim)


@operation("aten.kthvalue.default")
def kth_smallest(x: jax.Array, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    """The k-th smallest entry along an axis, and where it is."""
    order = jnp.argsort(x, dim, stable=True)
    return _picked(x, lax.slice_in_dim(order, k - 1, k, axis=dim % x.ndim), dim, keepdim)


@operation("aten.median.dim")
def median_along(x: jax.Array, dim: int, keepdim: bool = False) -> Pair:
    """The median along an axis, the lower one of two, and where it is."""
    return kth_smallest(x, (x.shape[dim] + 1) // 2, dim, keepdim)


@operation("aten.median.default")
def median(x: jax.Array) -> jax.Array:
    """The median of all entries, the lower one of two."""
    return median_along(jnp.ravel(x), 0)[0]


def _picked(x: jax.Array, where: jax.Array, dim: int, keepdim: bool) -> Pair:
    value = jnp.take_along_axis(x, where, dim)
    return (value, where) if keepdim else (jnp.squeeze(value, dim), jnp.squeeze(where, dim))


@operation("aten.var.correction")
def variance(x: jax.Array, dim: Axes = None, correction: int | None = 1, keepdim: bool = False) -> jax.Array:
    """The variance, with the sum of squares divided by n - correction."""
    return jnp.var(x, axes_of(dim), ddof=1 if correction is None else int(correction), keepdims=keepdim)


@operation("aten.var_mean.correction")
def variance_and_mean(x: jax.Array, dim: Axes = None, correction: int | None = 1, keepdim: bool = False) -> Pair:
    """The variance and the mean."""
    return variance(x, dim, correction, keepdim), jnp.mean(x, axes_of(dim), keepdims=keepdim)


@operation("aten.linalg_vector_norm.default")
def vector_norm(x: jax.Array, p: float = 2, dim: Axes = None, keepdim: bool = False, dtype: Any = None) -> jax.Array:
    """The p-norm; its gradient at zero is zero, as in PyTorch.

    >>> jax.grad(vector_norm)(jnp.zeros(2)).tolist()
    [0.0, 0.0]
    """
    x = x if dtype is None else x.astype(dtype)
    axes, size = axes_of(dim), absolute(x)
    if p == float("inf"):
        return jnp.max(size, axes, keepdims=keepdim)
    if p == -float("inf"):
        return jnp.min(size, axes, keepdims=keepdim)
    if p == 0:
        return jnp.sum(size != 0, axes, keepdims=keepdim).astype(size.dtype)
    if p == 1:
        return jnp.sum(size, axes, keepdims=keepdim)
    powers = jnp.sum(x * x if p == 2 else size**p, axes, keepdims=keepdim)
    root = jnp.where(powers == 0, 1.0, powers)
    return jnp.where(powers == 0, 0.0, jnp.sqrt(root) if p == 2 else root ** (1 / p))


@operation("aten.dist.default")
def dist(a: jax.Array, b: jax.Array, p: float = 2) -> jax.Array:
    """The p-norm of a difference."""
    return vector_norm(a - b, p)


@operation("aten.cumsum.default")
def cumsum(x: jax.Array, dim: int, dtype: Any = None) -> jax.Array:
    """Running sums."""
    return jnp.cumsum(x, dim, dtype=dtype)


@operation("aten.cumprod.default")
def cumprod(x: jax.Array, dim: int, dtype: Any = None) -> jax.Array:
    """Running products."""
    return jnp.cumprod(x, dim, dtype=dtype)


@operation("aten.logcumsumexp.default")
def logcumsumexp(x: jax.Array, dim: int) -> jax.Array:
    """Logarithms of running sums of exponentials."""
    return lax.cumlogsumexp(x, dim % x.ndim)


@operation("aten.cummax.default")
def cummax(x: jax.Array, dim: int) -> Pair:
    """Running maxima, and where they are."""
    return _running(x, dim, lambda a, b: a >= b)


@operation("aten.cummin.default")
def cummin(x: jax.Array, dim: int) -> Pair:
    """Running minima, and where they are."""
    return _running(x, dim, lambda a, b: a <= b)


def _running(x: jax.Array, dim: int, at_least: Callable[[jax.Array, jax.Array], jax.Array]) -> Pair:
    """The best entry so far; among equals the last, as in PyTorch."""

    def better(left: Pair, right: Pair) -> Pair:
        later = at_least(right[0], left[0])
        return jnp.where(later, right[0], left[0]), jnp.where(later, right[1], left[1])

    where = lax.broadcasted_iota(jnp.int32, x.shape, dim % x.ndim)
    _, where = lax.associative_scan(better, (lax.stop_gradient(x), where), axis=dim % x.ndim)
    return jnp.take_along_axis(x, where, dim), where
