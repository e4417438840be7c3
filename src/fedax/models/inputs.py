"""The first step of every model: its input as numbers in the parameters' precision, as rows or as images."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from fedax.errors import FedaxError


def precision() -> DTypeLike:
    """The floating-point type of new parameters: double in JAX's x64 mode, otherwise single.

    >>> import jax
    >>> with jax.enable_x64(True):
    ...     precision()
    dtype('float64')
    """
    return jnp.result_type(float)


def as_float(x: ArrayLike) -> jax.Array:
    """Numbers to compute with: bytes (uint8) are scaled from 0..255 to 0..1, other integers only converted.

    So images stay bytes in memory, a quarter of the size, and become numbers one minibatch at a time.

    >>> import numpy as np
    >>> as_float(np.array([0, 255], np.uint8)).tolist()
    [0.0, 1.0]
    >>> as_float(np.array([0, 255], np.int32)).tolist()
    [0.0, 255.0]
    """
    numbers = jnp.asarray(x)
    if jnp.issubdtype(numbers.dtype, jnp.inexact):
        return numbers
    converted = numbers.astype(precision())
    return converted / 255 if numbers.dtype == jnp.uint8 else converted


def as_rows(x: ArrayLike) -> jax.Array:
    """One row of features an example: [batch, ...] becomes [batch, features].

    >>> import numpy as np
    >>> as_rows(np.zeros((5, 28, 28), np.uint8)).shape
    (5, 784)
    """
    numbers = as_float(x)
    if numbers.ndim < 2:
        raise FedaxError(f"the input has shape {numbers.shape}: allowed is [batch, features] or more axes")
    return numbers.reshape(numbers.shape[0], -1)


def as_images(x: ArrayLike, poolings: int = 0) -> jax.Array:
    """[batch, height, width, channels], with one channel where the input has no axis for them.

    `poolings` is how often the image will be halved, which it must be large enough for.

    >>> import numpy as np
    >>> as_images(np.zeros((5, 28, 28), np.uint8)).shape
    (5, 28, 28, 1)
    """
    images = as_float(x)
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4:
        raise FedaxError(
            f"the input has shape {images.shape}: allowed is [batch, height, width] or [batch, height, width, channels]"
        )
    smallest = 2**poolings
    if min(images.shape[1:3]) < smallest:
        raise FedaxError(
            f"the images are {images.shape[1]}x{images.shape[2]}: {poolings} poolings"
            f" need at least {smallest}x{smallest}"
        )
    return images
