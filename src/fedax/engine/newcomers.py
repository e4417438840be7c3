"""Newcomers: clients held out from training that join when it is over; the method's rule makes their models."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from fedax.algorithms.base import Algorithm, Context
from fedax.client import shares
from fedax.client.device_data import place_data
from fedax.client.plan import Plan, make_plan
from fedax.client.round import Client
from fedax.data.federation import Federation
from fedax.engine.config import RunConfig
from fedax.engine.devices import choose_devices
from fedax.engine.executors import cohort_program
from fedax.engine.rounds import Engine
from fedax.engine.state import State
from fedax.errors import FedaxError
from fedax.evaluation import Measurement, Meter, Meters
from fedax.problem import Problem

_PURPOSE = 0x0E1D
Index = NDArray[np.int64]


def hold_out(clients: int, share: float, seed: int) -> tuple[Index, Index]:
    """The clients that train and those held out, each in order; a function of the seed alone.

    >>> seen, unseen = hold_out(10, 0.2, seed=0)
    >>> len(seen), len(unseen), sorted([*seen.tolist(), *unseen.tolist()]) == list(range(10))
    (8, 2, True)
    """
    count = max(1, round(share * clients)) if share else 0
    if count >= clients:
        raise FedaxError(f"unseen={share} leaves no client to train: the federation has {clients}")
    order = np.random.default_rng([seed, _PURPOSE]).permutation(clients)
    return np.sort(order[count:]), np.sort(order[:count])


class Newcomers:
    """The clients held out from training, with a plan of their own."""

    def __init__(
        self,
        problem: Problem,
        federation: Federation,
        config: RunConfig,
        plan: Plan,
        arrays: dict[str, Any],
        parts: list[str],
        x0: Any,
    ) -> None:
        """plan: of the clients that train; a newcomer works as much as they did on average, unless told otherwise."""
        visits = max(1, round(config.rounds * plan.cohort / plan.clients))
        passes = None if config.local_epochs is None or config.join_steps else config.local_epochs * visits
        each = config.join_steps or (None if passes else (config.local_steps or 1) * visits)
        own = dataclasses.replace(config, local_steps=each, local_epochs=passes)
        self.plan, steps = make_plan(federation, own, cohort=None)
        self.executor, self.mesh = choose_devices("auto", problem, x0, arrays, self.plan, steps)
        theirs = jax.random.fold_in(jax.random.key(config.seed), _PURPOSE)
        self.engine = Engine(problem, self.plan, self.executor, self.mesh, theirs)
        self.problem, self.x0, self.restarts = problem, x0, config.join_restarts
        others = [federation.part(part) for part in ("validation", "test")]
        self.data = place_data(arrays, federation.train, steps, self.mesh, others=others)
        batched = 1 if self.executor.name == "looped" else self.executor.chunk
        self.meters = Meters(
            (name, Meter(problem, self.plan, self.mesh, r.start, r.count, batched, self.engine.seed))
            for name in parts
            if (r := federation.part(name)).count.sum()
        )

    def join(self, algorithm: Algorithm, server: Any, round: int) -> State:
        """Every newcomer's state, by the method's rule, after `round` rounds of training. The state's round is the one
        that schedules of rates are read at."""
        round = 0 if self.restarts else round
        start = self.engine.start(algorithm, self.x0)
        key = ("join", self.plan, self.executor, self.mesh)
        program = self.problem.program(
            key,
            lambda: jax.jit(cohort_program(self.problem, self.plan, self.executor, self.mesh, Client.join, table=True)),
        )
        every = np.arange(self.plan.cohort)
        if divided := shares.is_divided(self.mesh):
            who = shares.arranged(self.mesh, every[None], self.executor.places)[0]
            weights = shares.is_taken(who).astype(np.float32)
        else:
            who = np.pad(every, (0, self.executor.places - len(every))).astype(np.int32)
            weights = (np.arange(len(who)) < len(every)).astype(np.float32)
        server, near = self.engine.place(server), self.data.for_round(self.plan, self.engine.seed, round, who)
        _, states, _ = program(algorithm, server, start.clients, who, weights, (), self.engine.seed, round, near)
        if divided:
            states = shares.tabled(self.mesh, states, who)
        else:
            states = jax.tree.map(lambda s: s[: self.plan.cohort], states)
        return State(server, states, round)

    def measure(self, algorithm: Algorithm, state: State) -> dict[str, dict[str, Measurement]]:
        """Each part's metrics of the newcomers' own models."""
        algorithm = algorithm.at(Context(round=state.round, steps=self.plan.max_steps))
        return self.meters.personal(algorithm, state.server, state.clients, self.data) if self.meters else {}
