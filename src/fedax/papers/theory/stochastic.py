"""A stochastic problem min over x of F(x) = E f(x; xi) (thesis eq. 2.3), and the theorems' own functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from fedax.data import Federation
from fedax.data.nested import flattened
from fedax.errors import FedaxError
from fedax.problem import Problem
from fedax.vectors import Vector

Objective = Callable[[jax.Array], jax.Array]


@dataclasses.dataclass(frozen=True)
class Stochastic:
    """F, and f(x; xi) with xi drawn by a key. x is one array of any shape."""

    objective: Objective
    sample: Callable[[jax.Array, jax.Array], jax.Array]


def with_noise(objective: Objective, sigma: float) -> Stochastic:
    """f(x; xi) = F(x) + <xi, x> with Gaussian xi, E ||xi||^2 = sigma^2.

    >>> bowl = with_noise(lambda x: jnp.sum(x**2), sigma=0.1)
    >>> x = jnp.array([1.0, 2.0])
    >>> float(bowl.objective(x)), bool(bowl.sample(x, jax.random.key(0)) != 5.0)
    (5.0, True)
    """
    if not sigma > 0:
        raise FedaxError(f"sigma must be above 0, not {sigma}")

    def sample(x: jax.Array, key: jax.Array) -> jax.Array:
        xi = jax.random.normal(key, x.shape, x.dtype) * (sigma / max(1, x.size) ** 0.5)
        return objective(x) + jnp.sum(xi * x)

    return Stochastic(objective, sample)


def of_client(problem: Problem, federation: Federation, client: int, batch_size: int) -> Stochastic:
    """One client's loss through minibatches drawn with replacement; x is its parameters as one array.

    A smooth regularizer belongs to the loss, as it does for the methods; one that is not is refused.

    >>> import numpy as np
    >>> mean = Problem(loss=lambda w, b: jnp.mean((b["x"] - w) ** 2) / 2, init=lambda key: jnp.zeros(1))
    >>> row = of_client(mean, Federation.from_clients([{"x": np.float32([[1], [3]])}]), client=0, batch_size=1)
    >>> float(row.objective(jnp.zeros(1)))
    2.5
    """
    if batch_size < 1:
        raise FedaxError(f"batch_size must be a whole number from 1 on, not {batch_size}")
    psi = problem.regularizer
    if psi is not None and not psi.smooth:
        raise FedaxError(f"the regularizer {psi.name} has no gradient: the iterate bias is defined for smooth problems")
    rows = {name: jnp.asarray(array) for name, array in flattened(federation.client(client)).items()}
    count = len(next(iter(rows.values())))
    first = problem.init(jax.random.key(0), {name: array[:2] for name, array in rows.items()})
    restore = ravel_pytree(first)[1]

    def loss(x: jax.Array, batch: Any) -> jax.Array:
        tree = restore(x)
        value = problem.loss(tree, batch)
        return value if psi is None else value + psi.value(Vector(tree))

    def sample(x: jax.Array, key: jax.Array) -> jax.Array:
        index = jax.random.randint(key, (batch_size,), 0, count)
        return loss(x, {name: array[index] for name, array in rows.items()})

    return Stochastic(lambda x: loss(x, rows), sample)


def piecewise_quadratic(L: float = 1.0, left: float = 0.5) -> Objective:
    """(L/2) psi(x), psi = x^2 right of 0 and left * x^2 left of it, summed over coordinates: eq. 2.4 for left = 1/2.

    Figure 2.1 has L = 2 and left = 1/10. It is L-smooth and convex, and its second derivative jumps at 0.

    >>> piecewise_quadratic(2.0)(jnp.array([-2.0, 2.0])).tolist()
    6.0
    """
    return lambda x: L / 2 * jnp.sum(jnp.where(x >= 0, 1.0, left) * x**2)


@jax.custom_jvp
def _phi(x: jax.Array) -> jax.Array:
    """The integral from 0 to x of log cosh (eq. A.14), by the dilogarithm of -exp(-2|x|); it is odd."""
    a = jnp.abs(x)
    dilogarithm = jax.scipy.special.spence(1 + jnp.exp(-2 * a))
    return jnp.sign(x) * (a**2 / 2 - a * jnp.log(2.0) + dilogarithm / 2 + jnp.pi**2 / 24)


@_phi.defjvp
def _phi_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return _phi(x), (jnp.logaddexp(x, -x) - jnp.log(2.0)) * t


def smooth_bend(L: float = 1.0, Q: float = 1.0) -> Objective:
    """(3/8) L x^2 + L^3 / (64 Q^2) phi(4 Q x / L), phi' = log cosh, summed over coordinates: eq. A.15, Theorem 2.16.

    Its second derivative lies in [L/2, L], its third in [0, Q], and the third is Q at the minimiser 0.

    >>> F = smooth_bend(L=2.0, Q=3.0)
    >>> [round(float(d(0.0)), 6) for d in (jax.grad(F), jax.grad(jax.grad(F)), jax.grad(jax.grad(jax.grad(F))))]
    [0.0, 1.5, 3.0]
    """
    return lambda x: jnp.sum(3 / 8 * L * x**2 + L**3 / (64 * Q**2) * _phi(4 * Q / L * x))
