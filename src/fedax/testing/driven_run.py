"""A method's rounds on a setting, a few at a time and without evaluation, and how results are compared."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedax.algorithms.base import Algorithm
from fedax.client.round import Client
from fedax.engine import Result, Simulation
from fedax.engine.config import RunConfig
from fedax.engine.prepare import Prepared
from fedax.engine.result import unwrap
from fedax.engine.state import State
from fedax.testing.findings import Broken
from fedax.testing.problems import Array, Case, ragged

ROUNDS = 4
TOLERANCE = 1e-9  # relative, in double precision, over a few rounds


class DrivenRun:
    """One run that the checks drive by hand."""

    def __init__(self, algorithm: Algorithm, setting: Case, *, seed: int = 0, **options: Any) -> None:
        settings = {"executor": "batched", "devices": 1, **setting.options, **options}
        self.algorithm = algorithm
        config = RunConfig(rounds=1, seed=seed, **settings)
        self.prepared = Prepared.of(setting.problem, setting.federation, algorithm, config)
        self._run = Simulation.of(self.prepared)

    @property
    def result(self) -> Result:
        """What the run has made so far."""
        return self._run.result

    def work(self, steps: Sequence[int]) -> DrivenRun:
        """Give each client its own number of local steps, at most as many as the busiest had before."""
        run = self.prepared
        taken, plan = np.asarray(steps, np.int64), dataclasses.replace(run.plan, equal_steps=False)
        run.engine.plan = run.engine.draws.plan = plan
        data: Any = run.data
        data = dataclasses.replace(data, steps=run.engine.place(jnp.asarray(taken, jnp.int32)))
        self.prepared = dataclasses.replace(run, steps=taken, plan=plan, data=data)
        return self

    def advance(self, rounds: int = 1) -> DrivenRun:
        """Run some rounds."""
        run, state = self.prepared, self._run.state
        last = state.round + rounds
        while state.round < last:
            after, good = run.engine.advance(self.algorithm, state, last - state.round, run.data)
            state.moved(after)
            if not good:
                name = type(self.algorithm).__name__
                raise Broken(f"{name} met NaN or infinity in round {state.round + 1}; is its rate too large?")
        return self

    @property
    def state(self) -> State:
        """A copy of the server's and all clients' states, in NumPy."""
        now = self._run.state
        server, clients = jax.tree.map(np.array, (now.server, now.clients))
        return State(server, clients, now.round)

    def resume(self, state: State) -> DrivenRun:
        """Go on from a state."""
        copies = jax.tree.map(jnp.array, (state.server, state.clients))
        server, clients = self.prepared.engine.place(copies)
        self._run.state.moved(State(server, clients, state.round))
        return self

    @property
    def shared(self) -> Array:
        """The shared model as one vector."""
        return flat(self.algorithm.model(self._run.state.server))

    @property
    def personal(self) -> Array:
        """Every client's own model, a row each."""
        run = self.prepared
        models = run.engine.personal(self.algorithm, self._run.state, run.data)
        return np.concatenate([np.reshape(a, (run.plan.clients, -1)) for a in jax.tree.leaves(models)], axis=1)

    def cohort(self, round: int) -> list[int]:
        """Who takes part in a round, from 0."""
        who: list[int] = self.prepared.engine.draws.cohorts(round, round + 1)[0].tolist()
        return who

    def client(self, number: int, round: int = 0) -> Client:
        """One client in one round, for calling the method's functions one by one."""
        run = self.prepared
        data: Any = run.data
        return Client(run.problem, run.plan, data, np.int32(number), run.engine.seed, round, self.algorithm.composite)


@dataclasses.dataclass(frozen=True)
class Subject:
    """The method under test, and what several checks need of it."""

    algorithm: Algorithm
    seed: int

    @property
    def name(self) -> str:
        return type(self.algorithm).__name__

    def trial(self, setting: Case, **options: Any) -> DrivenRun:
        """A run of the method itself."""
        return DrivenRun(self.algorithm, setting, seed=self.seed, **options)

    @property
    def uneven(self) -> Case:
        """Minibatches, partial participation and clients of unequal size, who do unequal work if the method allows."""
        setting = ragged(self.seed)
        if not self.algorithm.lockstep:
            return setting
        return dataclasses.replace(setting, options={**setting.options, "local_epochs": None, "local_steps": 3})

    @functools.cached_property
    def states(self) -> list[State]:
        """The states before and after each of the first rounds with minibatches and unequal work."""
        trial = self.trial(self.uneven)
        return [trial.state, *(trial.advance().state for _ in range(ROUNDS))]


def flat(tree: Any) -> Array:
    """All numbers of a tree as one vector."""
    leaves = [np.ravel(np.asarray(leaf)) for leaf in jax.tree.leaves(unwrap(tree))]
    return np.concatenate(leaves) if leaves else np.zeros(0)


def apart(a: Any, b: Any) -> str:
    """How two trees differ in structure, shape, dtype or bits; empty if they do not."""
    one: Any = jax.tree.structure(a)
    other: Any = jax.tree.structure(b)
    if one != other:
        return f"their trees are {one} and {other}"
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        u, v = np.asarray(x), np.asarray(y)
        if (u.shape, u.dtype) != (v.shape, v.dtype):
            return f"one holds {u.dtype}{list(u.shape)} where the other has {v.dtype}{list(v.shape)}"
    if [_bits(x) for x in jax.tree.leaves(a)] == [_bits(x) for x in jax.tree.leaves(b)]:
        return ""
    return f"the largest difference is {gap(a, b):.1e}"


def _bits(leaf: Any) -> bytes:
    return np.asarray(leaf).tobytes()


def gap(a: Any, b: Any) -> float:
    """The largest difference of two trees, relative to the size of their numbers where that is above 1."""
    x, y = flat(a), flat(b)
    if x.size != y.size:
        raise Broken(f"{x.size} numbers against {y.size}")
    if not x.size:
        return 0.0
    return float(np.max(np.abs(x - y)) / max(1.0, float(np.max(np.abs(y)))))


def shown(x: Array) -> str:
    """The first numbers of a vector."""
    some = ", ".join(f"{value:.6g}" for value in x[:3])
    return f"[{some}{', ...' if x.size > 3 else ''}]"
