"""One run: check everything, run the rounds, evaluate, keep what was made."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedax import randomness
from fedax.algorithms.base import Algorithm, Context
from fedax.algorithms.with_model_state import bare, clients_keep_state
from fedax.client.cost import cost
from fedax.client.device_data import Data, Disk, place_data
from fedax.client.plan import check_positive, make_plan
from fedax.client.round import Client
from fedax.data.federation import Federation
from fedax.data.generators.lazy import Lazy
from fedax.engine.checkpoint import STATES, Checkpoints
from fedax.engine.debug import DebugEngine
from fedax.engine.evaluate_round import measure
from fedax.engine.newcomers import Newcomers, hold_out
from fedax.engine.prepare import (
    check_evaluated,
    choose_devices,
    first_parameters,
    make_meters,
    say_once,
    with_model_state,
)
from fedax.engine.record import record_now
from fedax.engine.result import Result, unwrap
from fedax.engine.rounds import Engine
from fedax.engine.snapshots import Watch, moments
from fedax.engine.store import FileSlots, Packing, choose_store
from fedax.errors import DivergedError, FedaxError, unknown
from fedax.evaluation import Measurement, smoothness
from fedax.evaluation.protocol import Clients
from fedax.problem import Problem
from fedax.runs.files import CHECKPOINTS, HISTORY, History, claim, write_whole
from fedax.runs.folder import Record
from fedax.runtime import agreed, configure, is_main_process
from fedax.vectors import size

log = logging.getLogger("fedax")
EXECUTORS = ("auto", "batched", "looped", "debug")

PAUSE = 0.5  # seconds between signs of life
MADE = 1 << 19  # floats of the clients that are made at a time


def pace(rounds: int, seconds: float, most: int) -> int:
    """How many rounds to run next if these took so long, for about half a second between signs of life.

    >>> pace(8, 1.0, 64), pace(8, 0.01, 64), pace(1, 9.0, 64)
    (4, 64, 1)
    """
    return int(np.clip(PAUSE * rounds / max(seconds, 1e-6), 1, most))


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
        personal: bool = True,
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
        model_state: str | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> None:
        configure()
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
        if not isinstance(federation, Federation | Lazy):
            raise FedaxError(f"federation must be a fedax.Federation, as fedax.data.load gives, not {federation!r}")
        check_evaluated(personal, algorithm)
        self.whole = federation.shown_clients if isinstance(federation, Lazy) else federation
        if isinstance(federation, Lazy) and unseen:
            raise FedaxError(f"unseen is {unseen}: clients that are made as they are needed cannot be held out")
        self.seen, self.unseen = hold_out(self.whole.clients, unseen, int(seed))
        trained = self.whole.subset(self.seen) if len(self.unseen) else federation
        work: Any = (batch_size, sampling, weighted)
        plan, steps = make_plan(trained, rounds, cohort, local_steps, local_epochs, *work)
        if algorithm.lockstep and not plan.equal_steps:
            found = f"local_epochs={local_epochs} gives clients {steps.min()} to {steps.max()} local steps"
            raise FedaxError(f"{found}: {algorithm!r} needs equally many of all, so give local_steps instead")
        self.personal = personal and algorithm.personalised
        self.protocol = self.personal or len(self.unseen) > 0 if protocol is None else protocol
        self.watch, self.joined = Watch(), np.zeros(trained.clients, np.int64)
        self.problem = problem = problem.own_copy()
        self.plan, self.model_state = plan, model_state
        self.rows_of = trained.train.count
        self.federation: Federation = trained.shown_clients if isinstance(trained, Lazy) else trained
        self.shown = dataclasses.replace(plan, clients=self.federation.clients)  # as the clients that are evaluated
        self.rounds, self.eval_every, self.seed, self.on_progress = rounds, eval_every, int(seed), on_progress
        self.out, self.zero_below = None if out is None else Path(out), zero_below
        self.x0 = x0 = first_parameters(problem, algorithm, self.federation, self.seed)
        self.algorithm = algorithm = self.with_model_state(algorithm)
        if isinstance(trained, Lazy) and chunk is None:  # rows that are made take room beside the models
            made_rows = plan.max_rows * sum(array[0].size for array in self.federation.arrays.values())
            chunk = max(1, MADE // max(size(x0), made_rows))
        arrays = self.federation.arrays
        self.executor, mesh = choose_devices(executor, problem, x0, arrays, plan, steps, devices, chunk)
        made = DebugEngine if self.executor.name == "debug" else Engine
        self.engine: Engine = made(problem, plan, self.executor, mesh, jax.random.key(self.seed))
        self.measured = self.data = place_data(
            arrays, self.federation.train, steps[: self.federation.clients], self.engine.place
        )
        if isinstance(self.data, Disk):
            self.engine.segment = 1  # a round's rows come with its call
        if isinstance(trained, Lazy):
            self.data = self.engine.place(Data.of({}, trained.train, steps, trained.make))
        self.meters = make_meters(self.engine, self.federation, self.shown, eval_on)
        self.steps = steps
        self.cost = self.data.traced(
            lambda data: cost(Client(problem, plan, data, 0, self.engine.seed, 0, algorithm.composite), algorithm, x0),
            plan,
        )
        kept = None if self.out is None or not is_main_process() else self.out / CHECKPOINTS / STATES
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
            self.newcomers = Newcomers(problem, late, *theirs, self.measured.arrays, list(self.meters), x0, self.seed)
        self.history = History()
        self.per_client: dict[str, dict[str, Measurement]] = {}
        self.by_client: Clients | None = None  # known when the run is over
        self.gradients = self.floats_up = self.floats_down = 0
        self._good: Any = None  # the shared model of the last evaluation
        planned = Context(steps=plan.max_steps, cohort=plan.cohort, clients=plan.clients)
        self.advice = algorithm.advice(planned, lambda: smoothness(problem, self.shown, self.measured, x0))
        if self.advice is not None:
            say_once(self.advice)
        self.seconds = 0.0
        self.about: Record | None = None  # what its directory says of it
        self.checkpoints: Checkpoints | None = None
        if checkpoint_every is not None:
            if self.out is None:
                raise FedaxError("checkpoint_every needs out, a directory for the checkpoints")
            self.checkpoints = Checkpoints(self, self.out / CHECKPOINTS, checkpoint_every)
        if self.out is not None and not resume:
            claim(self.out)
        if resume:
            self._go_on()

    def with_model_state(self, algorithm: Algorithm) -> Algorithm:
        """A method as this run takes it, on a model that draws or keeps state."""
        return with_model_state(self.problem, algorithm, self.x0, self.model_state, self.plan.batch)

    def _go_on(self) -> None:
        """Continue from the last checkpoint; without one, from the start."""
        if self.checkpoints is None or self.out is None:
            raise FedaxError("resume needs out and checkpoint_every: the directory and the pace of the checkpoints")
        if is_main_process():
            self.out.mkdir(parents=True, exist_ok=True)
        if not self.checkpoints.load():
            log.info("%s has no checkpoint: the run starts over", self.out)
            self.checkpoints.clear()
        write_whole(self.out / HISTORY, self.history.lines())
        if self.history and self.history[-1]["round"] == self.state.round:
            self.measure()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.begin()
        done = self.history[-1]["round"] if self.history else -1
        if self.state.round != done and (self.state.round % self.eval_every == 0 or self.state.round == self.rounds):
            yield self.record()
        some = 1
        while self.state.round < self.rounds:
            target = min(self.rounds, (self.state.round // self.eval_every + 1) * self.eval_every)
            while self.state.round < target:
                some = self._segment(min(some, target - self.state.round))
            yield self.record()
        if self.protocol and self.by_client is None:
            self.by_client = moments(self)

    def begin(self) -> None:
        """Start the clock, or let it go on."""
        self._began = time.perf_counter() - self.seconds

    def _segment(self, rounds: int) -> int:
        """Run some rounds; returns how many to run next."""
        before, began = self.state.round, time.perf_counter()
        try:
            self.state, good = self.engine.advance(self.algorithm, self.state, rounds, self.data)
        except DivergedError as error:  # the debug executor knows more: the client and the step
            error.result = self.result
            raise
        self.account(before, self.state.round)
        if not good:
            raise self._diverged(self.state.round + 1, "met NaN or infinity", self.result)
        self.seconds = time.perf_counter() - self._began
        if self.checkpoints is not None and agreed(self.checkpoints.due()):
            self.checkpoints.save()
        if self.on_progress is not None:
            self.on_progress(self.state.round)
        return agreed(pace(rounds, time.perf_counter() - began, self.engine.segment))

    def fork(self, algorithm: Algorithm) -> Simulation:
        """The same run with another method of the same kind, from the start; data and programs are shared."""
        other = copy.copy(self)
        other.algorithm, other.history, other.per_client = algorithm, History(), {}
        other._good = other.advice = None
        other.gradients = other.floats_up = other.floats_down = 0
        other.watch, other.joined = Watch(), np.zeros_like(self.joined)
        return other

    def _diverged(self, round: int, what: str, kept: Result) -> DivergedError:
        name = type(bare(self.algorithm)).__name__
        hint = "the last good model is kept; a smaller lr usually helps"
        said = "" if self.advice is None else f". {self.advice}"
        return DivergedError(f"{name} {what} in round {round}: {hint}{said}", round=round, result=kept)

    def account(self, first: int, last: int) -> None:
        """Count what the rounds first .. last-1 cost, and who took part."""
        if last == first:
            return
        cohorts = self.engine.cohorts(first, self.engine.segment)[: last - first]
        for r, cohort in enumerate(cohorts, first + 1):
            self.joined[cohort[self.joined[cohort] == 0]] = r
        who = cohorts.ravel()
        met = [self.algorithm.traffic(Context(round=r, seed=self.seed)) for r in range(first, last)]
        traffic = np.array(met, int).sum(0)
        rows, steps = self.rows_of[who], self.steps[who]
        self.gradients += int(np.sum(self.cost.gradients(rows, steps, self.plan.batch)))
        self.floats_up += self.cost.up * self.plan.cohort * int(traffic[1])
        self.floats_down += self.cost.down * self.plan.cohort * int(traffic[0])

    def record(self) -> dict[str, Any]:
        """Evaluate the models as they are now, and add the row to the history."""
        row = self.measure()
        row["seconds"] = round(time.perf_counter() - self._began, 3)
        if self.protocol:
            self.watch.see(self.state.round, self.state.server, self.per_client)
        self.history.append(row)
        if self.out is not None and is_main_process():
            with (self.out / HISTORY).open("a") as file:
                file.write(json.dumps(row) + "\n")
        return row

    def measure(self) -> dict[str, Any]:
        """Evaluate the models as they are now; a loss that is not finite raises."""
        row = measure(self)
        if not all(np.isfinite(value) for value in row.values()):
            # finite parameters so large that the loss is not: the model to keep is that of the last evaluation
            kept = self.result
            if self._good is not None:
                kept.model, kept._personal = self._good, None
                kept.info["rounds"] = self.history[-1]["round"]
            raise self._diverged(self.state.round, "gave a loss that is NaN or infinite", kept)
        self._good = jax.device_get(self.problem.whole(unwrap(self.algorithm.model(self.state.server))))
        return row

    @property
    def result(self) -> Result:
        """What the run has made so far."""
        algorithm, state = self.algorithm, self.state
        own = algorithm.personalised or clients_keep_state(algorithm)
        personal = self._personal_models() if own else None
        info = {
            "algorithm": repr(algorithm),
            "rounds": state.round,
            "seed": self.seed,
            "executor": self.executor.name,
            "devices": self.executor.devices,
            "chunk": self.executor.chunk,
            "states": "devices" if self.store is None else type(self.store.slots).__name__,
        }
        model = self.problem.whole(unwrap(jax.device_get(algorithm.model(state.server))))
        model = jax.tree.map(jnp.asarray, model)
        return Result(self.history, model, personal, self.whole.clients, info, self.by_client, record_now(self))

    def finish(self, result: Result) -> None:
        """Save the result, if there is a directory for it; checkpoints have done their service."""
        if self.out is not None:
            result.save(self.out)
        self.close()

    def close(self) -> None:
        """Remove what is there only to go on: checkpoints, clients' states on disk."""
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
