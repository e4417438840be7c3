"""Entries chosen and replaced by their numbers; sorting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedax.errors import FedaxError
from fedax.models.torch.registry import operation

Pair = tuple[jax.Array, jax.Array]


@operation("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(x: jax.Array, places: Sequence[jax.Array | None]) -> jax.Array:
    """x[places], where None takes the whole axis."""
    return x[_key(places)]


@operation("aten.index_put.default", "aten._unsafe_index_put.default", "aten._index_put_impl.default")
def index_put(x: jax.Array, places: Sequence[jax.Array | None], values: Any, accumulate: bool = False) -> jax.Array:
    """x with x[places] replaced, or added to.

    >>> index_put(jnp.zeros(3), [jnp.array([True, False, True])], jnp.array(2.0)).tolist()
    [2.0, 0.0, 2.0]
    """
    masks = [place for place in places if place is not None and place.dtype == jnp.bool_]
    if masks:
        if len(places) > 1 or jnp.ndim(values) > x.ndim - masks[0].ndim:
            raise FedaxError("entries chosen by a mask get different values: write it with torch.where")
        mask = masks[0].reshape(*masks[0].shape, *([1] * (x.ndim - masks[0].ndim)))
        return jnp.where(mask, (x + values if accumulate else values).astype(x.dtype), x)
    at, values = x.at[_key(places)], jnp.asarray(values, x.dtype)
    return at.add(values) if accumulate else at.set(values)


def _key(places: Sequence[jax.Array | None]) -> tuple[Any, ...]:
    return tuple(slice(None) if place is None else place for place in places)


@operation("aten.index_select.default")
def index_select(x: jax.Array, axis: int, places: jax.Array) -> jax.Array:
    """Parts along an axis by their numbers."""
    return jnp.take(x, places, axis) if x.ndim else x


@operation("aten.gather.default")
def gather(x: jax.Array, axis: int, places: jax.Array, sparse_grad: bool = False) -> jax.Array:
    """For each place an entry along an axis; the other axes of the places may be shorter than those of x."""
    return x[_along(x, axis, places)]


def _along(x: jax.Array, axis: int, places: jax.Array) -> tuple[jax.Array, ...]:
    """Where PyTorch's gather and scatter look: the place itself on all axes but one."""
    axis %= max(x.ndim, 1)
    return tuple(places if i == axis else lax.broadcasted_iota(jnp.int32, places.shape, i) for i in range(places.ndim))


@operation("aten.scatter.src", "aten.scatter.value")
def scatter(x: jax.Array, axis: int, places: jax.Array, values: Any) -> jax.Array:
    """x with one entry along an axis replaced for each place."""
    return x.at[_along(x, axis, places)].set(_cut(values, places, x))


@operation("aten.scatter_add.default")
def scatter_add(x: jax.Array, axis: int, places: jax.Array, values: jax.Array) -> jax.Array:
    """x with values added to one entry along an axis for each place."""
    return x.at[_along(x, axis, places)].add(_cut(values, places, x))


@operation("aten.scatter.reduce", "aten.scatter.value_reduce")
def scatter_combined(x: jax.Array, axis: int, places: jax.Array, values: Any, reduce: str = "add") -> jax.Array:
    """As scatter_add, or multiplied."""
    at = x.at[_along(x, axis, places)]
    return at.add(_cut(values, places, x)) if reduce == "add" else at.multiply(_cut(values, places, x))


@operation("aten.scatter_reduce.two")
def scatter_reduce(
    x: jax.Array, axis: int, places: jax.Array, values: jax.Array, reduce: str, include_self: bool = True
) -> jax.Array:
    """The sum, product, mean or extreme of what falls on each entry, and of the entry itself if it is included."""
    key, values = _along(x, axis, places), _cut(values, places, x)
    start = {"sum": 0, "mean": 0, "prod": 1, "amax": -jnp.inf, "amin": jnp.inf}[reduce]
    touched = jnp.zeros(x.shape, bool).at[key].set(True)
    base = x if include_self else jnp.where(touched, jnp.asarray(start, x.dtype), x)
    if reduce in ("amax", "amin"):
        return base.at[key].max(values) if reduce == "amax" else base.at[key].min(values)
    if reduce == "prod":
        return base.at[key].multiply(values)
    sums = base.at[key].add(values)
    if reduce == "sum":
        return sums
    count = jnp.full(x.shape, float(include_self), x.dtype).at[key].add(1.0)
    return sums / jnp.where(touched, count, 1.0)


def _cut(values: Any, places: jax.Array, x: jax.Array) -> jax.Array:
    """The values that places are for: PyTorch allows more of them."""
    given: jax.Array = jnp.asarray(values, x.dtype)
    return given[tuple(slice(n) for n in places.shape)] if given.ndim else given


@operation("aten.index_add.default")
def index_add(x: jax.Array, axis: int, places: jax.Array, values: jax.Array, alpha: Any = 1) -> jax.Array:
    """x with values added to parts along an axis."""
    return x.at[(slice(None),) * (axis % x.ndim) + (places,)].add((alpha * values).astype(x.dtype))


@operation("aten.index_copy.default")
def index_copy(x: jax.Array, axis: int, places: jax.Array, values: jax.Array) -> jax.Array:
    """x with parts along an axis replaced."""
    return x.at[(slice(None),) * (axis % x.ndim) + (places,)].set(values.astype(x.dtype))


@operation("aten.sort.default")
def sort(x: jax.Array, dim: int = -1, descending: bool = False) -> Pair:
    """The entries in order along an axis, and where they were.

    >>> [a.tolist() for a in sort(jnp.array([2.0, 3.0, 1.0]), 0, True)]
    [[3.0, 2.0, 1.0], [1, 0, 2]]
    """
    order = jnp.argsort(x, dim, stable=True, descending=descending)
    return jnp.take_along_axis(x, order, dim), order


@operation("aten.sort.stable")
def sort_stable(x: jax.Array, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Pair:
    """As sort, which keeps equal entries in their order anyway."""
    return sort(x, dim, descending)


@operation("aten.topk.default")
def topk(x: jax.Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Pair:
    """The k largest or smallest entries along an axis, and where they were."""
    order = lax.slice_in_dim(jnp.argsort(x, dim, stable=True, descending=largest), 0, k, axis=dim % x.ndim)
    return jnp.take_along_axis(x, order, dim), order
