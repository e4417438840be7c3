"""Runs a sweep: each method's settings, side by side or in sequence; the best of each method is kept as a run.

sweep.csv           a row for each method, seed and setting that is done: its values, its score, its last metrics
histories.jsonl     a row for each evaluated round of each of them
settings/           the result of each setting, as soon as it is done, and checkpoints of those under way
runs/               the best setting of each method, a directory for each seed
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedax.algorithms import Algorithm
from fedax.engine import Simulation
from fedax.engine.prepare import Prepared
from fedax.engine.record import client_values
from fedax.errors import FedaxError
from fedax.experiments.building import config_of, prepare
from fedax.experiments.events import Progress, Run
from fedax.experiments.file_tables import AlgorithmTable
from fedax.experiments.grids import with_values
from fedax.experiments.interrupts import Interrupt, Stopped, deferred
from fedax.experiments.judging import Judge, judge
from fedax.experiments.resolved import carried_out, resolved_comparison, resolved_run, run_name
from fedax.experiments.resuming import recall, refuse_other_runs
from fedax.experiments.schema import Experiment
from fedax.experiments.sweep_grid import Grid
from fedax.experiments.trials import TRIAL, TriedSetting, drop_models
from fedax.report.recorded_sweep import at_the_edge
from fedax.report.writing import write_reports
from fedax.runs.files import EXPERIMENT, RUNS, claim, refuse_taken, write_json, write_whole
from fedax.runs.folder import RunFolder, describe_clients
from fedax.runs.lock import locked
from fedax.runtime import is_main_process, noticing_losses

SETTINGS, HISTORIES, TRIALS = "sweep.csv", "histories.jsonl", "settings"


@dataclasses.dataclass(frozen=True)
class Best:
    """The best setting of one method, with its result for each seed; no setting if all diverged.

    mode: how the settings were run, "batched" or in "sequence".
    """

    label: str
    settings: int
    diverged: int
    mode: str
    setting: dict[str, float] | None = None
    scores: tuple[float, ...] = ()
    reached: tuple[int | None, ...] = ()
    rows: tuple[dict[str, Any], ...] = ()
    folders: tuple[Path, ...] = ()
    edge: tuple[str, ...] = ()  #: the fields whose best value is the first or last of what was tried, of three or more


@dataclasses.dataclass(frozen=True)
class Swept:
    """The outcome of a sweep: its directory, the judge, and the best of each method whose grid finished.

    worked: how many grids, each of a method and a seed, ran now. interrupted: whether some of them did not finish.
    """

    folder: Path
    judge: Judge
    methods: list[Best]
    interrupted: bool
    worked: int

    def report(self) -> Path | None:
        """Write the reports and return the page on the best runs; None where no grid finished."""
        inside = [path for best in self.methods for path in best.folders]
        return write_reports(self.folder, inside) if inside and is_main_process() else None


def sweep(experiment: Experiment, out: Path, *, only: Sequence[str] = (), progress: Progress | None = None) -> Swept:
    """Run every method's grid with every seed, and keep the best setting of each method in `out/runs`.

    only: the labels of the methods that are run, if not all; `resume_sweep` runs the others.
    Bad input raises before anything is written. A setting is written when it is done; after Ctrl-C `resume_sweep` goes
    on with the others.
    """
    with locked(out), noticing_losses():
        refuse_taken(out)
        sweeper = _Sweeper(experiment, out)
        sweeper.begin()
        swept = sweeper.carry_out(progress or Progress(), only)
        swept.report()
    return swept


def resume_sweep(folder: Path, *, only: Sequence[str] = (), progress: Progress | None = None) -> Swept:
    """Go on with a sweep that did not finish: settings that are done are kept, those under way go on.

    only: the labels of the methods that go on, if not all.

    >>> resume_sweep(Path("no-such-directory"))
    Traceback (most recent call last):
    fedax.errors.FedaxError: 'no-such-directory' is not a run or a comparison: it has no experiment.json
    """
    experiment = recall(folder)
    with locked(folder), noticing_losses():
        sweeper = _Sweeper(experiment, folder)
        refuse_other_runs(folder, sweeper.names)
        swept = sweeper.carry_out(progress or Progress(), only)
        swept.report()
    return swept


class _Sweeper:
    """An experiment with a [sweep] table, checked, and the files that its sweep writes."""

    def __init__(self, experiment: Experiment, out: Path) -> None:
        if experiment.sweep is None:
            raise FedaxError("there is no [sweep] table: it must have a list of values such as lr = [0.01, 0.1]")
        if experiment.executor == "debug":
            raise FedaxError("executor is 'debug': it runs one setting at a time, and a sweep runs them side by side")
        self.experiment, self.table, self.out = experiment, experiment.sweep, out
        self.count = math.prod(map(len, self.table.values.values()))
        self.problem, self.federation = prepare(experiment)
        first = experiment.seeds[0]
        columns = [
            list(next(iter(Simulation.of(self.prepared(table.build(), first))))) for table in experiment.algorithm
        ]
        self.judge = judge(self.table, experiment.rounds, columns)
        self.clients = describe_clients(self.federation)
        self.names = [run_name(table, seed) for table in experiment.algorithm for seed in experiment.seeds]
        self.trials: list[TriedSetting] = []

    def prepared(self, algorithm: Algorithm, seed: int) -> Prepared:
        """One setting alone."""
        return Prepared.of(self.problem, self.federation, algorithm, config_of(self.experiment, seed))

    def begin(self) -> None:
        """Write the resolved experiment, before the first round."""
        claim(self.out)
        decides = {"metric": self.judge.metric, "goal": self.judge.goal}
        resolved = resolved_comparison(self.experiment, self.names)
        write_json(self.out / EXPERIMENT, {**resolved, "sweep": {**self.table.model_dump(), **decides}})

    def carry_out(self, progress: Progress, only: Sequence[str]) -> Swept:
        """Run the settings that are not done, method by method, up to Ctrl-C; with `only`, those of these methods."""
        every = [(table, seed) for table in self.experiment.algorithm for seed in self.experiment.seeds]
        pairs = [pair for pair in every if not only or pair[0].label in only or not self.left(*pair)]
        waiting = [self.run_of(table, seed) for table, seed in pairs if self.left(table, seed)]
        progress.begin(waiting, self.experiment.rounds * self.count)
        if is_main_process():
            (self.out / HISTORIES).unlink(missing_ok=True)
        methods: list[Best] = []
        ended = 0
        with deferred(progress.stopping) as interrupt:
            for table in self.experiment.algorithm:
                done: list[Grid] = []
                for seed in [seed for one, seed in pairs if one is table]:
                    if interrupt.asked:
                        break
                    grid = Grid(
                        self.experiment,
                        table,
                        seed,
                        (self.problem, self.federation),
                        self.judge,
                        self.home(table, seed),
                    )
                    self.record(list(grid.trials.values()))
                    if not grid.done:
                        self.run(grid, self.run_of(table, seed), progress, interrupt)
                    grid.settings = None  # its data and programs
                    done += [grid] if grid.done else []
                if done:
                    methods.append(self.keep_best(table, done))
                ended += len(done)
        return Swept(self.out, self.judge, methods, interrupted=ended < len(pairs), worked=len(waiting))

    def run_of(self, table: AlgorithmTable, seed: int) -> Run:
        """A grid as a `Run` of `fedax.experiments.events`."""
        return Run(str(table.label), seed, self.out / RUNS / run_name(table, seed))

    def left(self, table: AlgorithmTable, seed: int) -> int:
        """The number of a grid's settings that are not done."""
        return self.count - sum(1 for _ in self.home(table, seed).glob(f"*/{TRIAL}"))

    def home(self, table: AlgorithmTable, seed: int) -> Path:
        """The directory of a grid's settings."""
        return self.out / TRIALS / run_name(table, seed)

    def run(self, grid: Grid, run: Run, progress: Progress, interrupt: Interrupt) -> None:
        """Run the rest of one method's grid with one seed; settings are written and shown as they are done."""

        def advance(rounds: int) -> None:
            progress.advance(rounds)
            interrupt.check()

        progress.start(run)
        try:
            for new in grid.run(advance):
                self.record(new)
                progress.tried(run, len(grid.trials), self.count, _words(grid.best, self.judge))
                if not grid.done:
                    interrupt.check()
        except Stopped:
            grid.settings.save()
            return
        progress.end(_ended(run, grid))

    def record(self, trials: list[TriedSetting]) -> None:
        """Add settings to the table and to the histories."""
        if not trials:
            return
        self.trials += trials
        lines = [trial.line(self.judge) for trial in self.trials]
        text = io.StringIO()
        writer = csv.DictWriter(text, list(dict.fromkeys(key for line in lines for key in line)), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
        write_whole(self.out / SETTINGS, text.getvalue().encode())
        if not is_main_process():
            return
        with (self.out / HISTORIES).open("a") as file:
            for trial in trials:
                whose = {"algorithm": trial.label, "seed": trial.seed, **trial.setting}
                file.writelines(json.dumps({**whose, **row}) + "\n" for row in trial.result.history)

    def keep_best(self, table: AlgorithmTable, grids: list[Grid]) -> Best:
        """Write the runs of the setting that is best over the seeds; then remove the models of all settings."""
        of_settings = [[grid.trials[number] for grid in grids] for number in range(self.count)]
        whole = [trials for trials in of_settings if not any(math.isnan(trial.score) for trial in trials)]
        about = Best(str(table.label), len(of_settings), len(of_settings) - len(whole), mode=grids[0].mode)
        folders: tuple[Path, ...] = ()
        if whole:
            best = min(whole, key=lambda ts: self.judge.order([t.score for t in ts], [t.reached for t in ts]))
            folders = tuple(self.keep(table, trial) for trial in best)
            about = dataclasses.replace(
                about,
                setting=best[0].setting,
                scores=tuple(trial.score for trial in best),
                reached=tuple(trial.reached for trial in best),
                rows=tuple(trial.last for trial in best),
                folders=folders,
                edge=at_the_edge(best[0].setting, self.table.values),
            )
        if len(grids) == len(self.experiment.seeds) and is_main_process():
            for grid in grids:
                drop_models(grid.folder)
        return about

    def keep(self, table: AlgorithmTable, trial: TriedSetting) -> Path:
        """Write one setting as a run of its own; a setting without models has been written already."""
        path = self.out / RUNS / run_name(table, trial.seed)
        if trial.result.model is None:
            return path
        chosen = with_values(table, trial.setting, keep_schedules=False)
        run = self.prepared(chosen.build(), trial.seed)
        if is_main_process():
            path.mkdir(parents=True, exist_ok=True)
        trial.result.keep(path)
        folder = RunFolder(path, self.experiment.rounds, self.clients)
        resolved = carried_out(resolved_run(self.experiment, chosen, trial.seed), run)
        folder.begin(resolved, self.experiment.rounds, client_values(run, trial.metrics))
        folder.status("finished", self.experiment.rounds)
        return path


def _words(best: TriedSetting | None, judge: Judge) -> str:
    """The best setting so far, for people."""
    if best is None:
        return "all diverged so far"
    at = ", ".join(f"{name} {value:g}" for name, value in best.setting.items())
    return f"best {judge.metric} {best.score:.4g} at {at}"


def _ended(run: Run, grid: Grid) -> Run:
    """How a grid ended: with the last metrics of its best setting."""
    if grid.best is None:
        reached = max(int(trial.result.info["rounds"]) for trial in grid.trials.values())
        return dataclasses.replace(run, status="diverged", round=reached)
    return dataclasses.replace(run, status="finished", round=grid.judge.rounds, metrics=grid.best.last)
