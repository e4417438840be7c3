"""Resumes an experiment that did not finish, from the files that it left."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedax.errors import FedaxError
from fedax.experiments.events import Progress, Run
from fedax.experiments.execute import Outcome, PlannedRun, Runner, plan
from fedax.experiments.reading import parse
from fedax.experiments.resolved import resolved_run
from fedax.experiments.schema import Experiment
from fedax.runs.files import EXPERIMENT, HISTORY, INFO, RUNS, STATUS, as_json, read_history, read_json
from fedax.runs.lock import locked
from fedax.runtime import noticing_losses

log = logging.getLogger("fedax")
_MACHINE = ("versions", "runs", "metrics")  # fields of a resolved experiment that an experiment file does not have
# What may change while a comparison is under way. A single run goes on with the devices that it began with.
_FREE = ("executor", "devices", "chunk", "checkpoint_every", "state_budget")


def resume(folder: Path, *, only: Sequence[str] = (), progress: Progress | None = None) -> Outcome:
    """Go on with the runs of a directory that neither finished nor diverged, and begin those that never did.

    folder: that of a run or of a comparison. A run goes on from its last checkpoint to the same bits as if it had never
        stopped; from the start where there is none. The experiment is the one that `experiment.json` describes there.
    only: the labels of the methods that go on, if not all.

    >>> resume(Path("no-such-directory"))
    Traceback (most recent call last):
    fedax.errors.FedaxError: 'no-such-directory' is not a run or a comparison: it has no experiment.json
    """
    home = _home(folder)
    experiment = recall(home)
    with contextlib.ExitStack() as locks, noticing_losses():
        locks.enter_context(locked(folder))
        outcome = _resume(experiment, home, folder, only, progress or Progress(), locks)
        outcome.report()
    return outcome


def _resume(
    experiment: Experiment,
    home: Path,
    folder: Path,
    only: Sequence[str],
    progress: Progress,
    locks: contextlib.ExitStack,
) -> Outcome:
    if experiment.sweep is not None:
        raise FedaxError(f"{str(folder)!r} is a sweep: fedax.experiments.resume_sweep goes on with it")
    tasks = _planned(experiment, home)
    if home != folder:
        (task,) = (task for task in tasks if task.run.folder.name == folder.resolve().name)
        tasks = [PlannedRun(dataclasses.replace(task.run, folder=folder), task.table)]
    if tasks[0].run.folder != home:
        _refuse_another(experiment, tasks)
    for task in tasks:
        if task.run.folder.is_dir() and _found(task.run).status not in ("finished", "diverged"):
            locks.enter_context(locked(task.run.folder))
    runs = [_found(task.run) for task in tasks]
    unfinished = [number for number, run in enumerate(runs) if run.status not in ("finished", "diverged")]
    waiting = [number for number in unfinished if not only or runs[number].label in only]
    done: list[Run] = []
    if waiting:
        done = Runner(experiment, [tasks[number] for number in waiting], resume=True).carry_out(progress)
    else:
        progress.begin([], experiment.rounds)
    now = dict(enumerate(runs)) | dict(zip(waiting, done, strict=False))
    left = waiting[len(done) :]
    others = [n for n in unfinished if n not in waiting and not (runs[n].folder / HISTORY).is_file()]  # not begun
    return Outcome(folder, [now[n] for n in now if n not in left + others], len(tasks) > 1, len(done), len(left))


def _planned(experiment: Experiment, home: Path) -> list[PlannedRun]:
    """The experiment's runs, which must be those that a comparison has written down."""
    tasks = plan(experiment, home)
    refuse_other_runs(home, [task.run.folder.name for task in tasks])
    return tasks


def refuse_other_runs(home: Path, names: list[str]) -> None:
    """Raise if these are not the runs that a comparison or a sweep has written down."""
    was = (read_json(home / EXPERIMENT) or {}).get("runs")
    if was is not None and names != was:
        raise FedaxError(
            f"the comparison cannot go on under another experiment: its runs were {', '.join(was)} "
            f"and are {', '.join(names)}"
        )


