"""A method of one's own: checked, run under the same rules, placed on a copy of the board, and verified by others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedax.errors import FedaxError
from fedax.experiments.events import Progress
from fedax.leaderboard.playing import Entry, Ground, chosen, label, named, play
from fedax.leaderboard.rules import SEEDS, TRIALS, TUNING_SEED
from fedax.leaderboard.running import run
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
    progress.say(f"checking {label(target)}: the conformance suite")
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


class Claim(NamedTuple):
    """A method's results on a task, as a file has them."""

    task: Task
    target: str
    hash: str
    entry: Entry

    @property
    def about(self) -> str:
        return f"{self.task.name}, {label(self.target)}"

    def wrong(self, seeds: Sequence[int]) -> list[str]:
        """What does not keep the rules."""
        task, entry, one = self.task, self.entry, named(self.task, self.target)
        checks = {
            "another version of the task": self.hash == task.hash,
            "other code": entry["source"] == source_hash(one.make(one.draw(1)[0])),
            "other settings": entry["settings"] == one.draw(TRIALS),
            "not every seed": bool(entry["grid"]) and common_seeds(task, {"": entry}) == list(seeds),
        }
        return [words for words, holds in checks.items() if not holds]


def verify(
    path: Path, tasks: Sequence[str] | None, methods: Sequence[str] | None, progress: Progress
) -> Iterator[tuple[str, bool, str]]:
    """Check a submission, or a task's saved results: the subject of each check, whether it holds, and a sentence.

    Every result must keep the rules; those of the named tasks and methods, or the two quickest, must come out again.
    """
    asked = read_json(path)
    if asked is None:
        raise FedaxError(f"{path} is not there")
    try:
        claims, named_tasks = _claims(asked, tasks or ()), [load(name).name for name in tasks or ()]
        seeds = (
            [int(seed) for seed in asked["seeds"]]
            if "seeds" in asked
            else common_seeds(claims[0].task, asked["entries"])
        )
        was, tuned = dict(asked["versions"]), asked["tuning_seed"]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise FedaxError(f"{path} is no submission and no task's results: {type(error).__name__}: {error}") from None
    again = [
        claim
        for claim in sorted(claims, key=lambda claim: float(claim.entry["cpu_seconds"]))
        if (not tasks or claim.task.name in named_tasks) and (not methods or label(claim.target) in methods)
    ]
    if not again:
        raise FedaxError(f"{path} has no such result: it has {'; '.join(claim.about for claim in claims)}")
    changed = {k: v for k, v in versions().items() if was.get(k) != v}
    others = ", ".join(f"{name} {version}" for name, version in changed.items())
    yield "versions", True, f"other here: {others}" if others else "the same"
    yield "seeds", seeds in map(list, SEEDS.values()) and tuned == TUNING_SEED, f"{seeds}, tuned with {tuned}"
    for claim in claims:
        wrong = claim.wrong(seeds)
        yield claim.about, not wrong, "; ".join(wrong) or "the task, the code, the settings and the seeds"
    for claim in again if tasks or methods else again[:RERUN]:
        progress.say(f"running {claim.about} again, seed {seeds[0]}")
        yield _again(claim, seeds[0])


def _claims(asked: Any, own: Sequence[str]) -> list[Claim]:
    """What a file claims; own: tasks in files of their own, which it has by name alone."""
    if "entries" in asked:
        task, digest = load(str(asked["task"])), str(asked["hash"])
        return [Claim(task, key, digest, checked(task, entry)) for key, entry in asked["entries"].items()]
    given = {task.name: task for task in map(load, own)}
    found = [(given.get(name) or load(str(name)), about) for name, about in asked["tasks"].items()]
    return [Claim(t, str(asked["method"]), str(about["hash"]), checked(t, about["entry"])) for t, about in found]


def _again(claim: Claim, seed: int) -> tuple[str, bool, str]:
    """Tune again, run one seed again, and compare: another machine rounds otherwise, so within what seeds differ by."""
    task, entry = claim.task, claim.entry
    again = play(Ground(task), named(task, claim.target), [seed], None, lambda entry: None, lambda share: None)
    number, other = (chosen(task, e, "gradients") for e in (entry, again))
    was, now = (_last(e, n, seed) for e, n in ((entry, number), (again, other)))
    others = (_last(entry, number, int(key)) for key in entry["runs"].get(str(number), {}) if int(key) != seed)
    scores = [score for score in others if score is not None]
    point = 0.01 if better(task.column("test")) == "max" else 0.01 * abs(was or 0.0)
    spread = 3 * float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0
    allowed = min(max(point, spread), MOST_POINTS * point)  # what a stranger's seeds differ by is no excuse for more
    subject = f"{claim.about}, seed {seed} again"
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
