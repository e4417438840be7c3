"""Sweeps: many settings of one method, side by side in one compiled program or one after the other.

The settings differ in numbers only, so they share one program. Small models are batched, as clients are: their settings
are lanes of it (lanes.py). From the size at which clients are looped over, batching settings is no faster either, and
they run in sequence; so they do where the states of two settings together exceed the budget.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from fedax import notebook
from fedax.algorithms.base import Algorithm
from fedax.algorithms.hyperparameters import full_name, replaced
from fedax.client import shares
from fedax.data.federation import Federation
from fedax.data.generators.lazy import Lazy
from fedax.engine.fingerprint import fingerprint
from fedax.engine.lanes import Lanes
from fedax.engine.loop import Simulation
from fedax.engine.prepare import Prepared
from fedax.engine.result import Result
from fedax.engine.state import Metrics
from fedax.engine.store import BUDGET, Packing, byte_count
from fedax.errors import DivergedError, FedaxError, unknown
from fedax.problem import Problem
from fedax.report.columns import parse
from fedax.runtime import is_main_process

LANES = 64  # settings in one program
MODES = ("auto", "batched", "sequence")

Keep = Callable[[int, Result, Metrics], None]  #: called when a setting is done, with its number and its result


def grid(algorithm: Algorithm, values: Mapping[str, Sequence[float]]) -> list[Algorithm]:
    """Every combination of some values of a method's numbers.

    >>> import fedax
    >>> grid(fedax.FedAvg(lr=0.1), {"lr": [0.1, 0.2], "server_lr": [1.0, 2.0]})[1]
    FedAvg(lr=0.1, server_lr=2.0)
    >>> grid(fedax.Robust(fedax.FedAvg(lr=0.1)), {"lr": [0.2]})  # of its base, where it has no rate itself
    [Robust(base=FedAvg(lr=0.2, server_lr=1.0), rule='trimmed_mean', trim=0.1, attackers=1)]
    """
    names = []
    for name in values:
        names.append(full_name(algorithm, name))
        if names[-1] is None:
            raise FedaxError(f"{type(algorithm).__name__} has no field {name!r} to sweep over")
    return [
        replaced(algorithm, dict(zip(names, chosen, strict=True)))  # type: ignore[arg-type]
        for chosen in itertools.product(*values.values())
    ]


def sweep(
    problem: Problem,
    federation: Federation | Lazy,
    algorithms: Sequence[Algorithm],
    *,
    rounds: int,
    mode: str = "auto",
    on_progress: Callable[[int], None] | None = None,
    **options: Any,
) -> Sweep:
    """Run many settings of one method; one result each, in their order.

    The settings may differ in numbers, not in choices or flags. A setting that diverges stops there, with its
    `info["diverged"]` the round; the others go on. mode: "batched", side by side in one program, "sequence", one after
    the other, or "auto", whichever is the faster by the model's size. Options are those of `simulate`; on_progress is
    called with the rounds done, those of all settings added up.

    >>> import numpy as np, jax.numpy as jnp, fedax
    >>> mean = fedax.Problem(loss=lambda w, b: jnp.mean((b["x"] - w) ** 2) / 2, init=lambda key: jnp.zeros(()))
    >>> clients = fedax.Federation.from_clients([{"x": np.float32([1, 2, 3])}, {"x": np.float32([6])}])
    >>> results = sweep(mean, clients, grid(fedax.FedAvg(lr=0.1), {"lr": [0.1, 0.5]}), rounds=30, eval_every=30)
    >>> [round(float(r.model), 2) for r in results]
    [3.83, 4.0]
    """
    settings = Settings(problem, federation, algorithms, rounds=rounds, mode=mode, **options)
    if on_progress is None:
        on_progress = notebook.progress(f"{len(algorithms)} settings", rounds * len(algorithms))
    found: list[Result] = []
    for block in settings.blocks:
        settings.run(block, keep=lambda number, result, metrics: found.append(result), say=on_progress)
    return Sweep(found)


class Sweep(list[Result]):
    """The results of a sweep, one a setting, in the order of the settings."""

    def plot(self, metric: str | None = None, against: str = "round") -> Any:
        """A plotly figure with a line for each setting, as `fedax.plot.compare` draws it."""
        from fedax import plot

        return plot.compare(list(self), metric=metric, against=against)

    def _repr_html_(self) -> str:
        """Each setting with its last metrics, for a notebook."""
        last = [result.history[-1] if result.history else {} for result in self]
        plain = {key: found for row in last for key in row if (found := parse(key)) and not found.statistic}
        keys = sorted(plain, key=lambda key: (plain[key].personal, plain[key].order))
        rows = [
            (str(result.info.get("algorithm", "")), *(plain[key].shown(row.get(key)) for key in keys))
            for result, row in zip(self, last, strict=True)
        ]
        head = ("setting", *(plain[key].heading for key in keys))
        return notebook.table(f"Sweep of {len(self)} settings", rows, head)


class Settings:
    """Settings of one method, checked, and how they are run: in blocks, each of them one program or one run."""

    def __init__(
        self,
        problem: Problem,
        federation: Federation | Lazy,
        algorithms: Sequence[Algorithm],
        *,
        rounds: int,
        mode: str = "auto",
        **options: Any,
    ) -> None:
        if isinstance(algorithms, Algorithm | str) or not isinstance(algorithms, Sequence) or not algorithms:
            raise FedaxError(f"algorithms is {algorithms!r}: it must be a list of at least 1 method, as grid gives")
        kinds = {jax.tree.structure(algorithm) for algorithm in algorithms}
        if len(kinds) != 1:
            raise FedaxError(
                f"a sweep takes settings of one method that differ in numbers alone, not {len(kinds)} kinds"
            )
        if options.get("executor") == "debug":
            raise FedaxError("a sweep is one compiled program: executor='debug' is for single runs")
        if mode not in MODES:
            raise unknown("mode", mode, MODES)
        self.algorithms, self.rounds = algorithms, rounds
        self._how = {"rounds": rounds, "protocol": False, **options}
        self._on = (problem, federation)
        self.first = Simulation(problem, federation, algorithms[0], **self._how)
        if self.first.config.patience is not None:  # settings side by side go through the same rounds
            if mode == "batched":
                raise FedaxError("patience ends a setting by itself: mode must be 'sequence' or 'auto'")
            mode = "sequence"
        lanes = _lanes(self.first.prepared, options.get("state_budget"))
        if mode == "auto":
            mode = "batched" if self.first.prepared.executor.name == "batched" and lanes > 1 else "sequence"
        self.mode = mode  #: "batched" or "sequence"
        count, most = len(algorithms), lanes if mode == "batched" else 1
        self.blocks = [range(begin, min(begin + most, count)) for begin in range(0, count, most)]
        self._save: Callable[[], None] | None = None

    def fingerprint(self) -> dict[str, str]:
        """What identifies the settings, apart from the numbers in which they differ."""
        return fingerprint(self.first.prepared)

    def run(
        self,
        block: range,
        *,
        keep: Keep,
        say: Callable[[int], None] | None = None,
        folder: Path | None = None,
        every: float = 60.0,
    ) -> None:
        """Run one of the blocks, from its checkpoint if `folder` has one, and tell `keep` of each setting.

        say: called with the rounds done, earlier blocks included. every: seconds between two checkpoints, which
        `folder` holds while the block is under way: a setting alone has a directory of its number.
        """
        done = None if say is None else (lambda rounds: say(block.start * self.rounds + rounds * len(block)))
        if self.mode == "sequence":
            self._alone(block.start, keep, done, folder, every)
            return
        path = None if folder is None else folder / f"settings-{block.start}-{block.stop - 1}.ckpt"
        lanes = Lanes(self.first, [self.algorithms[number] for number in block], path, every)
        self._save = lanes.save
        for number, (result, metrics) in zip(block, lanes.run(done), strict=True):
            result.info["mode"] = self.mode
            keep(number, result, metrics)
        self._save = None
        if path is not None and is_main_process():
            path.unlink(missing_ok=True)

    def _alone(self, number: int, keep: Keep, say: Any, folder: Path | None, every: float) -> None:
        kept: dict[str, Any] = {}
        if folder is not None:
            kept = {"out": folder / f"{number:04d}", "checkpoint_every": every, "resume": True}
        problem, federation = self._on
        run = Simulation(problem, federation, self.algorithms[number], **self._how, **kept, on_progress=say)
        if run.checkpoints is not None:
            self._save = run.checkpoints.save
        try:
            for _ in run:
                pass
            result = run.result
        except DivergedError as error:
            result = error.result if isinstance(error.result, Result) else run.result
            result.info["diverged"] = error.round
        result.info["mode"] = self.mode
        keep(number, result, run.state.per_client)
        self._save = None
        run.close()

    def save(self) -> None:
        """Write a checkpoint of the block under way, between two rounds."""
        if self._save is not None:
            self._save()


def _lanes(run: Prepared, budget: str | int | None) -> int:
    """The number of settings whose clients' states fit the budget together, at least one and at most LANES."""
    processes, held = shares.processes(run.engine.mesh), shares.share(run.engine.mesh, run.plan.clients)
    states = Packing(run.algorithm.client_init(run.x0)).size * held * (run.executor.devices // processes)
    room = byte_count(BUDGET if budget is None else budget)
    return max(1, min(LANES, room // max(1, states)))