def recall(folder: Path) -> Experiment:
    """The experiment of a run, a comparison or a sweep, from its `experiment.json`."""
    path = folder / EXPERIMENT
    table = read_json(path)
    if table is None:
        raise FedaxError(f"{str(folder)!r} is not a run or a comparison: it has no {EXPERIMENT}")
    if table.get("executor") == "flower":
        raise FedaxError(f"{str(folder)!r} is a run over a network: `flwr run` with the same out goes on with it")
    if table.get("source") == "python" and "runs" in table:
        raise FedaxError(
            f"{str(folder)!r} is a comparison made in Python: the same call with another out makes it again"
        )
    if table.get("source") == "python":
        again = "the same call with resume=True goes on with it, if it had checkpoint_every"
        raise FedaxError(f"{str(folder)!r} is a run made in Python: {again}")
    table = {key: value for key, value in table.items() if key not in _MACHINE}
    if "seed" in table:
        table["seeds"] = [table.pop("seed")]
    try:
        return parse(_as_toml(table))
    except FedaxError as error:
        raise FedaxError(f"{path}: {error}") from None


def is_sweep(folder: Path) -> bool:
    """Whether a directory is that of a sweep.

    >>> is_sweep(Path("no-such-directory"))
    False
    """
    return (read_json(folder / EXPERIMENT) or {}).get("sweep") is not None


def _home(folder: Path) -> Path:
    """The directory of the comparison that a run is part of, which names the metrics of all its runs; else its own."""
    above = folder.resolve().parent
    about = read_json(above.parent / EXPERIMENT) if above.name == RUNS else None
    inside = about is not None and folder.resolve().name in about.get("runs", ()) and about.get("sweep") is None
    return above.parent if inside else folder


def _as_toml(content: Any) -> Any:
    """A resolved table as an experiment file has it: infinity as a number, and no entries that are None."""
    if isinstance(content, dict):
        return {key: _as_toml(value) for key, value in content.items() if value is not None}
    if isinstance(content, list):
        return [_as_toml(value) for value in content]
    return float(content) if content in ("inf", "-inf") else content


def _found(run: Run) -> Run:
    """A run as its directory has it; one that was killed is still "running"."""
    about = read_json(run.folder / STATUS) or {}
    rows = read_history(run.folder / HISTORY) if (run.folder / HISTORY).is_file() else []
    known = {key: about[key] for key in ("status", "round", "message") if key in about}
    if not isinstance(known.get("status", ""), str) or not isinstance(known.get("round", 0), int):
        raise FedaxError(f"{run.folder / STATUS} cannot be read: status must be text and round a whole number")
    whole = rows and rows[-1].get("round") == about.get("round") and (run.folder / INFO).is_file()
    if known.get("status") == "finished" and not whole:
        log.warning("%s says that the run has finished, and its files do not: it goes on", run.folder / STATUS)
        known["status"] = "interrupted"
    return dataclasses.replace(run, metrics=dict(rows[-1]) if rows else {}, **known)


def _refuse_another(experiment: Experiment, tasks: Sequence[PlannedRun]) -> None:
    """Raise if a run of a comparison was begun under another experiment than the comparison now describes."""
    for task in tasks:
        was = read_json(task.run.folder / EXPERIMENT)
        if was is not None:
            now = as_json(resolved_run(experiment, task.table, task.run.seed))
            apart = list(_apart(was, {key: value for key, value in now.items() if key not in _FREE}))
            if apart:
                name = task.run.folder.resolve().name
                raise FedaxError(f"{name} cannot go on under another experiment: {'; '.join(apart)}")


def _apart(was: dict[str, Any], now: dict[str, Any], inside: Sequence[str] = ()) -> Iterator[str]:
    for key, value in now.items():
        path = ".".join([*inside, key])
        before = was.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            yield from _apart(before, value, [*inside, key])
        elif before != value and not (value is None and path in ("problem.loss", "model.outputs")):
            yield f"{path} was {before!r} and is {value!r}"
