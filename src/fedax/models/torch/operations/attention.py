"""Scaled dot product attention; PyTorch writes its attention layers in terms of it."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from fedax.models.torch.registry import operation


def _drops(
    query: Any, key_rows: Any, value: Any, mask: Any = None, dropout_p: float = 0.0, *rest: Any, **_: Any
) -> bool:
    return dropout_p > 0


@operation("aten.scaled_dot_product_attention.default", draws=_drops)
def attention(
    query: jax.Array,
    key_rows: jax.Array,
    value: jax.Array,
    attn_mask: jax.Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    key: jax.Array | None = None,
) -> jax.Array:
    """softmax(Q K' / sqrt(d) + mask) V, with zero for a query whose keys are all masked."""
    if enable_gqa:
        key_rows, value = (jnp.repeat(a, query.shape[-3] // a.shape[-3], axis=-3) for a in (key_rows, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = jnp.matmul(query * factor, key_rows.mT)
    if is_causal:
        attn_mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    if attn_mask is not None:
        scores = jnp.where(attn_mask, scores, -jnp.inf) if attn_mask.dtype == bool else scores + attn_mask
        dead = jnp.all(scores == -jnp.inf, -1, keepdims=True)
        weights = jnp.where(dead, 0.0, jax.nn.softmax(jnp.where(dead, 0.0, scores), -1))
    else:
        weights = jax.nn.softmax(scores, -1)
    if dropout_p > 0:
        assert key is not None
        kept = jax.random.bernoulli(key, 1 - dropout_p, weights.shape)
        weights = jnp.where(kept, weights / (1 - dropout_p), 0.0)
    return jnp.matmul(weights, value)
