"""Convolution and pooling that are fast on the CPU too.

XLA's own convolution on the CPU is about ten times slower than a matrix product of the same size when it
runs inside a loop, and the gradient of its pooling is slow as well. So on the CPU

- a convolution is the shifted copies of the image, side by side, times the kernel as a matrix (im2col):
  y[n, p, o] = sum over offsets d and channels c of x[n, s p + d, c] w[d, c, o];
- one with 3x3 windows, stride 1 and many channels takes fewer products still (winograd.py);
- a pooling is a reshape and a maximum.

On other devices, and with FEDAX_KERNELS=off, all are XLA's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedax.kernels import winograd
from fedax.kernels.switch import enabled


def convolve(
    lhs: jax.Array,
    rhs: jax.Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> jax.Array:
    """`jax.lax.conv_general_dilated`, as a matrix product where that is faster.

    Takes the same arguments, so that it can be Flax's `nn.Conv(..., conv_general_dilated=convolve)`. The
    matrix product serves images with channels last ("NHWC", kernel "HWIO", or the same in one or three
    dimensions), without groups or dilation, on the CPU; everything else goes to `lax`.

    >>> import jax.numpy as jnp
    >>> image = jnp.arange(9.0).reshape(1, 3, 3, 1)
    >>> order = ("NHWC", "HWIO", "NHWC")
    >>> sums = convolve(image, jnp.ones((2, 2, 1, 1)), (1, 1), "VALID", dimension_numbers=order)
    >>> sums[0, :, :, 0].tolist()
    [[8.0, 12.0], [20.0, 24.0]]
    """
    spatial = lhs.ndim - 2
    numbers = lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    dilated = any(d != 1 for d in (*(lhs_dilation or ()), *(rhs_dilation or ())))
    grouped = feature_group_count != 1 or batch_group_count != 1
    if not enabled() or dilated or grouped or numbers != _channels_last(spatial):
        return lax.conv_general_dilated(
            lhs,
            rhs,
            window_strides,
            padding,
            lhs_dilation,
            rhs_dilation,
            numbers,
            feature_group_count,
            batch_group_count,
            precision,
            preferred_element_type,
        )
    window = rhs.shape[:spatial]
    if isinstance(padding, str):
        padding = lax.padtype_to_pads(lhs.shape[1:-1], window, window_strides, padding)
    if winograd.serves(lhs, rhs, window_strides, padding):
        return winograd.convolve_3x3(lhs, rhs, padding, precision, preferred_element_type)
    patches = _patches(lhs, window, window_strides, padding)
    rows = lax.dot(
        patches.reshape(-1, patches.shape[-1]),
        rhs.reshape(-1, rhs.shape[-1]),
        precision=precision,
        preferred_element_type=preferred_element_type,
    )
    return rows.reshape(*patches.shape[:-1], rhs.shape[-1])


def _channels_last(spatial: int) -> lax.ConvDimensionNumbers:
    image = (0, spatial + 1, *range(1, spatial + 1))
    return lax.ConvDimensionNumbers(image, (spatial + 1, spatial, *range(spatial)), image)


def _patches(
    x: jax.Array, window: Sequence[int], strides: Sequence[int], padding: Sequence[tuple[int, int]]
) -> jax.Array:
    """What the kernel sees at each place, in the order of the kernel's own axes.

    One axis after another, last axis first: the copies grow longer as they go, which is quicker than
    cutting every patch from the image at once.
    """
    patches = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *((lo, hi, 0) for lo, hi in padding), (0, 0, 0)])
    for axis in range(len(window), 0, -1):
        size, stride = window[axis - 1], strides[axis - 1]
        span = patches.shape[axis] - size + 1
        # A kernel larger than the image fits nowhere.
        starts = range(size) if span > 0 else [0] * size
        shifts = [lax.slice_in_dim(patches, i, i + max(span, 0), stride, axis) for i in starts]
        patches = jnp.concatenate(shifts, axis=-1)
    return patches


def max_pool(x: jax.Array, window: int = 2) -> jax.Array:
    """The maximum over windows of [batch, height, width, channels] that do not overlap.

    Rows and columns that do not fill a window are left out. Where several entries of a window are largest,
    the gradient goes to the first of them, on every device.

    >>> import jax.numpy as jnp
    >>> max_pool(jnp.arange(20.0).reshape(1, 4, 5, 1))[0, :, :, 0].tolist()
    [[6.0, 8.0], [16.0, 18.0]]
    """
    if not enabled():
        shape = (1, window, window, 1)
        pooled: jax.Array = lax.reduce_window(x, -jnp.inf, lax.max, shape, shape, "VALID")
        return pooled
    n, height, width, channels = x.shape
    rows, columns = height // window, width // window
    kept = x[:, : rows * window, : columns * window]
    return _window_max(kept.reshape(n, rows, window, columns, window, channels))


def overlapping_max_pool(x: jax.Array) -> jax.Array:
    """The maximum over 3x3 windows around every second row and column of [batch, height, width, channels].

    What lies outside of the image does not count.

    >>> import jax.numpy as jnp
    >>> overlapping_max_pool(jnp.arange(16.0).reshape(1, 4, 4, 1))[0, :, :, 0].tolist()
    [[5.0, 7.0], [13.0, 15.0]]
    """
    if not enabled():
        around = ((0, 0), (1, 1), (1, 1), (0, 0))
        pooled: jax.Array = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), around)
        return pooled
    for axis in (1, 2):
        edges = [(1, 1, 0) if i == axis else (0, 0, 0) for i in range(x.ndim)]
        padded = lax.pad(x, jnp.asarray(-jnp.inf, x.dtype), edges)
        last = x.shape[axis] - (x.shape[axis] + 1) % 2  # of the places where windows begin
        first, middle, end = (lax.slice_in_dim(padded, i, i + last, 2, axis) for i in range(3))
        x = lax.max(lax.max(first, middle), end)
    return x


@jax.custom_jvp
def _window_max(windows: jax.Array) -> jax.Array:
    return windows.max(axis=(2, 4))


@_window_max.defjvp
def _window_max_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    (windows,), (moves,) = primals, tangents
    entries, steps = _entries(windows), _entries(moves)
    best, move = entries[0], steps[0]
    # Larger than those before, not equal to the largest: a compiled program may round an entry in two ways.
    for entry, step in zip(entries[1:], steps[1:], strict=True):
        larger = entry > best
        best, move = jnp.where(larger, entry, best), jnp.where(larger, step, move)
    return _window_max(windows), move


def _entries(windows: jax.Array) -> list[jax.Array]:
    """The entries of all windows, one place of the window after another, in an operation whose gradient joins them."""
    return [entry for row in winograd.parts(windows, 2) for entry in winograd.parts(row, 3)]
