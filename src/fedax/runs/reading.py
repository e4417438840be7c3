"""Reads a run from its directory. After a crash, a metrics log or an experiment.json is enough."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from fedax.errors import FedaxError
from fedax.evaluation.metrics import remember
from fedax.runs.files import CLIENTS, EXPERIMENT, HISTORY, RUNS, STATUS


@dataclasses.dataclass(frozen=True)
class RecordedRun:
    """One run. `rows` has a dict per evaluated round; `notes` says what could not be read."""

    folder: Path
    rows: tuple[dict[str, Any], ...]
    experiment: dict[str, Any] = dataclasses.field(default_factory=dict)
    state: dict[str, Any] = dataclasses.field(default_factory=dict)
    clients: dict[str, Any] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def get(self, *path: str) -> Any:
        """A field of the experiment, or None.

        >>> RecordedRun(Path("."), (), {"algorithm": {"lr": 0.1}}).get("algorithm", "lr")
        0.1
        """
        value: Any = self.experiment
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    @property
    def label(self) -> str:
        """The algorithm's label, else its name, else the directory's."""
        return str(self.get("algorithm", "label") or self.get("algorithm", "name") or self.folder.resolve().name)

    @property
    def seed(self) -> Any:
        """The seed, or None where it is not known."""
        return self.get("seed")

    @property
    def status(self) -> str:
        """running, finished, diverged, interrupted or failed; unknown if nothing says."""
        return str(self.state.get("status") or "unknown")

    @property
    def finished(self) -> bool:
        """Whether the run says that it came to its end."""
        return self.status == "finished"

    @property
    def round(self) -> int | None:
        """The last round that the directory knows of."""
        known = [row["round"] for row in self.rows[-1:]]
        if isinstance(self.state.get("round"), int):
            known.append(self.state["round"])
        return max(known, default=None)

    @property
    def rounds(self) -> Any:
        """The rounds it was meant to run, or None."""
        return self.state.get("rounds") or self.get("algorithm", "rounds") or self.get("rounds")


def find(folder: Path) -> list[Path]:
    """The run directories at a place: itself if it is one, else those in its `runs`."""
    folder = Path(folder)
    if _is_run(folder):
        return [folder]
    found = sorted(path for path in folder.glob("runs/*") if _is_run(path))
    if not found:
        raise FedaxError(f"{folder} holds no run: neither it nor a directory in its runs/ has a {HISTORY}")
    return found


def run_folders(folder: Path) -> list[Path]:
    """The run directories in a directory: itself, or those of a comparison in their order."""
    if (folder / HISTORY).is_file():
        return [folder]
    try:
        names = json.loads((folder / EXPERIMENT).read_text())["runs"]
    except (OSError, ValueError, KeyError, TypeError):
        names = sorted(p.name for p in (folder / RUNS).glob("*"))
    found = [path for name in names if (path := folder / RUNS / name / HISTORY).is_file()]
    if not found:
        raise FedaxError(f"{str(folder)!r} is not a run or a comparison: it has no {HISTORY} and no runs with one")
    return [path.parent for path in found]


def read(folder: Path) -> RecordedRun:
    """Read a run, as far as it got."""
    folder = Path(folder)
    if not _is_run(folder):
        why = f"it has no {HISTORY}" if folder.is_dir() else "there is no such directory"
        raise FedaxError(f"{folder} holds no run: {why}")
    notes: list[str] = []
    rows = _rows(folder / HISTORY, notes)
    experiment, state, clients = (_document(folder / name, notes) for name in (EXPERIMENT, STATUS, CLIENTS))
    remember(experiment.get("metrics"))
    return RecordedRun(folder, rows, experiment, state, clients, tuple(notes))


def _is_run(folder: Path) -> bool:
    planned = (folder / EXPERIMENT).is_file() and not (folder / "runs").is_dir()
    return (folder / HISTORY).is_file() or planned


def _document(path: Path, notes: list[str]) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        content = None
    if isinstance(content, dict):
        return content
    notes.append(f"{path.name} cannot be read and is left out")
    return {}


def _rows(path: Path, notes: list[str]) -> tuple[dict[str, Any], ...]:
    """A row per round, in order; a line cut short by a crash ends the log."""
    by_round: dict[int, dict[str, Any]] = {}
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            by_round[int(row["round"])] = {**row, "round": int(row["round"])}
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            last = "its last line was cut short" if number == len(lines) else f"line {number} cannot be read"
            notes.append(f"{path.name} ends early: {last}")
            break
    return tuple(by_round[r] for r in sorted(by_round))
