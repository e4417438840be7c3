"""`simulate` and `stream`: check everything, run the rounds, evaluate, keep what was made."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from fedax import randomness
from fedax.algorithms.base import Algorithm
from fedax.data.federation import Federation
from fedax.data.lazy import Lazy
from fedax.errors import DivergedError, FedaxError, unknown
from fedax.evaluation import Measurement, Meter, smoothness
from fedax.evaluation.protocol import Clients
from fedax.local import Client, Data, cost
from fedax.problem import Problem
from fedax.simulation.checkpoints import STATES, Checkpoints, fingerprint
from fedax.simulation.debug import DebugEngine
from fedax.simulation.engine import Engine, State
from fedax.simulation.executors import choose
from fedax.simulation.moments import Watch, moments
from fedax.simulation.newcomers import Newcomers, hold_out
from fedax.simulation.plan import check_positive, make_plan
from fedax.simulation.recording import measure
from fedax.simulation.result import HISTORY, History, Result, unwrap, write_whole
from fedax.simulation.store import FileSlots, Packing, Store, choose_store
from fedax.vectors import Vector, size

log = logging.getLogger("fedax")
_SAID: set[str] = set()  # advice is given once
EXECUTORS = ("auto", "batched", "looped", "debug")
CHECKPOINTS = "checkpoints"


class Simulation:
    """One run of one method, from checked arguments to a `Result`.

    Iterating runs it and yields the history's row of each evaluated round; `result` is what there is so far.
    """

    def __init__(
        self,
        problem: Problem,
        federation: Federation | Lazy,
        algorithm: Algorithm,
        *,
        rounds: int,
        cohort: int | None = None,
        local_steps: int | None = None,
        local_epochs: float | None = None,
        batch_size: int | None = None,
        sampling: randomness.Sampling = "epochs",
        weighted: bool = False,
        seed: int = 0,
        eval_every: int = 1,
        eval_on: Sequence[str] | None = None,
        out: str | Path | None = None,
        executor: str = "auto",
        chunk: int | None = None,
        devices: int | None = None,
        zero_below: float = 1e-2,
        unseen: float = 0.0,
        join_steps: int | None = None,
        protocol: bool | None = None,
        state_budget: str | int | None = None,
        checkpoint_every: float | None = None,
        resume: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> None:
        if not isinstance(seed, int | np.integer) or seed < 0:
            raise FedaxError(f"seed must be a whole number from 0 on, not {seed!r}")
        check_positive("eval_every", eval_every)
        for name, value in (("chunk", chunk), ("join_steps", join_steps)):
            if value is not None:
                check_positive(name, value)
        if executor not in EXECUTORS:
            raise unknown("executor", executor, EXECUTORS)
        if not isinstance(algorithm, Algorithm):
            raise FedaxError(f"algorithm must be a fedax.Algorithm such as FedAvg(lr=0.1), not {algorithm!r}")
        self.whole = federation.shown_clients if isinstance(federation, Lazy) else federation
        if isinstance(federation, Lazy) and unseen:
            raise FedaxError(f"unseen is {unseen}: clients that are made as they are needed cannot be held out")
        self.seen, self.unseen = hold_out(self.whole.clients, unseen, int(seed))
        trained = self.whole.subset(self.seen) if len(self.unseen) else federation
        work: Any = (batch_size, sampling, weighted)
        plan, steps = make_plan(trained, rounds, cohort, local_steps, local_epochs, *work)
        self.protocol = algorithm.personalised or len(self.unseen) > 0 if protocol is None else protocol
        self.watch, self.joined = Watch(), np.zeros(trained.clients, np.int64)
        self.problem, self.algorithm, self.plan = problem, algorithm, plan
        self.rows_of = trained.train.count
        self.federation: Federation = trained.shown_clients if isinstance(trained, Lazy) else trained
        self.shown = dataclasses.replace(plan, clients=self.federation.clients)  # as the clients that are evaluated
        self.rounds, self.eval_every, self.seed, self.on_progress = rounds, eval_every, int(seed), on_progress
        self.out, self.zero_below = None if out is None else Path(out), zero_below
        x0 = self._first_parameters()
        available = len(jax.devices())
        if devices is not None and not 1 <= devices <= available:
            raise FedaxError(f"devices must be in [1, {available}], not {devices}")
        self.executor = choose(executor, plan.cohort, size(x0), devices or available, chunk)
        mesh = Mesh(np.array(jax.devices()[: self.executor.devices]), ("clients",))
        made = DebugEngine if self.executor.name == "debug" else Engine
        self.engine: Engine = made(problem, plan, self.executor, mesh, self.seed)
        self.measured: Data = self.engine.place(
            Data.of(self.federation.arrays, self.federation.train, steps[: self.federation.clients])
        )
        self.data = self.measured
        if isinstance(trained, Lazy):
            self.data = self.engine.place(Data.of({}, trained.train, steps, trained.make))
        self.meters = self._meters(eval_on, mesh, size(x0))
        self.steps = steps
        self.cost = cost(Client(problem, plan, self.data, 0, self.engine.seed, 0, algorithm.composite), algorithm, x0)
        self.x0 = x0
        kept = None if self.out is None else self.out / CHECKPOINTS / STATES
        packing = Packing(algorithm.client_init(x0))
        copies = 0 if self.executor.name == "debug" else self.executor.devices
        self.store = choose_store(packing, plan.clients, plan.cohort, rounds, copies, state_budget, kept)
        self.state = self.engine.start(algorithm, x0, self.store)
        self.newcomers: Newcomers | None = None
        if len(self.unseen):
            visits = max(1, round(rounds * plan.cohort / plan.clients))
            passes = None if local_epochs is None or join_steps else local_epochs * visits
            each = join_steps or (None if passes else (local_steps or 1) * visits)
            late = self.whole.subset(self.unseen)
            theirs = make_plan(late, rounds, None, each, passes, *work)
            arrays = self.measured.arrays
            self.newcomers = Newcomers(problem, late, *theirs, arrays, list(self.meters), x0, self.seed)
        self.history = History()
        self.per_client: dict[str, dict[str, Measurement]] = {}
        self.by_client: Clients | None = None  # known when the run is over
        self.gradients = self.floats_up = self.floats_down = 0
        self._good: Any = None  # the shared model of the last evaluation
        advice = algorithm.advice(plan.max_steps, lambda: smoothness(problem, self.shown, self.measured, x0))
        if advice is not None and advice not in _SAID:
            _SAID.add(advice)
            log.warning(advice)
        self.seconds = 0.0
        self.checkpoints: Checkpoints | None = None
        if checkpoint_every is not None:
            if self.out is None:
                raise FedaxError("checkpoint_every needs out, a directory for the checkpoints")
            self.checkpoints = Checkpoints(self, self.out / CHECKPOINTS, checkpoint_every)
        if self.out is not None and not resume:
            self._claim(self.out)
        if resume:
            self._go_on()

    @functools.cached_property
    def fingerprint(self) -> dict[str, str]:
        """What makes this run the one it is."""
        return fingerprint(self)

    def _go_on(self) -> None:
        """Continue from the last checkpoint; without one, from the start."""
        if self.checkpoints is None or self.out is None:
            raise FedaxError("resume needs out and checkpoint_every: the directory and the pace of the checkpoints")
        self.out.mkdir(parents=True, exist_ok=True)
        if not self.checkpoints.load():
            log.info("%s has no checkpoint: the run starts over", self.out)
            self.checkpoints.clear()
        rows = "".join(json.dumps(row) + "\n" for row in self.history)
        write_whole(self.out / HISTORY, rows.encode())
        if self.history and self.history[-1]["round"] == self.state.round:
            self._measure()

    def resume(self, server: Any, rows: Store, about: dict[str, Any], joined: Any) -> None:
        """Take over what a checkpoint holds."""
        clients = self.state.clients
        took = np.flatnonzero(rows.table >= 0)
        if isinstance(clients, Store):
            if clients is not rows:
                for part in np.array_split(took, 1 + len(took) // 4096):
                    clients.put(part, rows.take(part))
        elif len(took):
            states = rows.take(took)
            clients = self.engine.place(jax.tree.map(lambda s, v: s.at[took].set(v), clients, states))
        signs = None if about["signs"] is None else np.float32(about["signs"])
        self.state = State(jax.tree.map(jnp.copy, server), clients, int(about["round"]), signs)
        self.history, self.joined, self.seconds = History(about["history"]), joined, float(about["seconds"])
        self.gradients, self.floats_up, self.floats_down = about["counters"]

    def _first_parameters(self) -> Vector:
        sample = {k: jnp.asarray(a[:2]) for k, a in self.federation.arrays.items()}
        key = randomness.key_for(self.seed, randomness.INIT)
        try:
            params = self.problem.init(key, sample)
        except (TypeError, ValueError) as error:
            if isinstance(error, FedaxError):
                raise
            raise FedaxError(f"the model cannot be initialised on this federation: {error}") from error
        self.problem.check(params, self.federation.arrays)
        psi = self.problem.regularizer
        self.algorithm.refuse(psi)
        if psi is not None and not psi.feasible(params):
            raise FedaxError(f"the first parameters lie outside {psi}: start the model inside the constraint")
        if psi is not None and not psi.smooth and not self.algorithm.composite:
            name = type(self.algorithm).__name__
            log.info("%s has no proximal step: it takes subgradients of %s", name, type(psi).__name__)
        return Vector(params)

    def _meters(self, eval_on: Sequence[str] | None, mesh: Mesh, parameters: int) -> dict[str, Meter]:
        if eval_on is None:
            eval_on = [part for part in ("validation", "test") if self.federation.part(part).count.sum()] or ["train"]
        batched = 1 if self.executor.name == "looped" else max(1, min(64, self.shown.clients // mesh.devices.size))
        meters = {}
        for name in eval_on:
            rows = self.federation.part(name)
            if not rows.count.sum():
                raise FedaxError(f"eval_on names {name!r}, but no client has {name} rows")
            meters[name] = Meter(self.problem, self.shown, mesh, rows.start, rows.count, batched, self.engine.seed)
        return meters

    def _claim(self, out: Path) -> None:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise FedaxError(f"out={str(out)!r} already holds something: choose another directory or remove it")
        out.mkdir(parents=True, exist_ok=True)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.begin()
        done = self.history[-1]["round"] if self.history else -1
        if self.state.round != done and (self.state.round % self.eval_every == 0 or self.state.round == self.rounds):
            yield self._record()
        pace = 1
        while self.state.round < self.rounds:
            target = min(self.rounds, (self.state.round // self.eval_every + 1) * self.eval_every)
            while self.state.round < target:
                pace = self._segment(min(pace, target - self.state.round))
            yield self._record()
        if self.protocol and self.by_client is None:
            self.by_client = moments(self)

    def begin(self) -> None:
        """Start the clock, or let it go on."""
        self._began = time.perf_counter() - self.seconds

    def _segment(self, rounds: int) -> int:
        """Run some rounds; returns how many to run next, for about half a second between signs of life."""
        before, began = self.state.round, time.perf_counter()
        try:
            self.state, good = self.engine.advance(self.algorithm, self.state, rounds, self.data)
        except DivergedError as error:  # the debug executor knows more: the client and the step
            error.result = self.result
            raise
        self._account(before, self.state.round)
        if not good:
            raise self._diverged(self.state.round + 1, "met NaN or infinity", self.result)
        self.seconds = time.perf_counter() - self._began
        if self.checkpoints is not None and self.checkpoints.due():
            self.checkpoints.save()
        if self.on_progress is not None:
            self.on_progress(self.state.round)
        spent = time.perf_counter() - began
        return int(np.clip(0.5 * rounds / max(spent, 1e-6), 1, self.engine.segment))

    def fork(self, algorithm: Algorithm) -> Simulation:
        """The same run with another method of the same kind, from the start; data and programs are shared."""
        other = copy.copy(self)
        other.algorithm, other.history, other.per_client, other._good = algorithm, History(), {}, None
        other.gradients = other.floats_up = other.floats_down = 0
        other.watch, other.joined = Watch(), np.zeros_like(self.joined)
        return other

    def _diverged(self, round: int, what: str, kept: Result) -> DivergedError:
        name = type(self.algorithm).__name__
        hint = "the last good model is kept; a smaller lr usually helps"
        return DivergedError(f"{name} {what} in round {round}: {hint}", round=round, result=kept)

    def _account(self, first: int, last: int) -> None:
        if last == first:
            return
        cohorts = self.engine.cohorts(first, self.engine.segment)[: last - first]
        for r, cohort in enumerate(cohorts, first + 1):
            self.joined[cohort[self.joined[cohort] == 0]] = r
        who = cohorts.ravel()
        traffic = np.array([self.algorithm.traffic(r) for r in range(first, last)], int).sum(0)
        rows, steps = self.rows_of[who], self.steps[who]
        self.gradients += int(np.sum(self.cost.gradients(rows, steps, self.plan.batch)))
        self.floats_up += self.cost.up * self.plan.cohort * int(traffic[1])
        self.floats_down += self.cost.down * self.plan.cohort * int(traffic[0])

    def _record(self) -> dict[str, Any]:
        row = self._measure()
        row["seconds"] = round(time.perf_counter() - self._began, 3)
        if self.protocol:
            self.watch.see(self.state.round, self.state.server, self.per_client)
        self.history.append(row)
        if self.out is not None:
            with (self.out / HISTORY).open("a") as file:
                file.write(json.dumps(row) + "\n")
        return row

    def _measure(self) -> dict[str, Any]:
        """Evaluate the models as they are now; a loss that is not finite raises."""
        row = measure(self)
        if not all(np.isfinite(value) for value in row.values()):
            # finite parameters so large that the loss is not: the model to keep is that of the last evaluation
            kept = self.result
            if self._good is not None:
                kept.model, kept._personal = self._good, None
                kept.info["rounds"] = self.history[-1]["round"]
            raise self._diverged(self.state.round, "gave a loss that is NaN or infinite", kept)
        self._good = jax.device_get(unwrap(self.algorithm.model(self.state.server)))
        return row

    @property
    def result(self) -> Result:
        """What the run has made so far."""
        algorithm, state = self.algorithm, self.state
        personal = self._personal_models() if algorithm.personalised else None
        info = {
            "algorithm": repr(algorithm),
            "rounds": state.round,
            "seed": self.seed,
            "executor": self.executor.name,
            "devices": self.executor.devices,
            "chunk": self.executor.chunk,
            "states": "devices" if self.store is None else type(self.store.slots).__name__,
        }
        model = jax.tree.map(jnp.asarray, jax.device_get(unwrap(algorithm.model(state.server))))
        return Result(self.history, model, personal, self.whole.clients, info, self.by_client)

    def finish(self, result: Result) -> None:
        """Save the result, if there is a directory for it; checkpoints have done their service."""
        if self.out is not None:
            result.save(self.out)
        if self.checkpoints is not None:
            self.checkpoints.clear()
        elif self.store is not None and isinstance(self.store.slots, FileSlots):
            self.store.slots.remove()

    def own_models(self) -> Any:
        """The own models of the clients that are evaluated, stacked."""
        who = np.arange(self.shown.clients)
        return jax.device_get(self.engine.personal(self.algorithm, self.state, self.data, who))

    def _personal_models(self) -> Any:
        """Every client's own model, stacked; those held out join now."""
        models = self.own_models()
        if self.newcomers is not None:
            new = self.newcomers
            late = new.join(self.algorithm, self.state.server, self.state.round)
            theirs = jax.device_get(new.engine.personal(self.algorithm, late, new.data))
            order = np.argsort(np.concatenate([self.seen, self.unseen]))
            models = jax.tree.map(lambda a, b: np.concatenate([a, b])[order], models, theirs)
        return unwrap(models)


