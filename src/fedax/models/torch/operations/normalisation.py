"""Normalisations: batch, layer, group; PyTorch writes the others in terms of these."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from fedax.errors import FedaxError
from fedax.models.torch.registry import operation

Arrays = tuple[jax.Array, ...]
Maybe = jax.Array | None


def _of_channels(a: jax.Array, x: jax.Array) -> jax.Array:
    """A number for each channel, the second axis, beside x."""
    return a.reshape(1, -1, *([1] * (x.ndim - 2)))


def _scaled(x: jax.Array, weight: Maybe, bias: Maybe) -> jax.Array:
    x = x if weight is None else x * _of_channels(weight, x)
    return x if bias is None else x + _of_channels(bias, x)


def _by_channel(
    x: jax.Array, mean: jax.Array, variance: jax.Array, weight: Maybe, bias: Maybe, eps: float
) -> jax.Array:
    """(x - mean) / sqrt(variance + eps) * weight + bias, as one product and one sum an entry."""
    factor = lax.rsqrt(variance + eps)
    factor = factor if weight is None else factor * weight
    offset = -mean * factor if bias is None else bias - mean * factor
    return x * _of_channels(factor, x) + _of_channels(offset, x)


@operation("aten._native_batch_norm_legit_no_training.default")
def batch_norm(
    x: jax.Array, weight: Maybe, bias: Maybe, mean: jax.Array, variance: jax.Array, momentum: float, eps: float
) -> Arrays:
    """Batch normalisation by the running statistics."""
    empty = jnp.zeros(0, x.dtype)
    return _by_channel(x, mean, variance, weight, bias, eps), empty, empty


@operation("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(
    x: jax.Array, weight: Maybe, bias: Maybe, training: bool, momentum: float, eps: float
) -> Arrays:
    """Batch normalisation by the batch's own statistics, which are not kept."""
    axes = (0, *range(2, x.ndim))
    mean, variance = x.mean(axes), x.var(axes)
    centred = (x - _of_channels(mean, x)) * _of_channels(lax.rsqrt(variance + eps), x)
    return _scaled(centred, weight, bias), mean, lax.rsqrt(variance + eps)


@operation("aten._native_batch_norm_legit_functional.default")
def batch_norm_in_training(
    x: jax.Array,
    weight: Maybe,
    bias: Maybe,
    running_mean: jax.Array,
    running_variance: jax.Array,
    training: bool,
    momentum: float,
    eps: float,
) -> Arrays:
    """Batch normalisation by the batch's own statistics, and the new running ones.

    running <- (1 - momentum) running + momentum new,  where the new variance is divided by n - 1
    """
    if not training:
        by_running = batch_norm(x, weight, bias, running_mean, running_variance, momentum, eps)
        return *by_running, running_mean, running_variance
    rows = x.size // x.shape[1]
    if rows < 2:
        raise FedaxError("batch normalisation needs two values for each channel in training: take a larger batch_size")
    y, mean, inverse = batch_norm_without_statistics(x, weight, bias, training, momentum, eps)
    variance = lax.stop_gradient(x).var((0, *range(2, x.ndim)), ddof=1)
    new_mean = (1 - momentum) * running_mean + momentum * lax.stop_gradient(mean)
    return y, mean, inverse, new_mean, (1 - momentum) * running_variance + momentum * variance


@operation("aten.native_layer_norm.default")
def layer_norm(x: jax.Array, shape: Sequence[int], weight: Maybe, bias: Maybe, eps: float) -> Arrays:
    """Normalised over the last axes."""
    axes = tuple(range(-len(shape), 0))
    mean, inverse = x.mean(axes, keepdims=True), lax.rsqrt(x.var(axes, keepdims=True) + eps)
    y = (x - mean) * inverse
    y = y if weight is None else y * weight
    return y if bias is None else y + bias, mean, inverse


@operation("aten.native_group_norm.default")
def group_norm(
    x: jax.Array, weight: Maybe, bias: Maybe, rows: int, channels: int, places: int, groups: int, eps: float
) -> Arrays:
    """Normalised over the channels of a group and all places."""
    parts = x.reshape(x.shape[0], groups, -1)
    mean, inverse = parts.mean(-1, keepdims=True), lax.rsqrt(parts.var(-1, keepdims=True) + eps)
    y = ((parts - mean) * inverse).reshape(x.shape)
    return _scaled(y, weight, bias), mean[..., 0], inverse[..., 0]
