"""Layers that models share."""

from __future__ import annotations

import jax
from flax import linen as nn

from fedax.kernels.dense import product
from fedax.models.inputs import precision


class Dense(nn.Module):
    """x @ kernel + bias, with Flax' names and first values."""

    features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape = (x.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), shape, precision())
        bias = self.param("bias", nn.initializers.zeros, (self.features,), precision())
        return product(x, kernel) + bias
