"""Rows of a table by their numbers. A number outside of the table gives NaN, which stops a run."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedax.models.torch.registry import operation

SUM, MEAN, MAX = range(3)


@operation("aten.embedding.default")
def embedding(weight: jax.Array, places: jax.Array, padding: int = -1, *rest: Any) -> jax.Array:
    """The rows of a table; that of the padding gets no gradient.

    >>> table = jnp.array([[1.0], [2.0]])
    >>> jax.grad(lambda w: embedding(w, jnp.array([0, 1, 1]), 0).sum())(table).tolist()
    [[0.0], [2.0]]
    """
    rows = jnp.take(weight, places, axis=0)
    return rows if padding < 0 else jnp.where((places == padding)[..., None], lax.stop_gradient(rows), rows)


@operation("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default")
def embedding_bag(
    weight: jax.Array,
    places: jax.Array,
    offsets: jax.Array,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    row_weights: jax.Array | None = None,
    include_last_offset: bool = False,
    padding: int = -1,
) -> tuple[Any, ...]:
    """The sum, mean or maximum of the rows of each bag; a bag is the places from its offset to the next one."""
    bags = len(offsets) - int(include_last_offset)
    bag = jnp.searchsorted(offsets[:bags], jnp.arange(len(places)), side="right") - 1
    rows, counts = jnp.take(weight, places, axis=0), (places != padding)
    number = jax.ops.segment_sum(counts.astype(weight.dtype), bag, bags)
    if mode == MAX:
        lowest = jnp.where(counts[:, None], rows, -jnp.inf)
        found = jax.ops.segment_max(lowest, bag, bags)
        return jnp.where(number[:, None] > 0, found, 0.0), bag, number, bag
    rows = rows if row_weights is None else rows * row_weights[:, None]
    total = jax.ops.segment_sum(jnp.where(counts[:, None], rows, 0.0), bag, bags)
    return total / jnp.maximum(number, 1)[:, None] if mode == MEAN else total, bag, number, bag
