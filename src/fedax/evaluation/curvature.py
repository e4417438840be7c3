"""How curved the clients' losses are: the largest eigenvalue of a client's Hessian, by power iteration."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fedax.local import Client, Data, Plan
from fedax.problem import Problem
from fedax.vectors import Vector, norm

CLIENTS, ITERATIONS = 8, 30


def smoothness(problem: Problem, plan: Plan, data: Data, x: Vector) -> float:
    """An estimate from below of L = max_i ||H_i(x)|| over the first few clients, psi left out."""

    def build() -> Any:
        def one(x: Vector, data: Data, i: Any) -> Any:
            oracle = Client(problem, plan, data, i, 0, 0, True).full()
            keys = jax.random.split(jax.random.key(0), len(jax.tree.leaves(x)))
            drawn = [jax.random.normal(k, a.shape, a.dtype) for k, a in zip(keys, jax.tree.leaves(x), strict=True)]
            start = jax.tree.unflatten(jax.tree.structure(x), drawn)

            def step(_: Any, state: Any) -> Any:
                v, _ = state
                product = oracle.hvp(x, v / norm(v))
                return product, norm(product)

            return jax.lax.fori_loop(0, ITERATIONS, step, (start, norm(start)))[1]

        return jax.jit(lambda x, data, who: jnp.max(jax.lax.map(lambda i: one(x, data, i), who)))

    who = jnp.arange(min(CLIENTS, plan.clients))
    return float(problem.program(("smoothness", plan), build)(x, data, who))
