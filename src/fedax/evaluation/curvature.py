"""How curved a loss is: power iteration on Hessian-vector products, and the largest curvature of clients' losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedax.client.device_data import Data, Disk
from fedax.client.plan import Plan
from fedax.client.round import Client
from fedax.model_state import parted, running
from fedax.problem import Problem
from fedax.vectors import Vector, norm

CLIENTS, ITERATIONS = 8, 30
PRECISION = 1e-4  # relative: where power iteration may stop early


def smoothness(problem: Problem, plan: Plan, data: Data | Disk, x: Vector) -> float:
    """An estimate from below of L = max_i ||H_i(x)|| over the first few clients, psi left out."""

    def build() -> Any:
        def one(x: Vector, data: Data, i: Any) -> Any:
            oracle, (params, state) = Client(problem, plan, data, i, 0, 0, True).full(), parted(x.tree)
            at = Vector(params)
            with running(state):
                found = largest(lambda v: oracle.hvp(at, v), at, ITERATIONS)
            return jnp.hypot(*found)  # ||H v||, v the last unit vector

        return jax.jit(lambda x, data, who: jnp.max(jax.lax.map(lambda i: one(x, data, i), who)))

    who = jnp.arange(min(CLIENTS, plan.clients))
    return float(problem.program(("smoothness", plan), build)(x, data.some(who)[0], who))


def largest(product: Callable[[Vector], Vector], like: Vector, iterations: int) -> tuple[jax.Array, jax.Array]:
    """The largest eigenvalue in size of a symmetric matrix by power iteration, and how far off it may be.

    product: v to the matrix times v. The value is v'Hv at the last unit vector v, the other ||Hv - (v'Hv) v||.

    >>> found, error = largest(lambda v: Vector(jnp.array([3.0, 1.0]) * v.tree), Vector(jnp.zeros(2)), 100)
    >>> round(float(found), 4), bool(error < 1e-3)
    (3.0, True)
    """

    def step(state: Any) -> Any:
        k, v, *_ = state
        v = v / norm(v)
        w = product(v)
        value = v @ w
        return k + 1, w, value, norm(w - value * v)  # some eigenvalue is as near as this

    def going(state: Any) -> Any:
        k, w, value, error = state
        return (k < iterations) & (error > PRECISION * jnp.abs(value)) & (norm(w) > 0)

    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(jax.random.key(0), len(leaves))
    drawn = [jax.random.normal(k, a.shape, a.dtype) for k, a in zip(keys, leaves, strict=True)]
    zero = jnp.zeros((), jnp.result_type(*leaves))
    first = (0, jax.tree.unflatten(structure, drawn), zero, zero + jnp.inf)
    _, _, value, error = jax.lax.while_loop(going, step, first)
    return value, error
