"""Views, joins, slices and padding; new arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedax.models.torch.registry import operation


@operation("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default", "aten.view_copy.default")
def reshape(x: jax.Array, shape: Sequence[int]) -> jax.Array:
    """The entries in another shape."""
    return x.reshape(shape)


@operation("aten.permute.default")
def permute(x: jax.Array, axes: Sequence[int]) -> jax.Array:
    """The axes in another order."""
    return jnp.transpose(x, axes)


@operation("aten.t.default")
def transpose(x: jax.Array) -> jax.Array:
    """Rows become columns."""
    return x.T


@operation("aten.transpose.int")
def swap_axes(x: jax.Array, first: int, second: int) -> jax.Array:
    """Two axes change places."""
    return jnp.swapaxes(x, first, second)


@operation("aten.unsqueeze.default")
def unsqueeze(x: jax.Array, axis: int) -> jax.Array:
    """A new axis of length one."""
    return jnp.expand_dims(x, axis)


@operation("aten.squeeze.dims", "aten.squeeze.dim")
def squeeze(x: jax.Array, axes: int | Sequence[int]) -> jax.Array:
    """Without those of the axes that have length one."""
    chosen = (axes,) if isinstance(axes, int) else axes
    return jnp.squeeze(x, tuple(axis for axis in chosen if x.ndim and x.shape[axis] == 1))


@operation("aten.squeeze.default")
def squeeze_all(x: jax.Array) -> jax.Array:
    """Without any axis of length one."""
    return jnp.squeeze(x)


@operation("aten.expand.default")
def expand(x: jax.Array, shape: Sequence[int], implicit: bool = False) -> jax.Array:
    """Repeated along new axes and those of length one; -1 leaves a length as it is."""
    new = len(shape) - x.ndim
    return jnp.broadcast_to(x, tuple(x.shape[i - new] if n == -1 else n for i, n in enumerate(shape)))


@operation("aten.repeat.default")
def repeat(x: jax.Array, times: Sequence[int]) -> jax.Array:
    """Copies side by side."""
    return jnp.tile(x, times)


@operation("aten.cat.default")
def concatenate(arrays: Sequence[jax.Array], axis: int = 0) -> jax.Array:
    """Arrays one after another; empty vectors do not count."""
    return jnp.concatenate([a for a in arrays if a.shape != (0,)] or arrays[:1], axis)


@operation("aten.stack.default")
def stack(arrays: Sequence[jax.Array], axis: int = 0) -> jax.Array:
    """Arrays along a new axis."""
    return jnp.stack(arrays, axis)


@operation("aten.split_with_sizes.default")
def split(x: jax.Array, sizes: Sequence[int], axis: int = 0) -> list[jax.Array]:
    """Pieces of given lengths."""
    return list(lax.split(x, sizes, axis % x.ndim))


@operation("aten.unbind.int")
def unbind(x: jax.Array, axis: int = 0) -> list[jax.Array]:
    """The parts along an axis."""
    return [lax.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis])]


@operation("aten.select.int")
def select(x: jax.Array, axis: int, number: int) -> jax.Array:
    """One part along an axis."""
    return lax.index_in_dim(x, number, axis, keepdims=False)


@operation("aten.slice.Tensor")
def take_slice(
    x: jax.Array, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> jax.Array:
    """Every so-many-th part of a range along an axis."""
    return x[(slice(None),) * (axis % x.ndim) + (slice(start, end, step),)]


@operation("aten.slice_scatter.default")
def put_slice(
    x: jax.Array, part: jax.Array, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> jax.Array:
    """The array with a range along an axis replaced."""
    return x.at[(slice(None),) * (axis % x.ndim) + (slice(start, end, step),)].set(part.astype(x.dtype))


@operation("aten.select_scatter.default")
def put_part(x: jax.Array, part: jax.Array, axis: int, number: int) -> jax.Array:
    """The array with one part along an axis replaced."""
    return x.at[(slice(None),) * (axis % x.ndim) + (number,)].set(part.astype(x.dtype))


@operation("aten.flip.default")
def flip(x: jax.Array, axes: Sequence[int]) -> jax.Array:
    """The other way round along axes."""
    return jnp.flip(x, axes)


@operation("aten.roll.default")
def roll(x: jax.Array, shifts: Sequence[int], axes: Sequence[int] = ()) -> jax.Array:
    """Shifted along axes; what leaves at one end comes back at the other."""
    return jnp.roll(x, tuple(shifts), tuple(axes)) if axes else jnp.roll(x, shifts[0])


@operation("aten.diagonal.default")
def diagonal(x: jax.Array, offset: int = 0, first: int = 0, second: int = 1) -> jax.Array:
    """A diagonal of two axes, as the last axis."""
    found: jax.Array = jnp.diagonal(x, offset, first, second)
    return found


@operation("aten.tril.default")
def lower(x: jax.Array, diagonal: int = 0) -> jax.Array:
    """The lower triangle."""
    return jnp.tril(x, diagonal)


@operation("aten.triu.default")
def upper(x: jax.Array, diagonal: int = 0) -> jax.Array:
    """The upper triangle."""
    return jnp.triu(x, diagonal)


@operation("aten.unfold.default")
def unfold(x: jax.Array, axis: int, size: int, step: int) -> jax.Array:
    """Windows along an axis, their entries as a new last axis.

    >>> unfold(jnp.arange(4), 0, 2, 1).tolist()
    [[0, 1], [1, 2], [2, 3]]
    """
    axis %= x.ndim
    last = x.shape[axis] - size + 1
    return jnp.stack([lax.slice_in_dim(x, i, i + last, step, axis) for i in range(size)], -1)


@operation("aten.constant_pad_nd.default")
def pad(x: jax.Array, widths: Sequence[int], value: float = 0.0) -> jax.Array:
    """Padded with a value; PyTorch gives the widths of the last axis first, and a negative one cuts."""
    edges = [(0, 0, 0)] * (x.ndim - len(widths) // 2) + [(low, high, 0) for low, high in _pairs(widths)]
    return lax.pad(x, jnp.asarray(value, x.dtype), edges)


@operation("aten.reflection_pad1d.default", "aten.reflection_pad2d.default", "aten.reflection_pad3d.default")
def reflect(x: jax.Array, widths: Sequence[int]) -> jax.Array:
    """Padded with its mirror image."""
    return _padded(x, widths, "reflect")


@operation("aten.replication_pad1d.default", "aten.replication_pad2d.default", "aten.replication_pad3d.default")
def replicate(x: jax.Array, widths: Sequence[int]) -> jax.Array:
    """Padded with its outermost entries."""
    return _padded(x, widths, "edge")


@operation("aten._pad_circular.default")
def wrap(x: jax.Array, widths: Sequence[int]) -> jax.Array:
    """Padded with what is at its other end."""
    return _padded(x, widths, "wrap")


def _pairs(widths: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(widths[::2], widths[1::2], strict=True))[::-1]


def _padded(x: jax.Array, widths: Sequence[int], mode: str) -> jax.Array:
    if min(widths) < 0:
        cut = [(max(-low, 0), max(-high, 0)) for low, high in _pairs(widths)]
        x = x[(..., *(slice(low, -high or None) for low, high in cut))]
        widths = [max(width, 0) for width in widths]
    return jnp.pad(x, [(0, 0)] * (x.ndim - len(widths) // 2) + _pairs(widths), mode)


@operation("aten.full.default", "aten.new_full.default")
def full(*args: Any, dtype: Any = None) -> jax.Array:
    """A new array with one value everywhere."""
    shape, value = args[-2:]
    return jnp.full(shape, value, dtype)


@operation("aten.full_like.default")
def full_like(x: jax.Array, value: Any, dtype: Any = None) -> jax.Array:
    """An array of the same shape with one value everywhere."""
    return jnp.full(x.shape, value, x.dtype if dtype is None else dtype)


@operation("aten.empty.memory_format", "aten.zeros.default")
def zeros(shape: Sequence[int], dtype: Any = None) -> jax.Array:
    """A new array of zeros; also for PyTorch's arrays with any values."""
    return jnp.zeros(shape, dtype)


@operation("aten.empty_permuted.default")
def empty_permuted(shape: Sequence[int], order: Sequence[int], dtype: Any = None) -> jax.Array:
    """A new array of zeros, for PyTorch's array with any values."""
    return jnp.zeros(shape, dtype)


@operation("aten.scalar_tensor.default")
def scalar(value: Any, dtype: Any = None) -> jax.Array:
    """A number as an array."""
    return jnp.asarray(value, dtype)


@operation("aten.arange.start_step")
def arange(start: Any, end: Any, step: Any = 1, dtype: Any = None) -> jax.Array:
    """Numbers at equal distances."""
    return jnp.arange(start, end, step, dtype)


@operation("aten.tril_indices.default")
def lower_indices(rows: int, columns: int, offset: int = 0, dtype: Any = None) -> jax.Array:
    """The places of a lower triangle."""
    return jnp.asarray(np.stack(np.tril_indices(rows, offset, columns)), dtype)


@operation("aten.triu_indices.default")
def upper_indices(rows: int, columns: int, offset: int = 0, dtype: Any = None) -> jax.Array:
    """The places of an upper triangle."""
    return jnp.asarray(np.stack(np.triu_indices(rows, offset, columns)), dtype)