def simulate(
    problem: Problem, federation: Federation | Lazy, algorithm: Algorithm, *, rounds: int, **options: Any
) -> Result:
    """Run a method on a federation and return its history and models.

    rounds: communication rounds, at least 1.
    cohort: clients a round, drawn without replacement; None for all.
    local_steps, local_epochs: a client's work a round, in steps (default 1) or passes over its rows.
    batch_size: rows a minibatch; None for the full local gradient.
    sampling: "epochs" (reshuffled) or "iid" (with replacement).
    weighted: average by clients' rows instead of uniformly.
    seed: of everything random.
    eval_every: rounds between two evaluations. eval_on: parts to evaluate on, test rows by default.
    out: a directory for the metrics log and the models.
    executor: "auto", "batched", "looped" or "debug"; chunk: clients batched together; devices: how many to use.
    zero_below: on a problem with a regularizer, what counts as zero in density, support and rank.
    unseen: share of clients held out from training; when it is over they join, by the method's own rule.
    join_steps: local steps of theirs; as many as the others took on average unless given.
    state_budget: memory for clients' states, such as "2GiB"; above it they are kept beside the devices or in a file.
    checkpoint_every: seconds between two checkpoints in `out`; None for none. resume: go on from the last one there.
    protocol: whether to end with `result.by_client`, every client's metrics with the shared, the localised and its own
        model; by default where there are personal models or unseen clients.
    on_progress: called with the number of rounds done, about twice a second.

    >>> import numpy as np, jax.numpy as jnp, fedax
    >>> mean = fedax.Problem(loss=lambda w, b: jnp.mean((b["x"] - w) ** 2) / 2, init=lambda key: jnp.zeros(()))
    >>> clients = fedax.Federation.from_clients([{"x": np.float32([1, 2, 3])}, {"x": np.float32([6])}])
    >>> result = simulate(mean, clients, fedax.FedAvg(lr=0.5), rounds=30)
    >>> round(float(result.model), 3)  # the minimiser of the mean of the clients' losses: (2 + 6) / 2
    4.0
    """
    simulation = Simulation(problem, federation, algorithm, rounds=rounds, **options)
    for _ in simulation:
        pass
    result = simulation.result
    simulation.finish(result)
    return result


def stream(
    problem: Problem, federation: Federation | Lazy, algorithm: Algorithm, *, rounds: int, **options: Any
) -> Iterator[dict[str, Any]]:
    """`simulate`, yielding each evaluated round's row as it is reached.

    >>> import numpy as np, jax.numpy as jnp, fedax
    >>> mean = fedax.Problem(loss=lambda w, b: jnp.mean((b["x"] - w) ** 2) / 2, init=lambda key: jnp.zeros(()))
    >>> clients = fedax.Federation.from_clients([{"x": np.float32([4])}])
    >>> [row["round"] for row in stream(mean, clients, fedax.FedAvg(lr=0.5), rounds=4, eval_every=2)]
    [0, 2, 4]
    """
    simulation = Simulation(problem, federation, algorithm, rounds=rounds, **options)
    yield from simulation
    simulation.finish(simulation.result)
