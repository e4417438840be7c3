"""Layers that models share, and the first values of their parameters."""

from __future__ import annotations

import math

import jax
from flax import linen as nn
from jax.typing import DTypeLike

from fedax.kernels.dense import product
from fedax.models.inputs import precision


def first_values(kind: str, inputs: int) -> tuple[nn.initializers.Initializer, nn.initializers.Initializer]:
    """What draws a layer's first kernel and bias, for units with this number of inputs.

    kind: "lecun", Flax' default: normal kernels with the variance 1 / inputs, and biases of 0. "pytorch", PyTorch's
        default: both uniform within 1 / sqrt(inputs), so that kernels have a third of that variance.

    >>> kernel, bias = first_values("pytorch", 4)
    >>> import jax, jax.numpy as jnp
    >>> bool(jnp.all(jnp.abs(bias(jax.random.key(0), (100,), jnp.float32)) <= 0.5))
    True
    """
    if kind == "lecun":
        return nn.initializers.lecun_normal(), nn.initializers.zeros
    most = 1 / math.sqrt(inputs)

    def uniform(key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike = float, **_: object) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -most, most)

    return uniform, uniform


class Dense(nn.Module):
    """x @ kernel + bias, with Flax' names; `kernel_init` as in `first_values`."""

    features: int
    kernel_init: str = "lecun"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        kernel_init, bias_init = first_values(self.kernel_init, x.shape[-1])
        kernel = self.param("kernel", kernel_init, (x.shape[-1], self.features), precision())
        bias = self.param("bias", bias_init, (self.features,), precision())
        return product(x, kernel) + bias


def last(outputs: int, kernel_init: str, inputs: int) -> nn.Dense:
    """A model's last layer: Flax' own, for it has few outputs."""
    first, second = first_values(kernel_init, inputs)
    return nn.Dense(outputs, param_dtype=precision(), kernel_init=first, bias_init=second)
