"""A method of one's own: checked, run under the same rules, placed on a copy of the board, and verified by others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedax.errors import FedaxError
from fedax.experiments.events import Progress
from fedax.leaderboard.playing import Entry, Ground, chosen, named, play
from fedax.leaderboard.rules import SEEDS, TRIALS, TUNING_SEED
from fedax.leaderboard.running import label, run
from fedax.leaderboard.saved_tasks import Saved, checked, read
from fedax.leaderboard.source import source_hash
from fedax.leaderboard.standing import common_seeds, complete
from fedax.leaderboard.tasks import Task, load
from fedax.outside import is_outside
from fedax.report.columns import better
from fedax.runs.files import read_json, versions, write_json
from fedax.testing import check_target, load_class

RERUN = 2  #: tasks that verifying runs again
MOST_POINTS = 5  #: by which a score that comes out again may differ


def check(target: str, tasks: Sequence[Task]) -> str:
    """The method's track, after the conformance suite; raises if it fails or if no task is of its track."""
    if not is_outside(target):
        raise FedaxError(
            f"{target!r} is on the board already: name a method of your own, mymodule:MyMethod or file.py:X"
        )
    cls = load_class(target)
    if any(label(target) in task.methods for task in tasks):
        raise FedaxError(f"{label(target)} is the name of a method on the board: rename yours")
    report = check_target(target)
    if not report.passed:
        broken = report.failed[0]
        raise FedaxError(f"{target} fails the conformance suite: {broken.name}: {broken.detail} (fedax check {target})")
    return "personal" if cls.personalised else "composite" if cls.composite else "shared"


def add(target: str, tasks: Sequence[Task], suite: str, folder: Path, progress: Progress) -> tuple[list[Saved], Path]:
    """Run a method under the rules; the local copy of the board with it, and the submission's file."""
    track = check(target, tasks)
    tracks = ("shared", "composite") if track == "composite" else (track,)
    fitting = [task for task in tasks if task.track in tracks]
    if not fitting:
        raise FedaxError(
            f"{label(target)} is {track}, and no task asked for is: choose others by --tasks or --suite full"
        )
    run(fitting, [target], SEEDS[suite], folder, progress)
    copy, key = list[Saved](), label(target)
    results: dict[str, Any] = {}
    for task in fitting:
        mine, known = read(task, folder), read(task, None)
        if key not in mine.entries:
            progress.say(f"{task.name}: {mine.left_out.get(key, 'not run')}")
            continue
        results[task.name] = {"hash": task.hash, "entry": mine.entries[key]}
        known.entries = {**known.entries, **{k: e for k, e in mine.entries.items() if k not in known.entries}}
        known.left_out = {**mine.left_out, **known.left_out}
        if complete(known):
            copy.append(known)
        else:
            have = len(known.entries.keys() - {key})
            progress.say(f"{task.name}: {have} of {len(task.methods)} methods have results, so there is no place yet")
    path = folder / f"submission-{key}.json"
    about = {"method": target, "versions": versions(), "seeds": list(SEEDS[suite]), "tuning_seed": TUNING_SEED}
    write_json(path, {**about, "tasks": results})
    return copy, path


def verify(path: Path, tasks: Sequence[str] | None, progress: Progress) -> Iterator[tuple[str, bool, str]]:
    """What holds of a submission: that it kept the rules, and that runs come out again; a subject, whether, and words.

    tasks: which to run again; default the quickest.
    """
    asked = read_json(path)
    if asked is None:
        raise FedaxError(f"{path} is not there")
    try:
        target, seeds = str(asked["method"]), [int(seed) for seed in asked["seeds"]]
        given = {task.name: task for task in map(load, tasks or ())}
        found = {given.get(name) or load(str(name)): about for name, about in asked["tasks"].items()}
        entries = {task: checked(task, about["entry"]) for task, about in found.items()}
        hashes = {task: str(about["hash"]) for task, about in found.items()}
        was = dict(asked["versions"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FedaxError(f"{path} is not a submission: {type(error).__name__}: {error}") from None
    if not entries:
        raise FedaxError(f"{path} has no task")
    for name in given.keys() - {task.name for task in entries}:
        raise FedaxError(f"{path} has no task {name!r}: it has {', '.join(task.name for task in entries)}")
    changed = {k: v for k, v in versions().items() if was.get(k) != v}
    yield (
        "versions",
        True,
        "the same" if not changed else f"other here: {', '.join(f'{k} {v}' for k, v in changed.items())}",
    )
    yield "seeds", seeds in [list(some) for some in SEEDS.values()], f"{seeds}, tuned with {asked.get('tuning_seed')}"
    for task, entry in entries.items():
        one = named(task, target)
        yield f"{task.name}, task", hashes[task] == task.hash, hashes[task]
        yield f"{task.name}, code", entry["source"] == source_hash(one.make(one.draw(1)[0])), entry["source"]
        yield f"{task.name}, settings", entry["settings"] == one.draw(TRIALS), f"{len(entry['settings'])} settings"
        complete_runs = common_seeds(task, {"": entry}) == seeds if entry["grid"] else False
        yield f"{task.name}, runs", complete_runs, "every seed" if complete_runs else "some seeds are missing"
    cheap = sorted(entries, key=lambda task: float(entries[task]["cpu_seconds"]))
    for task in [t for t in cheap if t.name in given] if given else cheap[:RERUN]:
        progress.say(f"running {task.name} again, seed {seeds[0]}")
        yield _again(task, named(task, target), entries[task], seeds[0])


def _again(task: Task, one: Any, entry: Entry, seed: int) -> tuple[str, bool, str]:
    """Tune again, run one seed again, and compare: another machine rounds otherwise, so within what seeds differ by."""
    again = play(Ground(task), one, [seed], None, lambda entry: None, lambda share: None)
    number, other = (chosen(task, e, "gradients") for e in (entry, again))
    was, now = (_last(e, n, seed) for e, n in ((entry, number), (again, other)))
    others = (_last(entry, number, int(key)) for key in entry["runs"].get(str(number), {}) if int(key) != seed)
    scores = [score for score in others if score is not None]
    point = 0.01 if better(task.column("test")) == "max" else 0.01 * abs(was or 0.0)
    spread = 3 * float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0
    allowed = min(max(point, spread), MOST_POINTS * point)  # what a stranger's seeds differ by is no excuse for more
    subject = f"{task.name}, seed {seed} again"
    if was is None or now is None:
        return subject, was is now, f"diverged in {'both' if was is now else 'one of the two'}"
    return (
        subject,
        math.isclose(was, now, abs_tol=allowed, rel_tol=0),
        f"{now:.4g}, was {was:.4g}, within {allowed:.2g}",
    )


def _last(entry: Entry, number: int, seed: int) -> float | None:
    run = entry["runs"].get(str(number), {}).get(str(seed))
    score: float | None = run["test"][-1] if run and run["test"] else None
    return score
