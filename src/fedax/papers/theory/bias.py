"""The iterate bias of SGD, E[x_SGD after k steps] - x_GD (thesis, Definition 2.5): measured and predicted.

    x <- x - lr grad f(x; xi)            z <- z - lr grad F(z)            from the same point

Measured by Monte Carlo against y <- y - lr (grad f(z; xi) + grad^2 f(z; xi) (y - z)), SGD on the Taylor expansion
around GD's path with the same draws. E[y] = z exactly, for any f, so the mean of x - y is the bias; and y carries
the linear part of the noise, which is all of it on a quadratic.

Predicted by the stochastic differential equation dX = -grad F dt + sqrt(lr) Sigma^(1/2) dB. Its generator is
-grad F . grad + (lr/2) Sigma : grad^2, so the bias is -(1/4) lr^3 k^2 Sigma : grad^3 F. The thesis' eq. 2.29 prints the
generator without the 1/2 and so gets -(1/2); its own upper bound (Theorem A.7) has 1/4, and so have the runs:
on F = (Q/6) x^3, E x_k = -lr (Q/2) sum over j < k of lr^2 sigma^2 j = -(1/4) lr^3 k (k - 1) sigma^2 Q + ...
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedax.errors import FedaxError
from fedax.papers.theory.stochastic import Objective, Stochastic

Array = np.ndarray[Any, np.dtype[Any]]
CHUNK = 1 << 21  # floats of one batch of trajectories
NEAR, NEARER = 1e-3, 1e-5  # where, relative to the point, a jump of the second derivative is looked for


@dataclasses.dataclass(frozen=True)
class Bias:
    """The bias after 1, 2, ... steps, and half the width of its confidence interval, entry by entry."""

    mean: Array
    half: Array

    def after(self, steps: int) -> tuple[Any, Any]:
        """The confidence interval of the bias after a number of steps."""
        if not 1 <= steps <= len(self.mean):
            raise FedaxError(f"steps must be in [1, {len(self.mean)}], not {steps}")
        mean, half = self.mean[steps - 1], self.half[steps - 1]
        return mean - half, mean + half


def iterate_bias(
    problem: Stochastic,
    x: Any,
    *,
    lr: float,
    steps: int,
    samples: int = 4096,
    confidence: float = 0.99,
    seed: int = 0,
    paired: bool = True,
) -> Bias:
    """The iterate bias from x after 1 .. steps steps, with its confidence interval.

    samples: trajectories of SGD. paired: against y (above) rather than against z, for far fewer samples.

    >>> from fedax.papers.theory import piecewise_quadratic, with_noise
    >>> found = iterate_bias(with_noise(piecewise_quadratic(), 1.0), jnp.zeros(()), lr=0.01, steps=20)
    >>> low, high = found.after(20)
    >>> bool(low < high < 0)  # it starts at the minimum, and on average it leaves to the left
    True
    """
    if not lr > 0:
        raise FedaxError(f"lr must be above 0, not {lr}")
    for name, value, least in (("steps", steps, 1), ("samples", samples, 2)):
        if value < least:
            raise FedaxError(f"{name} must be a whole number from {least} on, not {value}")
    if not 0 < confidence < 1:
        raise FedaxError(f"confidence must be in (0, 1), not {confidence}")
    x = jnp.asarray(x, jnp.result_type(float))
    chunk = min(samples, max(2, CHUNK // max(1, x.size)))
    total, squares, size = np.zeros((steps, *x.shape)), np.zeros((steps, *x.shape)), 0.0
    batches = -(-samples // chunk)
    for b in range(batches):
        key = jax.random.fold_in(jax.random.key(seed), b)
        sums = _trajectories(problem, x, lr, key, steps=steps, samples=chunk, paired=paired)
        total, squares, size = total + np.asarray(sums[0]), squares + np.asarray(sums[1]), max(size, float(sums[2]))
    count = batches * chunk
    mean = total / count
    error = np.sqrt(np.maximum(squares / count - mean**2, 0) / (count - 1))
    rounding = float(jnp.finfo(x.dtype).eps) * size * np.arange(1, steps + 1).reshape(-1, *[1] * x.ndim)  # type: ignore[no-untyped-call]
    return Bias(mean, statistics.NormalDist().inv_cdf((1 + confidence) / 2) * error + rounding)


@functools.partial(jax.jit, static_argnames=("problem", "steps", "samples", "paired"))
def _trajectories(
    problem: Stochastic, x0: jax.Array, lr: Any, key: jax.Array, *, steps: int, samples: int, paired: bool
) -> Any:
    """After each step the sums over trajectories of the distance and of its square; the largest entry of all."""
    stochastic = jax.grad(problem.sample)

    def expanded(z: jax.Array, y: jax.Array, draw: jax.Array) -> jax.Array:
        g, h = jax.jvp(lambda p: stochastic(p, draw), (z,), (y - z,))
        result: jax.Array = y - lr * (g + h)
        return result

    def step(carry: Any, k: Any) -> Any:
        z, xs, ys = carry
        draws = jax.random.split(jax.random.fold_in(key, k), samples)
        xs = xs - lr * jax.vmap(stochastic)(xs, draws)
        if paired:
            ys = jax.vmap(expanded, in_axes=(None, 0, 0))(z, ys, draws)
        z = z - lr * jax.grad(problem.objective)(z)
        apart = xs - (ys if paired else z)
        return (z, xs, ys), (jnp.sum(apart, 0), jnp.sum(apart**2, 0), jnp.max(jnp.abs(xs)))

    many = jnp.broadcast_to(x0, (samples, *x0.shape))
    total, squares, size = jax.lax.scan(step, (x0, many, many), jnp.arange(steps))[1]
    return total, squares, jnp.max(size)


def third_derivative(objective: Objective, x: Any, *directions: Any) -> jax.Array:
    """D^3 F(x)[u, v, w] by automatic differentiation; one direction stands for all three.

    A point at which the second derivative along u jumps is refused.

    >>> float(third_derivative(lambda x: x[0] ** 3 * x[1], jnp.array([1.0, 2.0]), jnp.array([1.0, 0.0])))
    12.0
    """
    x = jnp.asarray(x, jnp.result_type(float))
    given = [jnp.asarray(d, x.dtype) for d in directions]
    if len(given) not in (1, 3):
        raise FedaxError(f"third_derivative takes 1 or 3 directions, not {len(given)}")
    u, v, w = given * 3 if len(given) == 1 else given
    check_smooth(objective, x, u)

    def along(function: Any, d: jax.Array) -> Any:
        return lambda p: jax.jvp(function, (p,), (d,))[1]

    result: jax.Array = along(along(along(objective, u), v), w)(x)
    return result


def check_smooth(objective: Objective, x: jax.Array, direction: jax.Array) -> None:
    """Refuse a point at which the second derivative along a direction jumps.

    >>> from fedax.papers.theory import piecewise_quadratic
    >>> check_smooth(piecewise_quadratic(), jnp.zeros(()), jnp.ones(()))
    Traceback (most recent call last):
    fedax.errors.FedaxError: the loss has no third derivative here: its second one jumps from 0.5 to 1 at this point
    """
    size = (1 + jnp.max(jnp.abs(x))) / jnp.sqrt(jnp.sum(direction**2))

    def second(t: Any) -> Any:
        return jax.grad(jax.grad(lambda s: objective(x + s * size * direction)))(t) / size**2

    sides = np.asarray(jax.jit(jax.vmap(jax.vmap(second)))(jnp.array([(-NEAR, NEAR), (-NEARER, NEARER)])))
    sides = sides / float(jnp.sum(direction**2))
    far, near = np.abs(sides[:, 1] - sides[:, 0])
    if near > far / 2 and near > 1e-4 * np.abs(sides).max():
        left, right = sides[1]
        raise FedaxError(
            f"the loss has no third derivative here: its second one jumps from {left:.4g} to {right:.4g} at this point"
        )


def sde_bias(problem: Stochastic, x: Any, *, lr: float, steps: int, samples: int = 1 << 14, seed: int = 0) -> jax.Array:
    """-(1/4) lr^3 k^2 Sigma : grad^3 F, Sigma the covariance of the gradient at x, taken from samples of it.

    >>> from fedax.papers.theory import smooth_bend, with_noise
    >>> round(float(sde_bias(with_noise(smooth_bend(Q=8.0), 1.0), jnp.zeros(()), lr=0.1, steps=10)), 1)
    -0.2
    """
    x = jnp.asarray(x, jnp.result_type(float))
    keys = jax.random.split(jax.random.key(seed), samples)
    full = jax.grad(problem.objective)(x)
    check_smooth(problem.objective, x, jax.grad(problem.sample)(x, keys[0]) - full)

    def bent(key: jax.Array) -> jax.Array:
        noise = jax.grad(problem.sample)(x, key) - full

        def curvature(p: jax.Array) -> jax.Array:
            return jnp.sum(noise * jax.jvp(jax.grad(problem.objective), (p,), (noise,))[1])

        bend: jax.Array = jax.grad(curvature)(x)
        return bend

    total: jax.Array = jax.jit(lambda keys: jnp.mean(jax.lax.map(bent, keys, batch_size=256), 0))(keys)
    return -(lr**3) * steps**2 / 4 * total


def exponent(sizes: Sequence[float] | Array, values: Sequence[float] | Array) -> float:
    """The slope of log values against log sizes, by least squares.

    >>> round(exponent([1.0, 2.0, 4.0], [-3.0, -12.0, -48.0]), 9)
    2.0
    """
    return float(np.polyfit(np.log(sizes), np.log(np.abs(values)), 1)[0])
