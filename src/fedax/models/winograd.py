"""Convolution with 3x3 windows by Winograd's minimal filtering F(2x2, 3x3) (Lavin and Gray 2016).

Two neighbouring outputs of a filter with three taps, from four inputs d and taps g, by four products instead of six:

    m = (B d) * (G g)      B d = (d0 - d2, d1 + d2, d2 - d1, d1 - d3)
    y = A m                G g = (g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2)
                           A m = (m0 + m1 + m2, m1 - m2 - m3)

Along both axes of an image that is 16 products for 4 outputs instead of 36. Summed over channels each of the 16 is a
matrix product, [places, channels] times [channels, outputs], so the work that remains is where a CPU is quickest.
Gradients are those of the formulas, and have the same 16 products.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

WINDOW = (3, 3)
CHANNELS = 16  # on both sides, from which the products outweigh the sums around them


def serves(kernel: jax.Array, strides: Sequence[int]) -> bool:
    """Whether a convolution with this kernel is quicker this way."""
    window, channels = kernel.shape[:-2], kernel.shape[-2:]
    return window == WINDOW and tuple(strides) == (1, 1) and min(channels) >= CHANNELS


def convolve_3x3(
    x: jax.Array, kernel: jax.Array, padding: Sequence[tuple[int, int]], precision: Any = None, dtype: Any = None
) -> jax.Array:
    """A convolution of [batch, height, width, channels] with a 3x3 kernel, stride 1.

    >>> import jax.numpy as jnp
    >>> image = jnp.arange(16.0).reshape(1, 4, 4, 1)
    >>> convolve_3x3(image, jnp.ones((3, 3, 1, 1)), [(0, 0), (0, 0)])[0, :, :, 0].tolist()
    [[45.0, 54.0], [81.0, 90.0]]
    """
    sizes = [max(0, x.shape[axis] + sum(padding[axis - 1]) - 2) for axis in (1, 2)]
    if 0 in sizes:
        return jnp.zeros((len(x), *sizes, kernel.shape[-1]), dtype or x.dtype)
    # up to an even number of outputs along each axis
    pads = [(lo, hi + size % 2, 0) for (lo, hi), size in zip(padding, sizes, strict=True)]
    padded = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *pads, (0, 0, 0)])
    inputs = [v for row in _inputs(padded, 1) for v in _inputs(row, 2)]
    taps = [u for row in _taps(kernel) for u in _taps(row)]
    places = inputs[0].shape[:-1]
    products = [
        lax.dot(v.reshape(-1, v.shape[-1]), u, precision=precision, preferred_element_type=dtype).reshape(*places, -1)
        for v, u in zip(inputs, taps, strict=True)
    ]
    columns = [_outputs(products[j::4]) for j in range(4)]
    rows = [jnp.stack(_outputs([column[i] for column in columns]), axis=3) for i in range(2)]
    both = jnp.stack(rows, axis=2)
    return both.reshape(len(x), 2 * places[1], 2 * places[2], -1)[:, : sizes[0], : sizes[1]]


def _inputs(x: jax.Array, axis: int) -> list[jax.Array]:
    """B d, of every other place along an axis of even length."""
    pairs = x.reshape(*x.shape[:axis], -1, 2, *x.shape[axis + 1 :])
    even, odd = (lax.index_in_dim(pairs, i, axis + 1, keepdims=False) for i in range(2))
    last = even.shape[axis]
    d0, d1 = (lax.slice_in_dim(part, 0, last - 1, axis=axis) for part in (even, odd))
    d2, d3 = (lax.slice_in_dim(part, 1, last, axis=axis) for part in (even, odd))
    return [d0 - d2, d1 + d2, d2 - d1, d1 - d3]


def _taps(kernel: jax.Array) -> list[jax.Array]:
    """G g, along the first axis."""
    ends, middle = kernel[0] + kernel[2], kernel[1]
    return [kernel[0], (ends + middle) / 2, (ends - middle) / 2, kernel[2]]


def _outputs(m: Sequence[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """A m."""
    return m[0] + m[1] + m[2], m[1] - m[2] - m[3]
