"""The multilayer perceptron; by default the "2NN" of McMahan et al. (2017), 784-200-200-10 on MNIST."""

from __future__ import annotations

import jax
from flax import linen as nn
from jax.typing import ArrayLike

from fedax.models.inputs import as_rows
from fedax.models.layers import Dense, last


class MLP(nn.Module):
    """Fully connected layers with ReLU between them.

    Input is [batch, ...], every axis after the first a feature; bytes (uint8) are divided by 255.

    Args:
        outputs: targets or classes, 1 or more.
        hidden: width of each hidden layer, each 1 or more; none makes it a linear model.
        kernel_init: the first parameters, "lecun" as Flax draws them or "pytorch" as PyTorch does, biases too.

    >>> import jax, jax.numpy as jnp
    >>> model = MLP(outputs=10, hidden=(64,))
    >>> params = model.init(jax.random.key(0), jnp.zeros((1, 784)))
    >>> model.apply(params, jnp.zeros((5, 28, 28), jnp.uint8)).shape
    (5, 10)
    """

    outputs: int
    hidden: tuple[int, ...] = (200, 200)
    kernel_init: str = "lecun"

    @property
    def first(self) -> tuple[str, ...] | None:
        """The path of the first layer's kernel in the parameters: the only one that may be a mixture."""
        return ("params", "Dense_0", "kernel") if self.hidden else None

    @nn.compact
    def __call__(self, x: ArrayLike) -> jax.Array:
        rows = as_rows(x)
        for width in self.hidden:
            rows = nn.relu(Dense(width, self.kernel_init)(rows))
        return last(self.outputs, self.kernel_init, rows.shape[-1])(rows)
