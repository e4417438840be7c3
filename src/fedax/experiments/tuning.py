"""Tuning before a comparison: each method's hyper-parameters, on validation rows and a seed of its own.

tuning.json         each method's tuning: the values tried, the cost, the setting chosen; `Tuned` has the fields
tuning/             a line for each setting that is done; the same command goes on with the others

Only validation rows are evaluated: test rows are not looked at before the settings are chosen.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fedax.engine import Result, Simulation
from fedax.engine.prepare import in_memory
from fedax.engine.sweeps import Settings, sweep
from fedax.errors import FedaxError, unknown
from fedax.evaluation.metrics import BALANCED
from fedax.experiments.budget import hold_equal
from fedax.experiments.building import options, prepare
from fedax.experiments.events import Progress, Run
from fedax.experiments.file_tables import AlgorithmTable
from fedax.experiments.grids import TuneTable, Values, at_bound, grid_of, with_values
from fedax.experiments.interrupts import Interrupt, deferred
from fedax.experiments.judging import Judge
from fedax.experiments.resolved import resolved_run
from fedax.experiments.schema import Experiment
from fedax.experiments.searching import Search, near_end
from fedax.report.columns import better
from fedax.report.summary import differing, flat
from fedax.runs.files import as_json, refuse_taken, slug, write_json, write_whole

TUNED, TRIALS = "tuning.json", "tuning"
FREE = ("name", "log", "checkpoint_every")  # what may change before the tuning goes on
Setting = dict[str, float]


@dataclasses.dataclass(frozen=True)
class Tuned:
    """How one method was tuned.

    tried: the values of each hyper-parameter, or the ends of its range where it was searched. runs: how many there
    were, `diverged` of which did. chosen: the best setting, and `score` what it came to. edge: the hyper-parameters
    whose best value is the least or the largest that was tried.
    """

    label: str
    how: str
    tried: Values
    runs: int
    diverged: int
    chosen: Setting
    metric: str
    score: float | None
    seed: int
    edge: tuple[str, ...]


def tune(
    experiment: Experiment, out: Path, *, trials: int | None = None, progress: Progress | None = None
) -> tuple[Experiment, list[Tuned]]:
    """The experiment with each method's best setting, and how it was found; `out/tuning` keeps what is done.

    trials: settings a method in a search with Optuna; None for every setting of the grid. Each method has the
        rounds that it is compared with. Bad input raises before anything is written; Ctrl-C raises `Stopped`.
    """
    if not (out / TRIALS).is_dir() or (out / "experiment.json").exists():
        refuse_taken(out)
    progress = progress or Progress()
    experiment = experiment.with_yardstick()
    if len(experiment.algorithm) * len(experiment.seeds) == 1:
        raise FedaxError("there is one run: tuning is for comparisons, so give several methods or several seeds")
    problem, federation = prepare(experiment)
    if not in_memory(federation).part("validation").count.sum():
        raise FedaxError("tuning needs validation rows, and no client has any: data.split must leave some")
    experiment, shares = hold_equal(experiment, problem, federation)
    seed = _seed(experiment)
    methods = [
        _Method(experiment, table, problem, federation, seed, out / TRIALS, trials) for table in experiment.algorithm
    ]
    for sentence in shares:
        progress.say(sentence)
    waiting = [method for method in methods if method.grid]
    progress.begin([method.run for method in waiting], experiment.rounds)
    (out / TRIALS).mkdir(parents=True, exist_ok=True)
    found = []
    with deferred(progress.stopping) as interrupt:
        for method in methods:
            found.append(method.tune(progress, interrupt))
    chosen = [with_values(table, tuned.chosen) for table, tuned in zip(experiment.algorithm, found, strict=True)]
    write_json(out / TUNED, [dataclasses.asdict(tuned) for tuned in found])
    return experiment.model_copy(update={"algorithm": chosen}), found


def _seed(experiment: Experiment) -> int:
    asked = experiment.tune or TuneTable()
    return asked.seed if asked.seed is not None else next(s for s in range(2**32) if s not in experiment.seeds)


class _Method:
    """One method, checked: its settings, what decides between them, and the file of those that are done."""

    def __init__(
        self,
        experiment: Experiment,
        table: AlgorithmTable,
        problem: Any,
        federation: Any,
        seed: int,
        folder: Path,
        trials: int | None,
    ) -> None:
        self.table, self.seed, self.trials = table, seed, trials
        self.grid = grid_of(table, experiment.tune, experiment.sweep)
        self.on = (problem, federation)
        own = experiment.of(table)
        self.how = {**options(own, seed), "eval_on": ["validation"], "eval_every": own.rounds}
        self.count = math.prod(map(len, self.grid.values())) if trials is None else trials
        self.log = folder / f"{slug(str(table.label))}.jsonl"
        # all that the trials depend on; the reported seeds are not part of it
        asked = {**resolved_run(experiment, table, seed), "grid": self.grid, "searched": bool(trials)}
        kept = {name: value for name, value in asked.items() if name not in FREE}
        self.asked = json.loads(json.dumps(as_json(kept), default=str))
        self.run = Run(str(table.label), seed, folder, rounds=own.rounds * self.count)
        run = Simulation(*self.on, table.build(), **self.how, protocol=False)
        self.judge = _judge(run, experiment.tune or TuneTable())
        self.done = self._recall()

    def tune(self, progress: Progress, interrupt: Interrupt) -> Tuned:
        """Run what is left, and choose."""
        if not self.grid:
            return self._tuned("nothing to tune", {}, None)
        progress.start(self.run)
        self._write()

        def advance(rounds: int) -> None:
            progress.advance(rounds)
            interrupt.check()

        for _ in self._search(advance) if self.trials else self._grid(advance):
            progress.tried(self.run, len(self.done), self.count, self._words())
            if len(self.done) < self.count:
                interrupt.check()
        best = self._best()
        if best is None:
            raise FedaxError(
                f"every setting of {self.table.label} diverged while it was tuned: [tune] needs smaller values"
            )
        row = {"round": self.judge.rounds, **best["last"]}
        progress.end(dataclasses.replace(self.run, status="finished", round=self.judge.rounds, metrics=row))
        return self._tuned("searched" if self.trials else "grid", best["setting"], best["score"])

    def _grid(self, advance: Callable[[int], None]) -> Iterator[None]:
        """Run every combination, side by side where the model is small; yields whenever some are done."""
        combined = [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]
        methods = [with_values(self.table, setting).build() for setting in combined]
        settings = Settings(*self.on, methods, **self.how)
        for block in settings.blocks:
            if any(combined[number] not in self._settings() for number in block):

                def keep(number: int, result: Result, _: Any) -> None:
                    self._keep(combined[number], result)

                settings.run(block, keep=keep, say=advance)
                yield

    def _search(self, advance: Callable[[int], None]) -> Iterator[None]:
        """Run the settings that Optuna asks for, one after the other."""
        search = Search(self.grid, self.log.with_suffix(".optuna"), self.seed, self.judge.goal, self.done)
        while len(self.done) < self.count:
            setting = search.ask()
            search.tell(self._keep(setting, self._alone(setting, advance)))
            yield

    def _alone(self, setting: Setting, advance: Callable[[int], None]) -> Result:
        before = len(self.done) * self.judge.rounds
        method = with_values(self.table, setting).build()
        (result,) = sweep(*self.on, [method], on_progress=lambda rounds: advance(before + rounds), **self.how)
        return result

    def _keep(self, setting: Setting, result: Result) -> float | None:
        """Write down a setting that is done; its score, None if it diverged."""
        found = math.nan if "diverged" in result.info else self.judge.score(result.history)
        score = None if math.isnan(found) else found
        if setting not in self._settings():
            last = {k: v for k, v in (result.history[-1] if result.history else {}).items() if k != "round"}
            self.done.append({"setting": setting, "score": score, "last": last})
            self._write()
        return score

    def _settings(self) -> list[Setting]:
        return [trial["setting"] for trial in self.done]

    def _write(self) -> None:
        lines = [json.dumps(line) + "\n" for line in ({"asked": self.asked}, *self.done)]
        write_whole(self.log, "".join(lines).encode())

    def _recall(self) -> list[dict[str, Any]]:
        """The settings that were done before, which must be those of this experiment."""
        try:
            first, *rest = (json.loads(line) for line in self.log.read_text().splitlines())
            was = flat(first["asked"])
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FedaxError(f"{self.log} cannot be read: {error}") from None
        now = flat(self.asked)
        apart = [f"{name} was {was.get(name)} and is {now.get(name)}" for name in differing([was, now])]
        if apart:
            raise FedaxError(f"{self.log} is of another experiment: {'; '.join(apart)}")
        return rest

    def _best(self) -> dict[str, Any] | None:
        whole = [trial for trial in self.done if trial["score"] is not None]
        pick = max if self.judge.goal == "max" else min
        return pick(whole, key=lambda trial: float(trial["score"]), default=None)

    def _words(self) -> str:
        best = self._best()
        if best is None:
            return "all diverged so far"
        at = ", ".join(f"{name} {value:g}" for name, value in best["setting"].items())
        return f"best {self.judge.metric} {best['score']:.4g} at {at}"

    def _tuned(self, how: str, chosen: Setting, score: float | None) -> Tuned:
        tried = {name: [min(values), max(values)] for name, values in self.grid.items()} if self.trials else self.grid
        edge = tuple(
            name
            for name, value in chosen.items()
            if near_end(value, self.grid[name], searched=bool(self.trials)) and not at_bound(self.table, name, value)
        )
        lost = sum(trial["score"] is None for trial in self.done)
        about = (how, tried, len(self.done), lost, chosen, self.judge.metric, score, self.seed, edge)
        return Tuned(str(self.table.label), *about)


def _judge(run: Simulation, asked: TuneTable) -> Judge:
    """The judge: on validation rows, AUC and the like if asked for, else accuracy, the objective, the loss; of personal
    models if a method makes them."""
    columns = [name for name in next(iter(run)) if name.removeprefix("personal_").startswith("validation_")]
    own = "personal_" if run.prepared.algorithm.personalised else ""
    wanted = [f"{own}validation_{name}" for name in (*BALANCED, "accuracy", "objective", "loss")]
    named = asked.metric if asked.bare is None else f"{own}validation_{asked.bare}"
    metric = named or next(name for name in wanted if name in columns)
    if metric not in columns:
        raise FedaxError(f"tune.metric: {unknown('metric', metric, columns)}")
    return Judge(metric, better(metric), run.config.rounds)
