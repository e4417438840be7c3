"""The loss of a linear support vector machine with several classes, for FedDeper's Figure 1."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def multiclass_hinge(z: jax.Array, y: jax.Array) -> jax.Array:
    """max(0, 1 + the largest output of another class - the label's output) for each row (Crammer and Singer).

    >>> multiclass_hinge(jnp.array([[2.0, 0.5, 0.0], [0.0, 0.5, 0.0]]), jnp.array([0, 0])).tolist()
    [0.0, 1.5]
    """
    label = jax.nn.one_hot(y.astype(jnp.int32), z.shape[-1], dtype=bool)
    own = jnp.max(jnp.where(label, z, -jnp.inf), axis=-1)
    other = jnp.max(jnp.where(label, -jnp.inf, z), axis=-1)
    return jnp.maximum(0, 1 + other - own)
