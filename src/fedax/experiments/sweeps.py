"""Carrying out a sweep: each method's settings side by side as one compiled program, the best kept as a run.

sweep.csv           a row for each method, seed and setting: its values, its score, its last metrics
histories.jsonl     a row for each evaluated round of each of them
runs/               the best setting of each method, a directory a seed
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedax.algorithms import Algorithm
from fedax.errors import FedaxError
from fedax.experiments.building import options, prepare
from fedax.experiments.folder import (
    EXPERIMENT,
    RUNS,
    RunFolder,
    claim,
    describe_clients,
    refuse_taken,
    resolved_comparison,
    resolved_run,
    run_name,
    write_json,
)
from fedax.experiments.interrupts import Interrupt, Stopped, deferred
from fedax.experiments.judging import Judge, judge
from fedax.experiments.runner import Progress, Run
from fedax.experiments.schema import Experiment
from fedax.experiments.tables import AlgorithmTable
from fedax.simulation import Result, Simulation
from fedax.simulation.moments import Metrics
from fedax.simulation.result import write_whole
from fedax.simulation.sweep import side_by_side

SETTINGS, HISTORIES = "sweep.csv", "histories.jsonl"


@dataclasses.dataclass(frozen=True)
class Trial:
    """One setting of one method with one seed, its clients' last metrics, and its score: NaN if it diverged."""

    label: str
    seed: int
    setting: dict[str, float]
    result: Result
    metrics: Metrics
    score: float
    reached: int | None

    def line(self, judge: Judge) -> dict[str, Any]:
        """Its row of the table of settings."""
        best = judge.best(self.result.history)
        decided = {
            "diverged": self.result.info.get("diverged", ""),
            "score": "" if math.isnan(self.score) else self.score,
            "rounds_to_target": "" if self.reached is None else self.reached,
            "best": best.get(judge.metric, ""),
            "best_round": best.get("round", ""),
        }
        return {"algorithm": self.label, "seed": self.seed, **self.setting, **decided, **self.last}

    @property
    def last(self) -> dict[str, Any]:
        """The last row of its history."""
        return self.result.history[-1] if self.result.history else {}


@dataclasses.dataclass(frozen=True)
class Best:
    """The best setting of one method, with what it came to for each seed; no setting if all diverged."""

    label: str
    settings: int
    diverged: int
    setting: dict[str, float] | None = None
    scores: tuple[float, ...] = ()
    reached: tuple[int | None, ...] = ()
    rows: tuple[dict[str, Any], ...] = ()
    folders: tuple[Path, ...] = ()


@dataclasses.dataclass(frozen=True)
class Swept:
    """What a sweep made: its directory, what decided, and the best of each method whose grid finished."""

    folder: Path
    judge: Judge
    methods: list[Best]
    interrupted: bool


def sweep(experiment: Experiment, out: Path, *, progress: Progress | None = None) -> Swept:
    """Run every method's grid with every seed, and keep the best setting of each method in `out/runs`.

    Bad input raises before anything is written. What a grid made is written when it is done; after Ctrl-C the
    grids that are done are kept, and the current one is left out.
    """
    progress = progress or Progress()
    refuse_taken(out)
    sweeper = _Sweeper(experiment, out)
    planned = {
        str(t.label): [Run(str(t.label), s, out / RUNS / run_name(t, s)) for s in experiment.seeds]
        for t in experiment.algorithm
    }
    every = [run for runs in planned.values() for run in runs]
    sweeper.begin([run.folder.name for run in every])
    progress.begin(every, experiment.rounds * sweeper.settings)
    methods: list[Best] = []
    done = 0
    with deferred(progress.stopping) as interrupt:
        for table in experiment.algorithm:
            grids = sweeper.grids(table, planned[str(table.label)], progress, interrupt)
            done += len(grids)
            if grids:
                methods.append(sweeper.keep_best(table, grids))
            if interrupt.asked:
                break
    return Swept(out, sweeper.judge, methods, interrupted=done < len(every))


