"""Images in another size: each axis is multiplied by a small matrix of weights, known when the program is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedax.models.torch.registry import operation

CUBIC = -0.75  # the coefficient of PyTorch's bicubic interpolation


def along_axis(x: jax.Array, weights: np.ndarray, axis: int) -> jax.Array:
    """The product of a matrix with one axis of an array.

    >>> along_axis(jnp.ones((3, 2)), np.ones((1, 3)), 0).tolist()
    [[3.0, 3.0]]
    """
    return jnp.moveaxis(jnp.tensordot(x, jnp.asarray(weights.T, x.dtype), (axis, 0)), -1, axis)


def nearest(size: int, count: int, scale: float | None, exact: bool) -> np.ndarray:
    """Each output is the nearest entry; PyTorch's plain "nearest" takes the one at or before it."""
    ratio = 1 / scale if scale else size / count
    at = np.floor((np.arange(count) + (0.5 if exact else 0.0)) * np.float32(ratio)).astype(int)
    weights = np.zeros((count, size))
    weights[np.arange(count), np.clip(at, 0, size - 1)] = 1
    return weights


def _source(size: int, count: int, scale: float | None, align_corners: bool) -> tuple[np.ndarray, float]:
    """Where the outputs are in the image, and how far apart."""
    if align_corners:
        ratio = (size - 1) / (count - 1) if count > 1 else 0.0
        return np.arange(count) * ratio, ratio
    ratio = 1 / scale if scale else size / count
    return (np.arange(count) + 0.5) * ratio - 0.5, ratio


def linear(size: int, count: int, scale: float | None, align_corners: bool) -> np.ndarray:
    """Each output lies between two neighbours."""
    at = np.maximum(_source(size, count, scale, align_corners)[0], 0)
    low = np.minimum(at.astype(int), size - 1)
    part = at - low
    weights = np.zeros((count, size))
    np.add.at(weights, (np.arange(count), low), 1 - part)
    np.add.at(weights, (np.arange(count), np.minimum(low + 1, size - 1)), part)
    return weights


def cubic(size: int, count: int, scale: float | None, align_corners: bool) -> np.ndarray:
    """Each output lies between four neighbours, on a cubic through them."""
    at = _source(size, count, scale, align_corners)[0]
    low = np.floor(at).astype(int)
    weights = np.zeros((count, size))
    for offset in (-1, 0, 1, 2):
        place = np.clip(low + offset, 0, size - 1)
        np.add.at(weights, (np.arange(count), place), _cubic_kernel(at - low - offset, CUBIC))
    return weights


def _cubic_kernel(distance: np.ndarray, a: float) -> np.ndarray:
    t = np.abs(distance)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((t - 5) * t + 8) * t * a - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


def antialiased(kernel: Callable[[np.ndarray], np.ndarray], reach: float) -> Callable[..., np.ndarray]:
    """Weights that widen with the image's reduction, so that no entry is passed over."""

    def weights_of(size: int, count: int, scale: float | None, align_corners: bool) -> np.ndarray:
        ratio = _source(size, count, scale, align_corners)[1]
        centre, width = ratio * (np.arange(count) + 0.5), max(ratio, 1.0)
        weights = np.zeros((count, size))
        for row, middle in zip(weights, centre, strict=True):
            begin = max(int(middle - reach * width + 0.5), 0)
            end = min(int(middle + reach * width + 0.5), size)
            row[begin:end] = kernel((np.arange(begin, end) - middle + 0.5) / width)
        return np.asarray(weights / weights.sum(1, keepdims=True))

    return weights_of


def _resampled(
    x: jax.Array, sizes: Sequence[int] | None, scales: Sequence[float | None] | None, weights: Callable[..., Any]
) -> jax.Array:
    axes = x.ndim - 2
    given = [None] * axes if scales is None else list(scales)
    for axis in range(axes):
        size, scale = x.shape[axis + 2], given[axis]
        count = int(np.floor(size * (scale or 1.0))) if sizes is None else sizes[axis]
        x = along_axis(x, weights(size, count, scale), axis + 2)
    return x


def _register_nearest(name: str, exact: bool) -> None:
    def weights(size: int, count: int, scale: float | None) -> np.ndarray:
        return nearest(size, count, scale, exact)

    @operation(f"aten.{name}.vec")
    def by_factors(x: jax.Array, sizes: Any, scales: Any) -> jax.Array:
        return _resampled(x, sizes, scales, weights)

    @operation(f"aten.{name}.default")
    def by_size(x: jax.Array, sizes: Any, *scales: Any) -> jax.Array:
        return _resampled(x, sizes, scales or None, weights)


def _register_smooth(name: str, matrix: Callable[..., np.ndarray]) -> None:
    @operation(f"aten.{name}.vec")
    def by_factors(x: jax.Array, sizes: Any, align_corners: bool, scales: Any) -> jax.Array:
        return _resampled(x, sizes, scales, lambda n, m, scale: matrix(n, m, scale, align_corners))

    @operation(f"aten.{name}.default")
    def by_size(x: jax.Array, sizes: Any, align_corners: bool, *scales: Any) -> jax.Array:
        return _resampled(x, sizes, scales or None, lambda n, m, scale: matrix(n, m, scale, align_corners))


for axes in (1, 2, 3):
    _register_nearest(f"upsample_nearest{axes}d", exact=False)
    _register_nearest(f"_upsample_nearest_exact{axes}d", exact=True)
for name, matrix in {
    "upsample_linear1d": linear,
    "upsample_bilinear2d": linear,
    "upsample_trilinear3d": linear,
    "upsample_bicubic2d": cubic,
    "_upsample_bilinear2d_aa": antialiased(lambda t: np.maximum(1 - np.abs(t), 0), 1.0),
    "_upsample_bicubic2d_aa": antialiased(lambda t: _cubic_kernel(t, -0.5), 2.0),
}.items():
    _register_smooth(name, matrix)
