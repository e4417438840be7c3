"""Who takes part in a round, and which rows each client's minibatches hold: functions of (seed, round, client) alone.

These draws are programs of their own, shared by every method of a plan; the program that runs a method is given their
row numbers.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from numpy.typing import NDArray

from fedax import randomness
from fedax.client import shares
from fedax.client.availability import Presence
from fedax.client.plan import Plan

BLOCK = 64  # rounds that are drawn at a time, at most
ROOM = 1 << 22  # row numbers of a block, at most
Cohorts = NDArray[np.int32]


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


class Draws:
    """The cohorts of a run and the rows of their minibatches, a block of rounds at a time.

    A block's row numbers are a small array. Programs that run methods are given them, so what draws them is compiled
    once for all methods of a plan. Shorter runs are given arrays of the same shape, empty beyond their rounds, so that
    runs of any length share the programs of the methods.
    """

    def __init__(
        self, plan: Plan, places: int, mesh: Mesh, seed: jax.Array, rounds: int, presence: Presence | None = None
    ) -> None:
        """places: of the cohort, with those that are left over filled by client 0; of several processes, as
        `shares.arranged` has them. rounds: of the run. presence: who is there, everybody unless given."""
        self.plan, self.places, self.mesh, self.seed, self.presence = plan, places, mesh, seed, presence
        each = places * plan.max_steps * (plan.batch or 0)
        self.most = max(1, min(BLOCK, ROOM // max(1, each)))  #: rounds that a block has room for
        self.rounds = min(self.most, rounds)  #: of a block
        self._cohorts: tuple[int, Cohorts] | None = None
        self._rows: tuple[int, Any] | None = None

    def left(self, round: int) -> int:
        """The number of rounds from this one to the end of its block."""
        return self.rounds - round % self.rounds

    def cohorts(self, first: int, last: int) -> Cohorts:
        """The clients of the rounds first .. last-1, one row a round; ~c at the place of one who is not there."""
        blocks = range(first // self.rounds, (last - 1) // self.rounds + 1)
        every = np.concatenate([self.block(block) for block in blocks])
        begin = first - blocks.start * self.rounds
        return every[begin : begin + last - first]

    def block(self, block: int) -> Cohorts:
        """The cohorts of a block, by its number."""
        if self._cohorts is None or self._cohorts[0] != block:
            rounds = np.arange(block * self.rounds, (block + 1) * self.rounds, dtype=np.int32)
            program = cohorts_program if self.presence is None else orders_program
            drawn = np.asarray(program(self.plan.clients, self.plan.cohort)(self.seed, rounds))
            if self.presence is not None:
                each = zip(rounds.tolist(), drawn, strict=True)
                drawn = np.stack([self.presence.drawn(r, order, self.plan.cohort) for r, order in each])
            self._cohorts = block, drawn
        return self._cohorts[1]

    def who(self, round: int) -> Cohorts:
        """The block of a round: its cohorts [rounds, places], filled up to `most` rounds."""
        drawn = self._drawn(round)
        return np.pad(drawn, ((0, self.most - len(drawn)), (0, 0)))

    def _drawn(self, round: int) -> Cohorts:
        drawn = self.block(round // self.rounds)
        if shares.is_divided(self.mesh):
            return shares.arranged(self.mesh, drawn, self.places)
        nobody = ~0 if self.plan.sometimes else 0
        return np.pad(drawn, ((0, 0), (0, self.places - self.plan.cohort)), constant_values=nobody)

    def rows(self, round: int, count: Any) -> Any:
        """The block of a round: its minibatches' rows [rounds, places, steps, batch], filled up as the cohorts are.

        They are () for full local gradients. count: how many rows each client has.
        """
        if self.plan.batch is None:
            return ()
        block = round // self.rounds
        if self._rows is None or self._rows[0] != block:
            self._rows = None  # given up before the next is made
            rounds = np.arange(block * self.rounds, (block + 1) * self.rounds, dtype=np.int32)
            program = block_program(self.plan, self.mesh, self.most)
            self._rows = block, program(self.seed, rounds, self._drawn(round), count)
        return self._rows[1]


@functools.lru_cache(maxsize=32)
def cohorts_program(clients: int, cohort: int) -> Any:
    """The compiled cohorts(seed, rounds) -> [rounds, cohort], the clients of each round."""
    one = functools.partial(randomness.draw_cohort, clients=clients, cohort=cohort)
    return jax.jit(jax.vmap(one, in_axes=(None, 0)))


@functools.lru_cache(maxsize=32)
def orders_program(clients: int, cohort: int) -> Any:
    """The compiled orders(seed, rounds) -> [rounds, clients]: all clients in the order in which a cohort takes them."""

    def one(seed: Any, round: Any) -> jax.Array:
        if cohort == clients:
            return jax.numpy.arange(clients)
        key = randomness.key_for(seed, randomness.COHORT, round)
        order: jax.Array = randomness.shuffled(key, jax.numpy.arange(clients), clients)
        return order

    return jax.jit(jax.vmap(one, in_axes=(None, 0)))


def busiest_process(plan: Plan, processes: int, seed: jax.Array, rounds: int) -> int:
    """The most clients that a process has in any of a run's rounds."""
    if plan.cohort == plan.clients:
        return -(-plan.cohort // processes)
    draw, most = cohorts_program(plan.clients, plan.cohort), 0
    for first in range(0, rounds + BLOCK, BLOCK):  # the last block also has rounds beyond the end
        drawn = draw(seed, np.arange(first, first + BLOCK, dtype=np.int32))
        most = max(most, shares.busiest(processes, np.asarray(drawn)))
    return most


def participation(plan: Plan, seed: jax.Array, rounds: int) -> NDArray[np.int64]:
    """How often each client takes part in the first rounds."""
    if plan.cohort == plan.clients:
        return np.full(plan.clients, rounds, np.int64)
    draw, counts = cohorts_program(plan.clients, plan.cohort), np.zeros(plan.clients, np.int64)
    for first in range(0, rounds, BLOCK):
        drawn = np.asarray(draw(seed, np.arange(first, first + BLOCK, dtype=np.int32)))
        np.add.at(counts, drawn[: rounds - first].ravel(), 1)
    return counts


@functools.lru_cache(maxsize=32)
def block_program(plan: Plan, mesh: Mesh, most: int) -> Any:
    """The compiled rows(seed, rounds, who, count) -> [most, places, steps, batch] of some rounds' minibatches."""

    def one(seed: Any, round: Any, client: Any, count: Any) -> jax.Array:
        if shares.is_divided(mesh) or plan.sometimes:
            client = shares.client_at(client)
        return minibatch_rows(plan, count[client], seed, round, client)

    a_round = jax.vmap(one, in_axes=(None, None, 0, None))

    def block(seed: Any, rounds: Any, who: Any, count: Any) -> Any:
        # one round after the other: what ranking takes stays near the core
        drawn = jax.lax.map(lambda at: a_round(seed, at[0], at[1], count), (rounds, who))
        return jax.numpy.pad(drawn, ((0, most - len(drawn)), *[(0, 0)] * 3))

    spread = P(None, *shares.over_devices(mesh))
    return jax.jit(jax.shard_map(block, mesh=mesh, in_specs=(P(), P(), spread, P()), out_specs=spread, check_vma=False))
