"""What was measured, a small JSON a task: written after every step, and read as what came from a stranger."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedax.errors import FedaxError
from fedax.leaderboard.playing import Entry, label, named
from fedax.leaderboard.rules import BUDGETS, PARTS, TRIALS, TUNING_SEED
from fedax.leaderboard.source import source_hash
from fedax.leaderboard.tasks import Task
from fedax.runs.files import versions, write_whole

_ENTRY = ("method", "source", "spans", "settings", "rounds", "price", "grid", "runs", "cpu_seconds")


class Saved:
    """A task's results: entries by a method's label, and who was left out and why."""

    def __init__(self, task: Task, folder: Path | None = None) -> None:
        self.task, self.folder = task, folder
        self.entries: dict[str, Entry] = {}
        self.left_out: dict[str, str] = {}
        self.versions = versions()

    def changed(self, methods: Sequence[str] = ()) -> list[str]:
        """The methods whose code or ranges are no longer those that were run; `methods` may name one's own."""
        known = {label(name): named(self.task, name) for name in (*self.task.methods, *methods)}
        return [
            key
            for key, entry in self.entries.items()
            if (one := known.get(key)) is not None
            and (entry["settings"] != (drawn := one.draw(TRIALS)) or entry["source"] != source_hash(one.make(drawn[0])))
        ]

    def save(self) -> None:
        """Write the file, whole or not at all."""
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        about = {
            **{"task": self.task.name, "hash": self.task.hash, "versions": self.versions},
            **{"rounds": self.task.rounds, "parts": PARTS, "trials": TRIALS, "tuning_seed": TUNING_SEED},
            "left_out": self.left_out,
        }
        head = json.dumps(about, indent=1)[:-2]  # an entry a line: the file stays small and its changes readable
        lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(self.entries.items()))
        write_whole(self.folder / f"{self.task.name}.json", f'{head},\n "entries": {{\n{lines}\n }}\n}}\n'.encode())


def read(task: Task, folder: Path | None) -> Saved:
    """What a directory has of a task; nothing where it has no file. folder: None for what comes with Fedax."""
    place: Any = files("fedax.leaderboard") / "results" if folder is None else folder
    path, found = place / f"{task.name}.json", Saved(task, folder)
    if not path.is_file():
        return found
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        if about["hash"] != task.hash:
            raise FedaxError(
                f"{path} is of another version of task {task.name} ({about['hash']}, not {task.hash}): move it away"
            )
        found.versions, found.left_out = dict(about["versions"]), dict(about["left_out"])
        found.entries = {str(label): checked(task, entry) for label, entry in about["entries"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FedaxError(f"{path} cannot be read: {type(error).__name__}: {error}") from None
    return found


def checked(task: Task, entry: Any) -> Entry:
    """An entry that has what an entry has; raises ValueError otherwise."""
    if not isinstance(entry, dict) or set(entry) != set(_ENTRY):
        raise ValueError(f"an entry must have {', '.join(_ENTRY)}")
    count = len(entry["settings"])
    if not 1 <= count <= TRIALS or any(not isinstance(numbers, dict) for numbers in entry["settings"]):
        raise ValueError(f"an entry has 1 to {TRIALS} settings, not {count}")
    for budget in BUDGETS:
        rounds = entry["rounds"][budget]
        if type(rounds) is not int or rounds < 1 or rounds % (task.rounds // PARTS):
            raise ValueError(f"rounds is {rounds!r}")
        if entry["grid"] and (len(entry["grid"][budget]) != count or not all(map(_score, entry["grid"][budget]))):
            raise ValueError(f"the grid must have a score or null for each of {count} settings")
    for number, runs in entry["runs"].items():
        if not 0 <= int(number) < count:
            raise ValueError(f"there is no setting {number}")
        for seed, run in runs.items():
            if int(seed) < 0 or not all(map(_score, run["test"])) or type(run["rounds"]) is not int:
                raise ValueError(f"the run with seed {seed} must have rounds and a score or null for each part")
    return entry


def _score(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and math.isfinite(value))
