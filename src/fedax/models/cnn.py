"""The convolutional network for images of the size of MNIST's and CIFAR's."""

from __future__ import annotations

import math

import jax
from flax import linen as nn
from jax.typing import ArrayLike

from fedax.kernels.convolution import convolve, max_pool
from fedax.models.inputs import as_images, precision
from fedax.models.layers import Dense, first_values, last


class CNN(nn.Module):
    """Convolutions, each with ReLU and a 2x2 max pooling, then fully connected layers with ReLU.

    Input is [batch, height, width, channels], or [batch, height, width] for one channel; bytes (uint8) are
    divided by 255. Convolutions keep the image's size (padding "SAME"), each pooling halves it, rounding
    down.

    Args:
        outputs: classes or targets, 1 or more.
        channels: channels of each convolution, one or more of them.
        dense: width of each fully connected layer after the convolutions; may be empty.
        kernel: side of the square convolution kernels, 1 or more.
        kernel_init: the first parameters, "lecun" as Flax draws them or "pytorch" as PyTorch does, biases too.

    >>> import jax, jax.numpy as jnp
    >>> model = CNN(outputs=10, channels=(8,), dense=(32,))
    >>> images = jnp.zeros((2, 28, 28), jnp.uint8)
    >>> params = model.init(jax.random.key(0), images)
    >>> model.apply(params, images).shape
    (2, 10)
    """

    outputs: int
    channels: tuple[int, ...] = (32, 64)
    dense: tuple[int, ...] = (1024, 512)
    kernel: int = 3
    kernel_init: str = "lecun"

    @nn.compact
    def __call__(self, x: ArrayLike) -> jax.Array:
        image = as_images(x, poolings=len(self.channels))
        for number, features in enumerate(self.channels):
            image = _Pooled(features, self.kernel, self.kernel_init, name=f"Conv_{number}")(image)
        rows = image.reshape(image.shape[0], -1)
        for width in self.dense:
            rows = nn.relu(Dense(width, self.kernel_init)(rows))
        return last(self.outputs, self.kernel_init, rows.shape[-1])(rows)


class _Pooled(nn.Module):
    """A convolution with Flax' names, then max pooling and ReLU; `kernel_init` as in `layers.first_values`.

    The maximum commutes with the bias and with ReLU, and after the pooling there is a quarter of their work left.
    """

    features: int
    side: int
    kernel_init: str

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        shape = (self.side, self.side, image.shape[-1], self.features)
        kernel_init, bias_init = first_values(self.kernel_init, math.prod(shape[:-1]))
        kernel = self.param("kernel", kernel_init, shape, precision())
        bias = self.param("bias", bias_init, (self.features,), precision())
        seen = convolve(image, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return nn.relu(max_pool(seen) + bias)
