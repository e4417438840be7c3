"""Settings of one method side by side: lanes of one compiled program, through the same rounds.

Each round draws one cohort and one set of minibatches for all, and a linear model's gradients of all lanes are one
matrix product. A lane that diverges stays as it was while the others go on. The lanes under way are one checkpoint:
their states, who is alive, the histories and counters; it is written whole and goes on to the same bits.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save

from fedax.algorithms.base import Algorithm
from fedax.client import shares
from fedax.engine.checkpoint import leaves, log, opened, sealed, unflatten
from fedax.engine.fingerprint import Differs, compare, fingerprint
from fedax.engine.loop import Simulation, account, pace
from fedax.engine.result import Result
from fedax.engine.state import Metrics, State
from fedax.errors import DivergedError, FedaxError
from fedax.runs.files import History, write_whole
from fedax.runtime import agreed, is_main_process


class Lanes:
    """Settings of one method that run side by side."""

    def __init__(self, first: Simulation, algorithms: Sequence[Algorithm], path: Path | None, every: float) -> None:
        """first: any run of the method. path: the checkpoint's file, if any. every: seconds between two checkpoints."""
        self.first, self.path, self.every = first.prepared, path, every
        alone = dataclasses.replace(first.config, out=None, checkpoint_every=None, resume=False)
        same = dataclasses.replace(first.prepared, config=alone, store=None)
        self.runs = [Simulation.of(same.taking(algorithm)) for algorithm in algorithms]
        methods = [run.prepared.algorithm for run in self.runs]
        self.stacked = jax.tree.map(lambda *a: jnp.stack([jnp.asarray(leaf) for leaf in a]), *methods)
        many = jax.tree.map(lambda *a: jnp.stack(a), *[(run.state.server, run.state.clients) for run in self.runs])
        self.state = State(*self._placed(many))
        for lane, run in enumerate(self.runs):
            run.state.moved(self._lane(lane))
        self.alive = np.ones(len(self.runs), bool)
        self.stopped: dict[int, int] = {}  # the round in which a lane diverged
        self.evaluated = -1  # the last round that was
        self.seconds = 0.0
        if path is not None and path.exists():
            self._load(path)

    def _placed(self, many: Any) -> Any:
        """Every lane's states of the server and the clients, placed as the compiled rounds take them."""
        engine, (server, clients) = self.first.engine, many
        if not shares.is_divided(engine.mesh):
            return engine.place(many)
        divided = jax.jit(lambda tree: tree, out_shardings=shares.divided(engine.mesh, axis=1))
        return engine.place(server), divided(clients)

    def run(self, say: Callable[[int], None] | None) -> list[tuple[Result, Metrics]]:
        """Run all rounds that are left; each lane's result, and its clients' metrics at its last evaluation."""
        began, last = time.perf_counter() - self.seconds, time.monotonic()
        for run in self.runs:
            run.state.seconds = self.seconds
            run.begin()
        some, config = 1, self.first.config
        for target in (t for t in _targets(config.rounds, config.eval_every) if t > self.evaluated):
            while self.state.round < target and self.alive.any():
                rounds, before = min(some, target - self.state.round), time.perf_counter()
                self._advance(rounds)
                self.seconds = time.perf_counter() - began
                some = agreed(pace(rounds, time.perf_counter() - before, self.first.engine.draws.rounds))
                if agreed(time.monotonic() - last >= self.every):
                    self.save()
                    last = time.monotonic()
                if say is not None:
                    say(self.state.round)
            if self.alive.any():
                self._record()
        for lane, run in enumerate(self.runs):
            run.state.moved(self._lane(lane))
        results = [run.result for run in self.runs]
        for lane, round in self.stopped.items():
            results[lane].info["diverged"] = round
        return [(result, run.state.per_client) for result, run in zip(results, self.runs, strict=True)]

    def _advance(self, rounds: int) -> None:
        before, first = self.alive, self.state.round
        server, clients, alive, done, diagnostics = self.first.engine.run(
            self.stacked, self.state, before, rounds, self.first.data
        )
        self.alive, done = np.asarray(alive), np.asarray(done)
        for lane, run in enumerate(self.runs):
            account(run.prepared, run.state, first, first + int(done[lane]) if before[lane] else first)
            if before[lane] and not self.alive[lane]:
                self.stopped[lane] = first + int(done[lane]) + 1
        self.state = State(server, clients, first + min(rounds, self.first.engine.draws.left(first)), diagnostics)

    def _lane(self, lane: int) -> State:
        server, clients, diagnostics = jax.tree.map(
            lambda a: a[lane], (self.state.server, self.state.clients, self.state.diagnostics)
        )
        return State(server, clients, self.state.round, diagnostics)

    def _record(self) -> None:
        """Evaluate every lane that is alive; a lane whose loss is not finite ends here."""
        alive = self.alive.copy()
        for lane in np.flatnonzero(alive).tolist():
            self.runs[lane].state.moved(self._lane(lane))
            try:
                self.runs[lane].record()
            except DivergedError as error:
                alive[lane] = False
                self.stopped[lane] = error.round
        self.alive, self.evaluated = alive, self.state.round

    def save(self) -> None:
        """Write a checkpoint, between two rounds."""
        if self.path is None:
            return
        clients = shares.gather(self.first.engine.mesh, self.state.clients)
        arrays = {f"state.{i}": leaf for i, leaf in enumerate(leaves((self.state.server, clients)))}
        arrays |= {"alive": self.alive}
        if self.state.diagnostics is not None:
            arrays["diagnostics"] = np.asarray(self.state.diagnostics)
        about = {
            "round": self.state.round,
            "evaluated": self.evaluated,
            "stopped": list(self.stopped.items()),
            "seconds": self.seconds,
            "histories": [list(run.state.history) for run in self.runs],
            "counters": [[run.state.gradients, run.state.floats_up, run.state.floats_down] for run in self.runs],
            "fingerprint": self._fingerprint(),
        }
        content = save({k: np.ascontiguousarray(a) for k, a in arrays.items()}, {"about": json.dumps(about)})
        try:
            if is_main_process():
                self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, sealed(content))
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            kept = "the last good one is kept" if self.path.exists() else "there is none yet"
            raise FedaxError(f"the checkpoint of {self.path.stem} cannot be written: {why}; {kept}") from error

    def _load(self, path: Path) -> None:
        try:
            arrays, about = opened(path)
            compare(about["fingerprint"], self._fingerprint())
            state = unflatten("state", arrays, (self.state.server, self.state.clients))
            diagnostics, alive = arrays.get("diagnostics"), arrays["alive"]
        except Differs:
            raise
        except (FedaxError, OSError, ValueError, KeyError) as error:
            log.warning("%s is damaged and left out: %s", path.name, error)
            return
        server, clients = jax.tree.map(jnp.copy, self._placed(state))
        self.state = State(server, clients, about["round"], diagnostics)
        self.alive, self.stopped = alive, dict(about["stopped"])
        self.evaluated, self.seconds = about["evaluated"], about["seconds"]
        for lane, run in enumerate(self.runs):
            run.state.history = History(about["histories"][lane])
            run.state.gradients, run.state.floats_up, run.state.floats_down = about["counters"][lane]
            if self.alive[lane] and self.evaluated == self.state.round:
                run.state.moved(self._lane(lane))
                run.measure()

    def _fingerprint(self) -> dict[str, str]:
        return {**fingerprint(self.first), "algorithm": repr([run.prepared.algorithm for run in self.runs])}


def _targets(rounds: int, every: int) -> Iterator[int]:
    """The rounds that are evaluated."""
    yield from range(0, rounds, every)
    yield rounds
