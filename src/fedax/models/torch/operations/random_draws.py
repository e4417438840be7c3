"""Dropout and noise. Every call in a module draws from a key of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fedax.models.torch.registry import operation


def dropped(key: jax.Array, x: jax.Array, p: float) -> jax.Array:
    """x with each entry zero with probability p, and the others divided by 1 - p."""
    if p >= 1:
        return jnp.zeros_like(x)
    kept = jax.random.bernoulli(key, 1 - p, x.shape)
    return jnp.where(kept, x / (1 - p), 0.0)


@operation("aten.native_dropout.default", draws=lambda x, p, train: bool(train) and p > 0)
def dropout(x: jax.Array, p: float, train: bool | None, *, key: jax.Array | None = None) -> tuple[Any, ...]:
    """Dropout in training, else x."""
    return x if key is None else dropped(key, x, p), None


@operation("aten.bernoulli.p", draws=True)
def bernoulli(x: jax.Array, p: float = 0.5, *, key: jax.Array) -> jax.Array:
    """One with probability p, else zero, in the shape of x."""
    return jax.random.bernoulli(key, p, x.shape).astype(x.dtype)


@operation("aten.bernoulli.default", draws=True)
def bernoulli_of(p: jax.Array, *, key: jax.Array) -> jax.Array:
    """One with the probability that each entry says."""
    return jax.random.bernoulli(key, p).astype(p.dtype)


@operation("aten.rand.default", draws=True)
def uniform(shape: Sequence[int], dtype: Any = None, *, key: jax.Array) -> jax.Array:
    """Uniform on [0, 1)."""
    return jax.random.uniform(key, tuple(shape))


@operation("aten.rand_like.default", draws=True)
def uniform_like(x: jax.Array, dtype: Any = None, *, key: jax.Array) -> jax.Array:
    """Uniform on [0, 1), in the shape of x."""
    return jax.random.uniform(key, x.shape)


@operation("aten.randn.default", draws=True)
def normal(shape: Sequence[int], dtype: Any = None, *, key: jax.Array) -> jax.Array:
    """Standard normal."""
    return jax.random.normal(key, tuple(shape))


@operation("aten.randn_like.default", draws=True)
def normal_like(x: jax.Array, dtype: Any = None, *, key: jax.Array) -> jax.Array:
    """Standard normal, in the shape of x."""
    return jax.random.normal(key, x.shape)


@operation("aten.normal.float_float", draws=True)
def normal_with(mean: float, deviation: float, shape: Sequence[int], dtype: Any = None, *, key: jax.Array) -> jax.Array:
    """Normal with a mean and a deviation."""
    return mean + deviation * jax.random.normal(key, tuple(shape))


@operation("aten.normal_functional.default", draws=True)
def normal_filled(x: jax.Array, mean: float = 0.0, deviation: float = 1.0, *, key: jax.Array) -> jax.Array:
    """Normal, in the shape of x."""
    return mean + deviation * jax.random.normal(key, x.shape)


@operation("aten.uniform.default", draws=True)
def uniform_filled(x: jax.Array, low: float = 0.0, high: float = 1.0, *, key: jax.Array) -> jax.Array:
    """Uniform between bounds, in the shape of x."""
    return jax.random.uniform(key, x.shape, minval=low, maxval=high)


@operation("aten.exponential.default", draws=True)
def exponential(x: jax.Array, rate: float = 1.0, *, key: jax.Array) -> jax.Array:
    """Exponential with a rate, in the shape of x."""
    return jax.random.exponential(key, x.shape) / rate


@operation("aten.randint.low", draws=True)
def integers(low: int, high: int, shape: Sequence[int], dtype: Any = None, *, key: jax.Array) -> jax.Array:
    """Whole numbers from low to high - 1."""
    return jax.random.randint(key, tuple(shape), low, high)


@operation("aten.randint.default", draws=True)
def integers_below(high: int, shape: Sequence[int], dtype: Any = None, *, key: jax.Array) -> jax.Array:
    """Whole numbers from 0 to high - 1."""
    return integers(0, high, shape, key=key)
