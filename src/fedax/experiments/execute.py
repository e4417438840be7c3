"""Runs an experiment: everything is checked, then each method and seed runs in its own directory."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedax.engine import Result, Simulation
from fedax.engine.prepare import Prepared
from fedax.engine.record import client_values
from fedax.errors import DivergedError, FedaxError, LostProcessError
from fedax.experiments.budget import hold_equal
from fedax.experiments.building import config_of, prepare
from fedax.experiments.events import Progress, Run
from fedax.experiments.file_tables import AlgorithmTable
from fedax.experiments.interrupts import Interrupt, Stopped, deferred
from fedax.experiments.resolved import carried_out, resolved_comparison, resolved_run, run_name
from fedax.experiments.schema import Experiment
from fedax.experiments.trackers import tracked, trackers
from fedax.problem import Problem
from fedax.report.writing import write_reports
from fedax.runs.files import EXPERIMENT, RUNS, STATUS, claim, refuse_taken, write_json
from fedax.runs.folder import RunFolder, Status, describe_clients
from fedax.runs.lock import locked
from fedax.runtime import is_main_process, noticing_losses


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of an experiment: its directory and its runs, in order, up to the last that began.

    worked: how many of the runs ran now; when a comparison goes on, the others had ended before.
    left: how many runs were planned and have not begun, after Ctrl-C.
    """

    folder: Path
    runs: list[Run]
    comparison: bool
    worked: int
    left: int = 0

    def report(self) -> Path | None:
        """Write the reports and return the page on all runs; None where no run began, or the disk failed them too."""
        inside = [run.folder for run in self.runs]
        if not inside or not is_main_process():
            return None
        try:
            return write_reports(self.folder, inside)
        except (FedaxError, OSError):
            if any(run.status == "failed" for run in self.runs):  # whose message says why
                return None
            raise

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return self.left > 0 or any(run.status == "interrupted" for run in self.runs)


@dataclasses.dataclass(frozen=True)
class PlannedRun:
    """A planned run and its method."""

    run: Run
    table: AlgorithmTable


def plan(experiment: Experiment, out: Path) -> list[PlannedRun]:
    """Every method with every seed; one run fills `out`, several fill `out/runs/<label>-seed<k>`."""
    pairs = [(table, seed) for table in experiment.algorithm for seed in experiment.seeds]
    where = [out / RUNS / run_name(table, seed) if len(pairs) > 1 else out for table, seed in pairs]
    return [
        PlannedRun(Run(str(table.label), seed, folder, rounds=experiment.of(table).rounds), table)
        for (table, seed), folder in zip(pairs, where, strict=True)
    ]


def run(
    experiment: Experiment,
    out: Path,
    *,
    only: Sequence[str] = (),
    progress: Progress | None = None,
    tuned: bool = False,
) -> Outcome:
    """Run every method with every seed, as `plan` says; `resume` goes on with runs that did not end.

    Where methods make personal models, LocalOnly runs beside them; a budget gives each method its rounds. Bad
    input raises before anything is written. A run that diverges keeps its last good model, and the others go on; after
    Ctrl-C the current run keeps what it has and no other begins.

    only: the labels of the methods that run now, if not all; `resume` goes on with the others.
    tuned: `out` holds the experiment's tuning, and nothing else.
    """
    with locked(out), noticing_losses():
        outcome = _run(experiment, out, only, progress or Progress(), tuned)
        outcome.report()
    return outcome


def _run(experiment: Experiment, out: Path, only: Sequence[str], progress: Progress, tuned: bool) -> Outcome:
    if not tuned:
        refuse_taken(out)
    experiment = experiment.with_yardstick()
    prepared = prepare(experiment)
    experiment, shares = hold_equal(experiment, *prepared)
    tasks = plan(experiment, out)
    now = [task for task in tasks if not only or task.run.label in only]
    runner = Runner(experiment, now, prepared=prepared)
    for sentence in shares:
        progress.say(sentence)
    comparison = len(tasks) > 1
    if comparison:
        if not tuned:
            claim(out)
        write_json(out / EXPERIMENT, resolved_comparison(experiment, [task.run.folder.name for task in tasks]))
    done = runner.carry_out(progress)
    return Outcome(out, done, comparison, len(done), len(now) - len(done))


