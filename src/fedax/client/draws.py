"""Who takes part in a round, and which rows each client's minibatches hold: functions of (seed, round, client) alone.

These draws are programs of their own, shared by every method of a plan; the program that runs a method is given their
row numbers.
"""

from __future__ import annotations

import functools
from typing import Any

import jax

from fedax import randomness
from fedax.client.plan import Plan


def minibatch_rows(plan: Plan, count: Any, seed: Any, round: Any, client: Any) -> jax.Array:
    """The row numbers [steps, batch] of one client's minibatches in a round; `count` is how many rows it has."""
    assert plan.batch is not None
    key = randomness.key_for(seed, randomness.ROWS, round, client)
    rows: jax.Array = randomness.draw_rows(
        key, plan.max_steps, plan.batch, count, plan.sampling, least=plan.min_rows, most=plan.max_rows
    )
    return rows


@functools.lru_cache(maxsize=32)
def minibatches_program(plan: Plan) -> Any:
    """The compiled rows(seed, round, clients, counts) -> [clients, steps, batch] of one round's minibatches."""

    def one(seed: Any, round: Any, client: Any, count: Any) -> jax.Array:
        return minibatch_rows(plan, count, seed, round, client)

    return jax.jit(jax.vmap(one, in_axes=(None, None, 0, 0)))


@functools.lru_cache(maxsize=32)
def cohorts_program(clients: int, cohort: int) -> Any:
    """The compiled cohorts(seed, rounds) -> [rounds, cohort], the clients of each round."""
    one = functools.partial(randomness.draw_cohort, clients=clients, cohort=cohort)
    return jax.jit(jax.vmap(one, in_axes=(None, 0)))
