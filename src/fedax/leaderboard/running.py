"""A suite, task by task and method by method; what is saved is not run again."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedax.errors import FedaxError
from fedax.experiments.events import Progress, Run
from fedax.experiments.interrupts import Stopped, deferred
from fedax.leaderboard.playing import Entry, Ground, chosen_settings, label, named, play
from fedax.leaderboard.saved_tasks import Saved, read
from fedax.leaderboard.tasks import Task
from fedax.outside import is_outside
from fedax.runs.lock import locked

UNITS = 1000  # of a progress bar, for each method on each task


def run(
    tasks: Sequence[Task],
    methods: Sequence[str] | None,
    seeds: Sequence[int],
    folder: Path,
    progress: Progress,
    *,
    minutes: float | None = None,
) -> list[str]:
    """Run methods on tasks and save each step; without `methods` all of each task's track.

    minutes: stop after the step in which they are over, and raise `Stopped` as Ctrl-C does. Returns why tasks were left
    out; raises if all were.
    """
    began = time.monotonic()
    left = [words for task in tasks if (words := task.missing()) is not None]
    if methods is not None and not any(_of_track(task, methods) for task in tasks):
        raise FedaxError(f"none of the tasks' tracks has {', '.join(methods)}")
    here = [task for task in tasks if task.missing() is None]
    if not here:
        raise FedaxError("; ".join(left))
    for words in left:
        progress.say(f"left out: {words}")
    with locked(folder), deferred(progress.stopping) as interrupt:

        def pause() -> None:
            interrupt.check()
            if minutes is not None and time.monotonic() - began > 60 * minutes:
                raise Stopped

        saved = {task.name: _current(read(task, folder), methods or ()) for task in here}
        pending = [
            (task, name)
            for task in here
            for name in (task.methods if methods is None else _of_track(task, methods))
            if not _done(task, saved[task.name], label(name), seeds)
        ]
        runs = {
            (task.name, name): Run(label(name), 0, Path(), rounds=UNITS, title=f"{task.name}, {label(name)}")
            for task, name in pending
        }
        if runs:
            progress.begin(list(runs.values()), UNITS)
        ground: Ground | None = None
        for task, name in pending:
            pause()
            if ground is None or ground.task.name != task.name:
                ground = Ground(task)
            started = runs[task.name, name]
            progress.start(started)
            message = one(ground, name, seeds, saved[task.name], progress, pause)
            if message:
                progress.say(f"{task.name}: {label(name)} left out: {message}")
            ended: Any = "failed" if message else "finished"
            progress.end(dataclasses.replace(started, status=ended, round=UNITS))
    return left


def one(
    ground: Ground, name: str, seeds: Sequence[int], saved: Saved, progress: Progress, pause: Callable[[], None]
) -> str:
    """One method on one task; returns why it was left out, if it was."""
    task, key = ground.task, label(name)

    def keep(entry: Entry) -> None:
        saved.entries[key] = entry
        saved.save()
        pause()

    candidate = named(task, name)
    try:
        ground.rounds(candidate)
    except FedaxError as error:
        saved.left_out[key] = str(error)
        saved.save()
        return str(error)
    known = saved.entries.get(key)
    play(ground, candidate, seeds, known, keep, lambda share: progress.advance(round(UNITS * share)))
    return ""


def _of_track(task: Task, methods: Sequence[str]) -> list[str]:
    """Those of the named methods that a task's board has a place for: its track's, and one's own."""
    for name in methods:
        named(task, name)  # raises where there is no such method
    return [name for name in methods if name in task.methods or is_outside(name)]


def _current(saved: Saved, methods: Sequence[str]) -> Saved:
    """What is saved but for methods whose code or ranges have changed since; `methods` may name one's own."""
    for key in saved.changed(methods):
        del saved.entries[key]
    return saved


def _done(task: Task, saved: Saved, key: str, seeds: Sequence[int]) -> bool:
    """Whether nothing of a method is left to run."""
    if key in saved.left_out:
        return True
    entry = saved.entries.get(key)
    if entry is None or not entry["grid"]:
        return False
    needed = chosen_settings(task, entry)
    return all(
        entry["runs"].get(str(number), {}).get(str(seed), {"rounds": 0})["rounds"] >= rounds
        for number, rounds in needed.items()
        for seed in seeds
    )
