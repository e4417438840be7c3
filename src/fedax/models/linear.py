"""Linear and logistic regression.

    z = x W + b

With the squared loss this is linear regression; with the logistic loss (one output, two classes) or the
cross-entropy (one output a class) it is logistic regression. Both are convex in (W, b), so they start at
zero unless told otherwise.
"""

from __future__ import annotations

from typing import Literal

import jax
from flax import linen as nn
from jax.typing import ArrayLike

from fedax.models.inputs import as_rows, precision


class Linear(nn.Module):
    """One dense layer.

    Input is [batch, ...], every axis after the first a feature; bytes (uint8) are divided by 255.

    Args:
        outputs: targets or classes, 1 or more.
        use_bias: whether there is an intercept b.
        kernel_init: "zeros", or "lecun" for W normal with variance 1 / features.

    >>> import jax, jax.numpy as jnp
    >>> model = Linear(outputs=2)
    >>> params = model.init(jax.random.key(0), jnp.ones((1, 3)))
    >>> model.apply(params, jnp.ones((4, 3))).shape
    (4, 2)
    """

    outputs: int
    use_bias: bool = True
    kernel_init: Literal["zeros", "lecun"] = "zeros"

    @nn.compact
    def __call__(self, x: ArrayLike) -> jax.Array:
        zeros, lecun = nn.initializers.zeros_init(), nn.initializers.lecun_normal()
        kernel = zeros if self.kernel_init == "zeros" else lecun
        layer = nn.Dense(self.outputs, self.use_bias, kernel_init=kernel, param_dtype=precision())
        return layer(as_rows(x))
