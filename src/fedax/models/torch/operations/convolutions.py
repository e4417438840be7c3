"""Convolutions of images with channels first, of one, two or three dimensions.

They are computed with channels last, as kernels.convolution has them; XLA leaves out a transposition that the next
layer takes back.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedax.kernels.convolution import convolve
from fedax.kernels.switch import enabled
from fedax.models.torch.registry import operation


@operation("aten.convolution.default")
def convolution(
    x: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> jax.Array:
    """PyTorch's convolution [N, C, ...] * [O, C / groups, ...], or the transpose of one."""
    axes = x.ndim - 2
    stride, padding, dilation, more = (_each(v, axes) for v in (stride, padding, dilation, output_padding))
    image = jnp.moveaxis(x, 1, -1)
    if transposed:
        y = _transposed(image, weight, stride, padding, dilation, more, groups)
    else:
        y = _grouped(image, _kernel_last(weight), stride, [(p, p) for p in padding], dilation, groups)
    return jnp.moveaxis(y if bias is None else y + bias, -1, 1)


def _each(values: Sequence[int], axes: int) -> tuple[int, ...]:
    return tuple(values) * axes if len(values) == 1 else tuple(values)


def _kernel_last(weight: jax.Array) -> jax.Array:
    """[O, I, ...] as [..., I, O]."""
    return jnp.moveaxis(weight, (0, 1), (-1, -2))


def _order(axes: int) -> tuple[str, str, str]:
    space = "DHW"[-axes:]
    return f"N{space}C", f"{space}IO", f"N{space}C"


def _grouped(
    image: jax.Array,
    kernel: jax.Array,
    stride: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    groups: int,
) -> jax.Array:
    """A convolution, whose groups on a CPU are products of their own."""
    axes, order = image.ndim - 2, _order(image.ndim - 2)
    if groups == 1 or not enabled():
        return convolve(image, kernel, stride, padding, None, dilation, order, groups)
    if kernel.shape[-2] == 1 and kernel.shape[-1] == groups:
        return _depthwise(image, kernel[..., 0, :], stride, padding, dilation)
    parts = image.reshape(*image.shape[:-1], groups, -1)
    kernels = kernel.reshape(*kernel.shape[:-1], groups, -1)

    def one(part: jax.Array, own: jax.Array) -> jax.Array:
        return convolve(part, own, stride, padding, None, dilation, order)

    y = jax.vmap(one, in_axes=(axes + 1, axes + 1), out_axes=axes + 1)(parts, kernels)
    return y.reshape(*y.shape[: axes + 1], -1)


def _depthwise(
    image: jax.Array,
    kernel: jax.Array,
    stride: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
) -> jax.Array:
    """One filter a channel: the sum over a window's places of a shifted image times that place's weights."""
    padded = lax.pad(image, jnp.zeros((), image.dtype), [(0, 0, 0), *((lo, hi, 0) for lo, hi in padding), (0, 0, 0)])
    window = kernel.shape[:-1]
    spans = [padded.shape[i + 1] - d * (k - 1) for i, (k, d) in enumerate(zip(window, dilation, strict=True))]
    total = None
    for place in np.ndindex(*window):
        start = [0, *(p * d for p, d in zip(place, dilation, strict=True)), 0]
        end = [padded.shape[0], *(a + n for a, n in zip(start[1:-1], spans, strict=True)), padded.shape[-1]]
        term = lax.slice(padded, start, end, (1, *stride, 1)) * kernel[place]
        total = term if total is None else total + term
    assert total is not None
    return total


def _transposed(
    image: jax.Array,
    weight: jax.Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    more: Sequence[int],
    groups: int,
) -> jax.Array:
    """The transpose of the convolution from the outputs' shape to the image's, whose kernel is [I, O / groups, ...]."""
    window, inner = weight.shape[2:], image.shape[1:-1]
    size = [
        (n - 1) * s - 2 * p + d * (k - 1) + m + 1
        for n, s, p, d, k, m in zip(inner, stride, padding, dilation, window, more, strict=True)
    ]
    outputs = jax.ShapeDtypeStruct((image.shape[0], *size, weight.shape[1] * groups), image.dtype)
    kernel = _kernel_last(weight)

    def forward(y: jax.Array) -> jax.Array:
        return _grouped(y, kernel, stride, [(p, p) for p in padding], dilation, groups)

    (turned,) = jax.linear_transpose(forward, outputs)(image)
    found: jax.Array = turned
    return found
