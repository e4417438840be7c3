"""A suite, task by task and method by method; what is saved is not run again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fedax.errors import FedaxError
from fedax.experiments.events import Progress, Run
from fedax.experiments.interrupts import Stopped, deferred
from fedax.leaderboard.playing import Entry, Ground, chosen_settings, named, play
from fedax.leaderboard.rules import TRIALS
from fedax.leaderboard.saving import Saved, read
from fedax.leaderboard.source import source_hash
from fedax.leaderboard.tasks import Task
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

        saved = {task.name: _current(read(task, folder)) for task in here}
        pending = [
            (task, name)
            for task in here
            for name in (methods or task.methods)
            if not _done(task, saved[task.name], label(name), seeds)
        ]
        runs = {
            (task.name, name): Run(f"{task.name}, {label(name)}", 0, Path(), rounds=UNITS) for task, name in pending
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
            progress.end(_ended(started, message))
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

    try:
        candidate = named(task, name)
        ground.rounds(candidate)
    except FedaxError as error:
        saved.left_out[key] = str(error)
        saved.save()
        return str(error)
    known = saved.entries.get(key)
    play(ground, candidate, seeds, known, keep, lambda share: progress.advance(round(UNITS * share)))
    return ""


def label(name: str) -> str:
    """How a method is called on the board.

    >>> label("mine.py:Mine")
    'Mine'
    """
    return name.rpartition(":")[2] or name


def _current(saved: Saved) -> Saved:
    """What is saved but for methods whose code or ranges have changed since."""
    for key, entry in list(saved.entries.items()):
        if key in saved.task.methods:
            candidate = named(saved.task, key)
            settings = candidate.draw(TRIALS)
            if entry["source"] != source_hash(candidate.make(settings[0])) or entry["settings"] != settings:
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


def _ended(run: Run, message: str) -> Run:
    return Run(run.label, 0, Path(), "failed" if message else "finished", UNITS, message, {}, UNITS)
