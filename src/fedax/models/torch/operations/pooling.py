"""Poolings of images with channels first, of two or three dimensions; PyTorch writes those of one as two.

One axis after another: the maximum or the sum over a window is that over its columns of those over its rows. Shifted
slices run faster on a CPU than XLA's windows, and so do their gradients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedax.kernels.convolution import max_pool
from fedax.models.torch.operations.resampling import along_axis
from fedax.models.torch.registry import operation

Pair = tuple[jax.Array, jax.Array]
Sizes = Sequence[int] | int


def _each(values: Sizes, axes: int, otherwise: Sequence[int] = ()) -> tuple[int, ...]:
    """A number for each axis, from one for all, or others where none is given."""
    given = (values,) if isinstance(values, int) else tuple(values)
    return tuple(otherwise) if not given else given * axes if len(given) == 1 else given


def windows(size: int, window: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """How many windows there are along an axis; in `ceil_mode` the last may reach beyond the padding's end.

    >>> windows(6, 3, 2, 0, 1, False), windows(6, 3, 2, 0, 1, True)
    (2, 3)
    """
    room = size + 2 * padding - dilation * (window - 1) - 1
    count = (math.ceil(room / stride) if ceil_mode else room // stride) + 1
    # A window that would begin in the padding on the far side is left out.
    return count - 1 if ceil_mode and (count - 1) * stride >= size + padding else count


def _slices(
    x: jax.Array, axis: int, window: int, stride: int, padding: int, dilation: int, count: int, fill: float
) -> list[jax.Array]:
    """The entries of all windows along an axis, one place of the window after another."""
    reach = (count - 1) * stride + dilation * (window - 1) + 1
    edges = [(0, 0, 0)] * x.ndim
    edges[axis] = (padding, max(reach - x.shape[axis] - padding, 0), 0)
    padded = lax.pad(x, jnp.asarray(fill, x.dtype), edges)
    last = (count - 1) * stride + 1
    return [lax.slice_in_dim(padded, i * dilation, i * dilation + last, stride, axis) for i in range(window)]


@operation("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def max_pooling(
    x: jax.Array, kernel: Sizes, stride: Sizes = (), padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False
) -> Pair:
    """The maximum over windows, and where in the image it is. Among equals the first counts, for the gradient too."""
    axes = 3 if x.ndim == 5 else 2
    kernel = _each(kernel, axes)
    stride, padding, dilation = _each(stride, axes, kernel), _each(padding, axes), _each(dilation, axes)
    first, shape = x.ndim - axes, x.shape[x.ndim - axes :]
    plain = not any(padding) and set(dilation) == {1} and not ceil_mode
    best, where = x, jnp.arange(math.prod(shape), dtype=jnp.int32).reshape(shape)
    where = jnp.broadcast_to(where, x.shape)
    for axis, (k, s, p, d) in enumerate(zip(kernel, stride, padding, dilation, strict=True), start=first):
        count = windows(x.shape[axis], k, s, p, d, ceil_mode)
        entries = _slices(best, axis, k, s, p, d, count, -jnp.inf)
        places = _slices(where, axis, k, s, p, d, count, 0)
        best, where = entries[0], places[0]
        for entry, place in zip(entries[1:], places[1:], strict=True):
            larger = entry > best
            best, where = jnp.where(larger, entry, best), jnp.where(larger, place, where)
    if plain and x.ndim == 4 and kernel == stride and kernel[0] == kernel[1]:
        best = jnp.moveaxis(max_pool(jnp.moveaxis(x, 1, -1), kernel[0]), -1, 1)
    return best, where


@operation("aten.avg_pool2d.default", "aten.avg_pool3d.default")
def avg_pooling(
    x: jax.Array,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> jax.Array:
    """The mean over windows; what is outside of the image and its padding does not count."""
    axes = min(x.ndim - 1, len(_each(kernel, 2)))
    kernel = _each(kernel, axes)
    stride, padding = _each(stride, axes, kernel), _each(padding, axes)
    counts = np.ones((), np.float32)
    for axis, (k, s, p) in enumerate(zip(kernel, stride, padding, strict=True), start=x.ndim - axes):
        size, count = x.shape[axis], windows(x.shape[axis], k, s, p, 1, ceil_mode)
        begin = np.arange(count) * s - p
        low, high = (begin, size + p) if count_include_pad else (np.maximum(begin, 0), size)
        counts = counts[..., None] * (np.minimum(begin + k, high) - low).astype(np.float32)
        entries = _slices(x, axis, k, s, p, 1, count, 0.0)
        x = sum(entries[1:], entries[0])
    if divisor is not None:
        return x / divisor
    return x / (float(counts.flat[0]) if (counts == counts.flat[0]).all() else jnp.asarray(counts, x.dtype))


def _cells(size: int, outputs: int) -> list[tuple[int, int]]:
    """Where the windows of an adaptive pooling begin and end along an axis."""
    return [(i * size // outputs, -(-(i + 1) * size // outputs)) for i in range(outputs)]


@operation("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default")
def adaptive_avg_pooling(x: jax.Array, outputs: Sequence[int]) -> jax.Array:
    """The mean over as many windows as outputs, as equal as they can be."""
    for axis, count in enumerate(outputs, start=x.ndim - len(outputs)):
        size = x.shape[axis]
        if size % count == 0:
            x = x.reshape(*x.shape[:axis], count, size // count, *x.shape[axis + 1 :]).mean(axis + 1)
            continue
        weights = np.zeros((count, size))
        for row, (begin, end) in zip(weights, _cells(size, count), strict=True):
            row[begin:end] = 1 / (end - begin)
        x = along_axis(x, weights, axis)
    return x


@operation("aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default")
def adaptive_max_pooling(x: jax.Array, outputs: Sequence[int]) -> Pair:
    """The maximum over as many windows as outputs, and where in the image it is."""
    first = x.ndim - len(outputs)
    shape = x.shape[first:]
    where = jnp.broadcast_to(jnp.arange(math.prod(shape), dtype=jnp.int32).reshape(shape), x.shape)
    for axis, count in enumerate(outputs, start=first):
        best, places = [], []
        for begin, end in _cells(x.shape[axis], count):
            part, own = (lax.slice_in_dim(a, begin, end, axis=axis) for a in (x, where))
            chosen = jnp.argmax(part, axis, keepdims=True)
            best.append(jnp.take_along_axis(part, chosen, axis))
            places.append(jnp.take_along_axis(own, chosen, axis))
        x, where = jnp.concatenate(best, axis), jnp.concatenate(places, axis)
    return x, where