class Runner:
    """A checked experiment and those of its runs that are to be carried out."""

    def __init__(
        self,
        experiment: Experiment,
        tasks: Sequence[PlannedRun],
        *,
        resume: bool = False,
        prepared: tuple[Problem, Any] | None = None,
    ) -> None:
        self.experiment, self.tasks, self.resume = experiment, tasks, resume
        self._last: Prepared | None = None
        self.trackers = trackers(experiment.log or ()) if is_main_process() else []
        self.problem, self.federation = prepared or prepare(experiment)
        self.clients = describe_clients(self.federation)
        # preparing checks a method: each is prepared before the first run begins, its other seeds when they begin
        self.prepared: dict[Path, Prepared] = {}
        for task in {task.run.label: task for task in reversed(tasks)}.values():
            self.prepared[task.run.folder] = self._prepare(task)

    def carry_out(self, progress: Progress) -> list[Run]:
        """Carry out the runs, each in its directory, up to the one that Ctrl-C ended."""
        done: list[Run] = []
        progress = tracked(progress, self.trackers)
        progress.begin([task.run for task in self.tasks], self.experiment.rounds)
        with deferred(progress.stopping) as interrupt:
            for task in self.tasks:
                progress.start(task.run)
                with locked(task.run.folder):
                    simulation, folder = self._begin(task, progress)
                    done.append(_carry_out(task.run, simulation, folder, progress, interrupt))
                progress.end(done[-1])
                if interrupt.asked:
                    break
        return done

    def _prepare(self, task: PlannedRun) -> Prepared:
        """Prepare a run; all runs share the rows on the devices."""
        config = config_of(
            self.experiment.of(task.table),
            task.run.seed,
            label=task.run.label,
            out=task.run.folder,
            protocol=self.experiment.compared,
            checkpoint_every=self.experiment.checkpoint_every,
            resume=self.resume,
        )
        self._last = Prepared.of(self.problem, self.federation, task.table.build(), config, self._last)
        return self._last

    def _begin(self, task: PlannedRun, progress: Progress) -> tuple[Simulation, RunFolder]:
        """The simulation of one run, from its last checkpoint where it is to go on, and its directory."""
        path, seed, experiment = task.run.folder, task.run.seed, self.experiment.of(task.table)
        began = (path / STATUS).is_file()
        simulation = Simulation.of(self.prepared.pop(path) if path in self.prepared else self._prepare(task))
        if began:
            progress.goes_on(task.run, simulation.state.round)
        folder = RunFolder(path, experiment.rounds, self.clients)
        resolved = carried_out(resolved_run(self.experiment, task.table, seed), simulation.prepared)
        values = client_values(simulation.prepared, simulation.state.per_client)
        folder.begin(resolved, simulation.state.round, values)
        return simulation, folder


def _carry_out(plan: Run, simulation: Simulation, folder: RunFolder, progress: Progress, interrupt: Interrupt) -> Run:
    """Run one simulation to its end, whatever that is, and write what it made."""

    def advance(rounds: int) -> None:
        progress.advance(rounds)
        folder.still_running(rounds)
        interrupt.check()

    simulation.on_progress = advance
    checkpoints = simulation.checkpoints
    assert checkpoints is not None
    status: Status = "finished"
    message = ""
    kept: Result | None = None
    try:
        try:
            with noticing_losses():
                for row in simulation:
                    progress.evaluated(row)
                    interrupt.check()
        except Stopped:
            if simulation.state.round < simulation.config.rounds:
                status, message = "interrupted", f"interrupted after round {simulation.state.round}"
                checkpoints.save()
    except DivergedError as error:
        status, message, kept = "diverged", str(error), error.result
    except FedaxError as error:
        if isinstance(error, LostProcessError):
            folder.status("failed", simulation.state.round, str(error))
            raise
        status, message = "failed", str(error)
    except BaseException as error:
        ended: Status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        folder.status(ended, simulation.state.round, str(error))
        raise
    if status == "finished":
        message = simulation.stopped_early
    made = simulation.result if kept is None else kept
    reached = int(made.info["rounds"])
    with contextlib.suppress(*([OSError] if status == "failed" else [])):  # the disk may be full, as the message says
        made.keep(plan.folder)
        by_client = simulation.state.by_client
        folder.clients(
            client_values(simulation.prepared, simulation.state.per_client),
            None if by_client is None else by_client.as_json(),
        )
        folder.status(status, reached, message)
    if status in ("finished", "diverged"):  # only now: a run that is killed while it saves can still go on
        checkpoints.clear()
    metrics = dict(simulation.state.history[-1]) if simulation.state.history else {}
    return dataclasses.replace(plan, status=status, round=reached, message=message, metrics=metrics)