class _Sweeper:
    """An experiment with a [sweep] table, checked, and the files that its sweep writes."""

    def __init__(self, experiment: Experiment, out: Path) -> None:
        if experiment.sweep is None:
            raise FedaxError("there is no [sweep] table: it must have a list of values such as lr = [0.01, 0.1]")
        if experiment.executor == "debug":
            raise FedaxError("executor is 'debug': it runs one setting at a time, and a sweep runs them side by side")
        self.experiment, self.table, self.out = experiment, experiment.sweep, out
        self.settings = math.prod(map(len, self.table.values.values()))
        self.problem, self.federation = prepare(experiment)
        first = experiment.seeds[0]
        columns = [list(next(iter(self.simulation(table.build(), first)))) for table in experiment.algorithm]
        self.judge = judge(self.table, experiment.rounds, columns)
        self.clients = describe_clients(self.federation)
        self.lines: list[dict[str, Any]] = []

    def simulation(self, algorithm: Algorithm, seed: int) -> Simulation:
        """One setting alone."""
        return Simulation(self.problem, self.federation, algorithm, **options(self.experiment, seed))

    def begin(self, runs: list[str]) -> None:
        """Write what is known before the first round."""
        claim(self.out)
        decides = {"metric": self.judge.metric, "goal": self.judge.goal}
        resolved = resolved_comparison(self.experiment, runs)
        write_json(self.out / EXPERIMENT, {**resolved, "sweep": {**self.table.model_dump(), **decides}})

    def grids(
        self, table: AlgorithmTable, runs: list[Run], progress: Progress, interrupt: Interrupt
    ) -> list[list[Trial]]:
        """One method's grid for each seed, up to the one that Ctrl-C stopped; each is written when it is done."""

        def advance(rounds: int) -> None:
            progress.advance(rounds)
            interrupt.check()

        done: list[list[Trial]] = []
        for run in runs:
            progress.start(run)
            try:
                trials = self.grid(table, run.seed, advance)
            except Stopped:
                break
            self.record(trials)
            done.append(trials)
            progress.end(_ended(run, trials, self.judge))
            if interrupt.asked:
                break
        return done

    def grid(self, table: AlgorithmTable, seed: int, advance: Callable[[int], None]) -> list[Trial]:
        """Every setting of one method with one seed, as one compiled program."""
        settings, algorithms = zip(*self.table.settings(table), strict=True)
        how = options(self.experiment, seed)
        found = side_by_side(self.problem, self.federation, algorithms, on_progress=advance, **how)
        return [
            Trial(
                str(table.label),
                seed,
                setting,
                result,
                metrics,
                math.nan if "diverged" in result.info else self.judge.score(result.history),
                self.judge.reached(result.history),
            )
            for setting, (result, metrics) in zip(settings, found, strict=True)
        ]

    def record(self, trials: list[Trial]) -> None:
        """Add a grid to the table of settings and to the histories."""
        self.lines += [trial.line(self.judge) for trial in trials]
        text = io.StringIO()
        writer = csv.DictWriter(
            text, list(dict.fromkeys(key for line in self.lines for key in line)), lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(self.lines)
        write_whole(self.out / SETTINGS, text.getvalue().encode())
        with (self.out / HISTORIES).open("a") as file:
            for trial in trials:
                whose = {"algorithm": trial.label, "seed": trial.seed, **trial.setting}
                file.writelines(json.dumps({**whose, **row}) + "\n" for row in trial.result.history)

    def keep_best(self, table: AlgorithmTable, grids: list[list[Trial]]) -> Best:
        """Write the runs of the setting that is best over the seeds."""
        of_settings = list(zip(*grids, strict=True))
        whole = [trials for trials in of_settings if not any(math.isnan(trial.score) for trial in trials)]
        about = Best(str(table.label), len(of_settings), len(of_settings) - len(whole))
        if not whole:
            return about
        best = min(whole, key=lambda trials: self.judge.order([t.score for t in trials], [t.reached for t in trials]))
        return dataclasses.replace(
            about,
            setting=best[0].setting,
            scores=tuple(trial.score for trial in best),
            reached=tuple(trial.reached for trial in best),
            rows=tuple(trial.last for trial in best),
            folders=tuple(self.keep(table, trial) for trial in best),
        )

    def keep(self, table: AlgorithmTable, trial: Trial) -> Path:
        """Write one setting as a run of its own."""
        chosen = AlgorithmTable(name=table.name, label=table.label, **{**table.options, **trial.setting})
        path = self.out / RUNS / run_name(table, trial.seed)
        simulation = self.simulation(chosen.build(), trial.seed)
        simulation.per_client = trial.metrics
        trial.result.save(path)
        folder = RunFolder(path, self.experiment.rounds, self.clients)
        folder.begin(resolved_run(self.experiment, chosen, trial.seed), simulation)
        folder.status("finished", self.experiment.rounds)
        return path


def _ended(run: Run, trials: list[Trial], judge: Judge) -> Run:
    """How a grid ended: with the last metrics of its best setting."""
    whole = [trial for trial in trials if not math.isnan(trial.score)]
    if not whole:
        return dataclasses.replace(run, status="diverged", round=max(int(t.result.info["rounds"]) for t in trials))
    best = min(whole, key=lambda trial: judge.order([trial.score], [trial.reached]))
    return dataclasses.replace(run, status="finished", round=judge.rounds, metrics=best.last)
