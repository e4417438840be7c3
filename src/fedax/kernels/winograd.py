"""Convolution with 3x3 windows by Winograd's minimal filtering (Lavin and Gray 2016, section 4).

A tile of m neighbouring outputs y of a filter with taps g, from m + 2 inputs d, by m + 2 products instead of 3 m:

    y = A ((B d) * (G g))

F(2, 3):  B d = (d0 - d2, d1 + d2, d2 - d1, d1 - d3)
          G g = (g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2)
          A p = (p0 + p1 + p2, p1 - p2 - p3)
F(4, 3):  the same at the points 0, 1, -1, 2, -2 and infinity, as written below

Along both axes of an image that is 16 products for 4 outputs instead of 36, or 36 for 16 instead of 144. Summed over
channels each of them is a matrix product, [tiles, channels] times [channels, outputs], so the work that remains is
where a CPU is quickest. In single precision F(4, 3) is right to about 1e-5 of the largest output, F(2, 3) to 1e-6.

Gradients are those of the formulas and have the same products. They are quick because an image is taken apart by
`lax.split`, whose transpose puts together; that of slices with a stride would add up images of zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

WINDOW = (3, 3)
CHANNELS = 16  # on both sides, from which the products outweigh the sums around them

Arrays = Sequence[jax.Array]


class Tile(NamedTuple):
    """A minimal filtering: how many outputs it has along an axis, and B, G and A."""

    size: int
    inputs: Callable[[Arrays], Arrays]
    taps: Callable[[Arrays], Arrays]
    outputs: Callable[[Arrays], Arrays]


def serves(x: jax.Array, kernel: jax.Array, strides: Sequence[int], padding: Sequence[tuple[int, int]]) -> bool:
    """Whether a convolution is quicker this way: with many channels, and fewer products than 9 for each output."""
    window, channels = kernel.shape[:-2], kernel.shape[-2:]
    if window != WINDOW or tuple(strides) != (1, 1) or min(channels) < CHANNELS:
        return False
    sizes = _sizes(x, padding)
    return _products(sizes, _tile(sizes)) < 9 * sizes[0] * sizes[1]


def convolve_3x3(
    x: jax.Array, kernel: jax.Array, padding: Sequence[tuple[int, int]], precision: Any = None, dtype: Any = None
) -> jax.Array:
    """A convolution of [batch, height, width, channels] with a 3x3 kernel, stride 1.

    >>> import jax.numpy as jnp
    >>> image = jnp.arange(16.0).reshape(1, 4, 4, 1)
    >>> convolve_3x3(image, jnp.ones((3, 3, 1, 1)), [(0, 0), (0, 0)])[0, :, :, 0].tolist()
    [[45.0, 54.0], [81.0, 90.0]]
    """
    sizes = _sizes(x, padding)
    if 0 in sizes:
        return jnp.zeros((len(x), *sizes, kernel.shape[-1]), dtype or x.dtype)
    tile = _tile(sizes)
    # whole tiles, and a further one for the last tile's two further inputs
    lengths = [(_count(size, tile) + 1) * tile.size for size in sizes]
    pads = [(padding[i][0], lengths[i] - x.shape[i + 1] - padding[i][0], 0) for i in range(2)]
    padded = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *pads, (0, 0, 0)])
    rows = tile.inputs(_windows(padded, 1, tile.size))
    inputs = [v for row in rows for v in tile.inputs(_windows(row, 2, tile.size))]
    taps = [u for row in tile.taps(parts(kernel, 0)) for u in tile.taps(parts(row, 0))]
    places = inputs[0].shape[:-1]
    products = [
        lax.dot(v.reshape(-1, v.shape[-1]), u, precision=precision, preferred_element_type=dtype).reshape(*places, -1)
        for v, u in zip(inputs, taps, strict=True)
    ]
    side = tile.size + 2
    rows = [_join(tile.outputs(products[i * side : (i + 1) * side]), 2) for i in range(side)]
    return _join(tile.outputs(rows), 1)[:, : sizes[0], : sizes[1]]


def _sizes(x: jax.Array, padding: Sequence[tuple[int, int]]) -> list[int]:
    """The height and width of the outputs."""
    return [max(0, x.shape[axis] + sum(padding[axis - 1]) - 2) for axis in (1, 2)]


def _tile(sizes: Sequence[int]) -> Tile:
    """The tile with the fewest products for outputs of this height and width."""
    return min(TILES, key=lambda tile: _products(sizes, tile))


def _products(sizes: Sequence[int], tile: Tile) -> int:
    """Products for each image and pair of channels."""
    return (tile.size + 2) ** 2 * _count(sizes[0], tile) * _count(sizes[1], tile)


def _count(size: int, tile: Tile) -> int:
    """The number of tiles along an axis with `size` outputs."""
    return -(-size // tile.size)


def _windows(x: jax.Array, axis: int, size: int) -> list[jax.Array]:
    """The size + 2 inputs of all tiles along an axis but the last."""
    phases = parts(x.reshape(*x.shape[:axis], -1, size, *x.shape[axis + 1 :]), axis + 1)
    last = x.shape[axis] // size
    own = [lax.slice_in_dim(phase, 0, last - 1, axis=axis) for phase in phases]
    return own + [lax.slice_in_dim(phase, 1, last, axis=axis) for phase in phases[:2]]


def parts(x: jax.Array, axis: int) -> list[jax.Array]:
    """The parts along an axis."""
    return [lax.squeeze(part, [axis]) for part in lax.split(x, [1] * x.shape[axis], axis)]


def _join(phases: Arrays, axis: int) -> jax.Array:
    """Tiles' outputs, one after another along an axis."""
    first = phases[0].shape
    return jnp.stack(phases, axis + 1).reshape(*first[:axis], -1, *first[axis + 1 :])


def _inputs_2(d: Arrays) -> Arrays:
    return d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]


def _taps_2(g: Arrays) -> Arrays:
    ends = g[0] + g[2]
    return g[0], (ends + g[1]) / 2, (ends - g[1]) / 2, g[2]


def _outputs_2(p: Arrays) -> Arrays:
    return p[0] + p[1] + p[2], p[1] - p[2] - p[3]


def _inputs_4(d: Arrays) -> Arrays:
    even_1, odd_1 = d[4] - 4 * d[2], d[3] - 4 * d[1]
    even_2, odd_2 = d[4] - d[2], 2 * (d[3] - d[1])
    first, last = 4 * d[0] - 5 * d[2] + d[4], 4 * d[1] - 5 * d[3] + d[5]
    return first, even_1 + odd_1, even_1 - odd_1, even_2 + odd_2, even_2 - odd_2, last


def _taps_4(g: Arrays) -> Arrays:
    even_1, odd_1 = -(g[0] + g[2]) / 6, -g[1] / 6
    even_2, odd_2 = g[0] / 24 + g[2] / 6, g[1] / 12
    return g[0] / 4, even_1 + odd_1, even_1 - odd_1, even_2 + odd_2, even_2 - odd_2, g[2]


def _outputs_4(p: Arrays) -> Arrays:
    even_1, odd_1, even_2, odd_2 = p[1] + p[2], p[1] - p[2], p[3] + p[4], p[3] - p[4]
    return p[0] + even_1 + even_2, odd_1 + 2 * odd_2, even_1 + 4 * even_2, odd_1 + 8 * odd_2 + p[5]


TILES = (Tile(2, _inputs_2, _taps_2, _outputs_2), Tile(4, _inputs_4, _taps_4, _outputs_4))
