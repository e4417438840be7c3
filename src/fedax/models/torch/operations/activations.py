"""Activations, with PyTorch's gradients where a function has a kink."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fedax.models.torch.registry import operation

operation("aten.relu.default")(jax.nn.relu)
operation("aten.silu.default")(jax.nn.silu)
operation("aten.mish.default")(jax.nn.mish)
operation("aten.log_sigmoid.default")(jax.nn.log_sigmoid)


@operation("aten.softmax.int", "aten._softmax.default", "aten._safe_softmax.default")
def softmax(x: jax.Array, axis: int, *rest: Any, **options: Any) -> jax.Array:
    """exp(x) over its sum."""
    return jax.nn.softmax(x, axis)


@operation("aten.log_softmax.int", "aten._log_softmax.default")
def log_softmax(x: jax.Array, axis: int, *rest: Any, **options: Any) -> jax.Array:
    """The logarithm of softmax."""
    return jax.nn.log_softmax(x, axis)


@operation("aten.leaky_relu.default")
def leaky_relu(x: jax.Array, slope: float = 0.01) -> jax.Array:
    """x where it is above zero, else slope x."""
    return jnp.where(x > 0, x, slope * x)


@operation("aten.prelu.default", "aten._prelu_kernel.default")
def prelu(x: jax.Array, slope: jax.Array) -> jax.Array:
    """Leaky ReLU with a slope for each channel, the second axis, or one for all."""
    if slope.ndim == 1 and x.ndim > 1:
        slope = slope.reshape(1, -1, *([1] * (x.ndim - 2)))
    return jnp.where(x > 0, x, slope * x)


@operation("aten.elu.default")
def elu(x: jax.Array, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> jax.Array:
    """scale x above zero, else scale alpha (exp(input_scale x) - 1); ELU, SELU and CELU."""
    low = jnp.where(x > 0, 0.0, x)  # no overflow in the branch that is not taken
    return jnp.where(x > 0, scale * x, scale * alpha * jnp.expm1(input_scale * low))


@operation("aten.celu.default")
def celu(x: jax.Array, alpha: float = 1.0) -> jax.Array:
    """x above zero, else alpha (exp(x / alpha) - 1)."""
    return elu(x, alpha, 1.0, 1.0 / alpha)


@operation("aten.hardtanh.default")
def hardtanh(x: jax.Array, low: float = -1.0, high: float = 1.0) -> jax.Array:
    """x between two bounds; at and beyond them the gradient is zero.

    >>> float(jax.grad(hardtanh)(1.0)), float(jax.grad(hardtanh)(0.5))
    (0.0, 1.0)
    """
    within = (x > low) & (x < high)
    return jnp.where(within, x, jnp.where(x <= low, jnp.asarray(low, x.dtype), jnp.asarray(high, x.dtype)))


@operation("aten.hardsigmoid.default")
def hardsigmoid(x: jax.Array) -> jax.Array:
    """(x + 3) / 6 between 0 and 1."""
    return hardtanh(x, -3.0, 3.0) / 6 + 0.5


@operation("aten.hardswish.default")
def hardswish(x: jax.Array) -> jax.Array:
    """x (x + 3) / 6 between -3 and 3, 0 below, x above."""
    return jnp.where(x <= -3, 0.0, jnp.where(x < 3, x * (x + 3) / 6, x))


@operation("aten.hardshrink.default")
def hardshrink(x: jax.Array, size: float = 0.5) -> jax.Array:
    """x without what is near zero."""
    return jnp.where(jnp.abs(x) > size, x, 0.0)


@operation("aten.softshrink.default")
def softshrink(x: jax.Array, size: float = 0.5) -> jax.Array:
    """x moved towards zero."""
    return jnp.where(x > size, x - size, jnp.where(x < -size, x + size, 0.0))


@operation("aten.threshold.default")
def threshold(x: jax.Array, level: float, value: float) -> jax.Array:
    """x above a level, else a value."""
    return jnp.where(x > level, x, jnp.asarray(value, x.dtype))


@operation("aten.softplus.default")
def softplus(x: jax.Array, beta: float = 1.0, level: float = 20.0) -> jax.Array:
    """log(1 + exp(beta x)) / beta; x itself where beta x is above a level."""
    return jnp.where(beta * x > level, x, jax.nn.softplus(beta * x) / beta)


@operation("aten.gelu.default")
def gelu(x: jax.Array, approximate: str = "none") -> jax.Array:
    """x times the normal distribution function, or its approximation by tanh."""
    return jax.nn.gelu(x, approximate=approximate == "tanh")


@operation("aten.glu.default")
def glu(x: jax.Array, axis: int = -1) -> jax.Array:
    """One half of x times the sigmoid of the other."""
    a, b = jnp.split(x, 2, axis)
    return a * jax.nn.sigmoid(b)


def _in_training(x: Any, noise: Any, lower: float = 0.0, upper: float = 0.0, training: bool = False, *_: Any) -> bool:
    return training


@operation("aten.rrelu_with_noise_functional.default", draws=_in_training)
def rrelu(
    x: jax.Array,
    noise: jax.Array,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
    *,
    key: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Leaky ReLU whose slope is drawn for each entry in training, and the middle of its range otherwise."""
    if key is None:
        return leaky_relu(x, (lower + upper) / 2), noise
    slope = jax.random.uniform(key, x.shape, x.dtype, lower, upper)
    return jnp.where(x > 0, x, slope * x), slope
