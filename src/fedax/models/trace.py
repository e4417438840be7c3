"""Regression on matrices.

    z = <X, W> + b = trace(X' W) + b

W has the shape of a row, so that a nuclear norm can make it low-rank. Convex, so it starts at zero.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.typing import ArrayLike

from fedax.models.inputs import as_float, precision


class Trace(nn.Module):
    """The inner product of a row of any shape with a parameter of the same shape.

    Args:
        outputs: targets, 1 or more; with several, the parameter has a last axis for them.
        use_bias: whether there is an intercept b.

    >>> import jax, jax.numpy as jnp
    >>> model = Trace()
    >>> params = model.init(jax.random.key(0), jnp.ones((1, 3, 2)))
    >>> params["params"]["kernel"].shape, model.apply(params, jnp.ones((4, 3, 2))).shape
    ((3, 2), (4, 1))
    """

    outputs: int = 1
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: ArrayLike) -> jax.Array:
        rows = as_float(x)
        zeros = nn.initializers.zeros_init()
        shape = rows.shape[1:] if self.outputs == 1 else (*rows.shape[1:], self.outputs)
        kernel = self.param("kernel", zeros, shape, precision())
        z = rows.reshape(rows.shape[0], -1) @ kernel.reshape(-1, self.outputs)
        bias = self.param("bias", zeros, (self.outputs,), precision()) if self.use_bias else jnp.zeros((), z.dtype)
        return z + bias
