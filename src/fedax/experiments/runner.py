"""Carrying out an experiment: everything is checked, then each method and seed runs in its own directory."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from fedax.errors import DivergedError, FedaxError
from fedax.experiments.building import options, prepare
from fedax.experiments.folder import (
    EXPERIMENT,
    RUNS,
    RunFolder,
    Status,
    claim,
    describe_clients,
    refuse_taken,
    resolved_comparison,
    resolved_run,
    run_name,
    write_json,
)
from fedax.experiments.interrupts import Interrupt, Stopped, deferred
from fedax.experiments.schema import Experiment
from fedax.simulation import Result, Simulation


@dataclasses.dataclass(frozen=True)
class Run:
    """One method and one seed: where its files are, how it ended, and the last row of its history."""

    label: str
    seed: int
    folder: Path
    status: Status = "running"
    round: int = 0
    message: str = ""
    metrics: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What an experiment made: its directory and its runs, in order, up to the last that began."""

    folder: Path
    runs: list[Run]
    comparison: bool

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return any(run.status == "interrupted" for run in self.runs)


class Progress:
    """Told what happens; does nothing. Subclass it to show a bar."""

    def begin(self, runs: list[Run], rounds: int) -> None:
        """All is checked, and these runs follow."""

    def start(self, run: Run) -> None:
        """A run begins."""

    def advance(self, rounds: int) -> None:
        """The current run has done so many rounds."""

    def evaluated(self, row: dict[str, Any]) -> None:
        """The current run was evaluated."""

    def end(self, run: Run) -> None:
        """A run ended."""

    def stopping(self) -> None:
        """Ctrl-C was pressed, and the current run stops after its round."""


def run(experiment: Experiment, out: Path, *, progress: Progress | None = None) -> Outcome:
    """Run every method with every seed; one run fills `out`, several fill `out/runs/<label>-seed<k>`.

    Where methods make personal models, training alone runs beside them. Bad input raises before anything is written.
    A run that diverges keeps its last good model, and the others go on; after Ctrl-C the current run keeps what it has
    and no other begins.
    """
    progress = progress or Progress()
    refuse_taken(out)
    problem, federation = prepare(experiment)
    experiment, protocol = experiment.with_yardstick(), experiment.personal
    for table in experiment.algorithm:  # the constructor checks; the seed changes nothing about that
        Simulation(problem, federation, table.build(), **options(experiment, experiment.seeds[0]))
    tasks = [(table, seed) for table in experiment.algorithm for seed in experiment.seeds]
    comparison = len(tasks) > 1
    planned = [Run(str(t.label), seed, out / RUNS / run_name(t, seed) if comparison else out) for t, seed in tasks]
    if comparison:
        claim(out)
        write_json(out / EXPERIMENT, resolved_comparison(experiment, [run.folder.name for run in planned]))
    clients = describe_clients(federation)
    done: list[Run] = []
    progress.begin(planned, experiment.rounds)
    with deferred(progress.stopping) as interrupt:
        for (table, seed), plan in zip(tasks, planned, strict=True):
            progress.start(plan)
            folder = RunFolder(plan.folder, experiment.rounds, clients)
            simulation = Simulation(
                problem, federation, table.build(), out=plan.folder, protocol=protocol, **options(experiment, seed)
            )
            folder.begin(resolved_run(experiment, table, seed), simulation)
            done.append(_carry_out(plan, simulation, folder, progress, interrupt))
            progress.end(done[-1])
            if interrupt.asked:
                break
    return Outcome(out, done, comparison)


def _carry_out(plan: Run, simulation: Simulation, folder: RunFolder, progress: Progress, interrupt: Interrupt) -> Run:
    """Run one simulation to its end, whatever that is, and write what it made."""

    def advance(rounds: int) -> None:
        progress.advance(rounds)
        folder.still_running(rounds)
        interrupt.check()

    simulation.on_progress = advance
    status: Status = "finished"
    message = ""
    kept: Result | None = None
    try:
        for row in simulation:
            progress.evaluated(row)
            interrupt.check()
    except DivergedError as error:
        status, message, kept = "diverged", str(error), error.result
    except FedaxError as error:
        status, message = "failed", str(error)
    except Stopped:
        if simulation.state.round < simulation.rounds:
            status, message = "interrupted", f"interrupted after round {simulation.state.round}"
    except BaseException as error:
        ended: Status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        folder.status(ended, simulation.state.round, str(error))
        raise
    made = simulation.result if kept is None else kept
    reached = int(made.info["rounds"])
    made.save(plan.folder)
    folder.clients(simulation)
    folder.status(status, reached, message)
    metrics = dict(simulation.history[-1]) if simulation.history else {}
    return dataclasses.replace(plan, status=status, round=reached, message=message, metrics=metrics)
