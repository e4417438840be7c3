"""The loop over rounds: run some, evaluate, save the result."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedax.algorithms.base import Algorithm, Context
from fedax.algorithms.with_model_state import bare, clients_keep_state
from fedax.data.federation import Federation
from fedax.data.generators.lazy import Lazy
from fedax.engine.checkpoint import Checkpoints
from fedax.engine.config import RunConfig
from fedax.engine.devices import say_once
from fedax.engine.early_stopping import stopped
from fedax.engine.evaluate_round import measure
from fedax.engine.prepare import Prepared
from fedax.engine.record import assessment, described_table, record_now
from fedax.engine.result import Result, unwrap
from fedax.engine.snapshots import snapshots
from fedax.engine.state import RunState
from fedax.engine.store import FileSlots
from fedax.errors import DivergedError
from fedax.options import Count, check_value, made_of
from fedax.own_code import telling_whose
from fedax.problem import Problem
from fedax.runs.files import CHECKPOINTS, HISTORY, claim, write_whole
from fedax.runs.folder import Record
from fedax.runtime import agreed, is_main_process
from fedax.whole_files import named

log = logging.getLogger("fedax")
PAUSE = 0.5  # seconds between signs of life


def pace(rounds: int, seconds: float, most: int) -> int:
    """How many rounds to run next if these took so long, for about half a second between signs of life.

    >>> pace(8, 1.0, 64), pace(8, 0.01, 64), pace(1, 9.0, 64)
    (4, 64, 1)
    """
    return int(np.clip(PAUSE * rounds / max(seconds, 1e-6), 1, most))


class Simulation:
    """One run of one method: its options, what was prepared from them, its changing state, and the loop over rounds.

    Iterating runs it and yields the history's row of each evaluated round; `result` holds the rounds run so far. The
    options are those of `simulate`.
    """

    def __init__(self, problem: Problem, federation: Federation | Lazy, algorithm: Algorithm, **options: Any) -> None:
        self._set_up(Prepared.of(problem, federation, algorithm, made_of(RunConfig, options)))

    @classmethod
    def of(cls, prepared: Prepared) -> Simulation:
        """The run of what was prepared."""
        made = cls.__new__(cls)
        made._set_up(prepared)
        return made

    def _set_up(self, prepared: Prepared) -> None:
        self.prepared, self.config, self.state = prepared, prepared.config, prepared.start()
        self.out, self.on_progress = self.config.folder, self.config.on_progress
        self.about: Record | None = None  # the record in its directory
        self.checkpoints: Checkpoints | None = None
        self._began = time.perf_counter()
        if prepared.advice is not None:
            say_once(prepared.advice)
        if self.config.checkpoint_every is not None and self.out is not None:
            self.checkpoints = Checkpoints(prepared, self.state, self.out / CHECKPOINTS, self.config.checkpoint_every)
        if self.config.resume:
            self._go_on()
        elif self.out is not None:
            claim(self.out)

    def _go_on(self) -> None:
        """Continue from the last checkpoint; without one, from the start."""
        assert self.checkpoints is not None
        assert self.out is not None
        if is_main_process():
            self.out.mkdir(parents=True, exist_ok=True)
        if not self.checkpoints.load():
            log.info("%s has no checkpoint: the run starts over", self.out)
            self.checkpoints.clear()
        write_whole(self.out / HISTORY, self.state.history.lines())
        if self.state.history and self.state.history[-1]["round"] == self.state.round:
            self.measure()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.begin()
        state, rounds, every = self.state, self.config.rounds, self.config.eval_every
        done = state.history[-1]["round"] if state.history else -1
        if state.round != done and (state.round % every == 0 or state.round == rounds):
            yield self.record()
        some = 1
        while state.round < rounds and not self.stopped_early:
            target = min(rounds, (state.round // every + 1) * every)
            while state.round < target:
                some = self._segment(min(some, target - state.round))
            yield self.record()
        if self.prepared.protocol and state.by_client is None:
            with telling_whose():
                state.by_client = snapshots(self.prepared, state)

    @property
    def stopped_early(self) -> str:
        """Why the run ends before its last round; nothing if it does not."""
        if self.config.patience is None or self.state.round >= self.config.rounds:
            return ""
        return stopped(self.state.history, self.prepared.judged, self.config.patience)

    def begin(self) -> None:
        """Start the clock, or let it go on."""
        self._began = time.perf_counter() - self.state.seconds

    def advance(self, rounds: int) -> bool:
        """Run this number of rounds without evaluation; False if they met NaN or infinity."""
        check_value("rounds", Count, rounds)
        run, state, good = self.prepared, self.state, True
        last = state.round + rounds
        while good and state.round < last:
            after, good = run.engine.advance(run.algorithm, state, last - state.round, run.data)
            state.moved(after)
        return good

    def _segment(self, rounds: int) -> int:
        """Run some rounds; returns how many to run next."""
        run, state, began = self.prepared, self.state, time.perf_counter()
        before = state.round
        try:
            with telling_whose():
                after, good = run.engine.advance(run.algorithm, state, rounds, run.data)
        except DivergedError as error:  # the debug executor knows more: the client and the step
            error.result = self.result
            raise
        state.moved(after)
        account(run, state, before, state.round)
        if not good:
            raise self._diverged(state.round + 1, "met NaN or infinity", self.result)
        state.seconds = time.perf_counter() - self._began
        if self.checkpoints is not None and agreed(self.checkpoints.due()):
            self.checkpoints.save()
        if self.on_progress is not None:
            self.on_progress(state.round)
        return agreed(pace(state.round - before, time.perf_counter() - began, run.engine.draws.rounds))

    def _diverged(self, round: int, what: str, kept: Result) -> DivergedError:
        name = type(bare(self.prepared.algorithm)).__name__
        hint = "the last good model is kept; a smaller lr usually helps"
        if round == 0:
            hint = "look for NaN in the data, and for numbers outside of an embedding's table"
        said = "" if self.prepared.advice is None else f". {self.prepared.advice}"
        return DivergedError(f"{name} {what} in round {round}: {hint}{said}", round=round, result=kept)

    def record(self) -> dict[str, Any]:
        """Evaluate the models as they are now, and add the row to the history."""
        state, row = self.state, self.measure()
        row["seconds"] = round(time.perf_counter() - self._began, 3)
        if self.prepared.protocol:
            state.watch.see(state.round, state.server, state.per_client)
        state.history.append(row)
        if self.out is not None and is_main_process():
            with named(self.out / HISTORY), (self.out / HISTORY).open("a") as file:
                file.write(json.dumps(row) + "\n")
        return row

    def measure(self) -> dict[str, Any]:
        """Evaluate the models as they are now; a loss that is not finite raises."""
        state = self.state
        with telling_whose():
            row = measure(self.prepared, self.state)
        if not all(np.isfinite(value) for value in row.values()):
            # the parameters are finite and the loss is not: keep the model of the last evaluation
            kept = self.result
            if state.good is not None:
                kept.model, kept._personal = state.good, None
                kept.info["rounds"] = state.history[-1]["round"]
            raise self._diverged(state.round, "gave a loss that is NaN or infinite", kept)
        model = unwrap(self.prepared.algorithm.model(state.server))
        state.good = jax.device_get(self.prepared.problem.whole(model))
        return row

    @property
    def result(self) -> Result:
        """The result of the rounds run so far."""
        run, state = self.prepared, self.state
        own = run.algorithm.personalised or clients_keep_state(run.algorithm)
        personal = self._personal_models() if own else None
        info = {
            "algorithm": repr(run.algorithm),
            "rounds": state.round,
            "seed": self.config.seed,
            "executor": run.executor.name,
            "devices": run.executor.devices,
            "chunk": run.executor.chunk,
            "states": "devices" if run.store is None else type(run.store.slots).__name__,
        }
        if early := self.stopped_early:
            info["stopped"] = early
        model = run.problem.whole(unwrap(jax.device_get(run.algorithm.model(state.server))))
        model = jax.tree.map(jnp.asarray, model)
        about = record_now(self.about, run, state, self.stopped_early)
        problem = run.problem

        def apply(model: Any, x: Any) -> Any:
            return problem.outputs(model, {"x": x})

        tabular = described_table(problem, run.algorithm, run.whole)
        kept = (info, state.by_client, about, tabular, apply, assessment(run))
        return Result(state.history, model, personal, run.whole.clients, *kept)

    def finish(self, result: Result) -> None:
        """Save the result, if there is a directory for it, and remove the checkpoints, which nobody needs any more."""
        if self.out is not None:
            result.save(self.out)
        self.close()

    def close(self) -> None:
        """Remove what is only needed to go on: checkpoints, and clients' states on disk."""
        store = self.prepared.store
        if self.checkpoints is not None:
            self.checkpoints.clear()
        elif store is not None and isinstance(store.slots, FileSlots):
            store.slots.remove()

    def _personal_models(self) -> Any:
        """Every client's own model, stacked; those held out join now."""
        run, models = self.prepared, self.prepared.own_models(self.state)
        if run.newcomers is not None:
            late = run.newcomers.join(run.algorithm, self.state.server, self.state.round)
            theirs = jax.device_get(run.newcomers.engine.personal(run.algorithm, late, run.newcomers.data))
            order = np.argsort(np.concatenate([run.seen, run.unseen]))
            models = jax.tree.map(lambda a, b: np.concatenate([a, b])[order], models, theirs)
        return unwrap(models)


def account(run: Prepared, state: RunState, first: int, last: int) -> None:
    """Count what the rounds first .. last-1 cost, and note which clients took part."""
    if last == first:
        return
    cohorts = run.engine.draws.cohorts(first, last)
    for r, drawn in enumerate(cohorts, first + 1):
        cohort = drawn[drawn >= 0]  # those who were there
        state.joined[cohort[state.joined[cohort] == 0]] = r
    who, sizes = cohorts[cohorts >= 0], (cohorts >= 0).sum(1)
    met = [run.algorithm.traffic(Context(round=r, seed=run.config.seed)) for r in range(first, last)]
    traffic = sizes @ np.array(met, int)
    state.gradients += int(np.sum(run.cost.gradients(run.rows[who], run.steps[who], run.plan.batch)))
    state.floats_up += run.cost.up * int(traffic[1])
    state.floats_down += run.cost.down * int(traffic[0])
