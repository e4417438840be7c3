"""The names of a run's files, and how they are written and read.

experiment.json     the resolved experiment of this run, versions, executor
metrics.jsonl       one row an evaluated round, appended by the simulation
status.json         running, finished, diverged, interrupted or failed, and the round
clients.json        names, labels and rows of the clients; their last metrics
model.safetensors, personal.safetensors, result.json        what `fedax.load` reads
assessment.json     the constant predictor's metrics; for a run on a table also ranking, calibration, residuals
coefficients.csv    for a linear model on a table: the coefficients of its columns, shared and each client's
preparation.json    for a run on a table: how columns become a model's inputs, and which model it is
report.html         the report
.lock               names the process that works on the run
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedax import runtime, whole_files
from fedax.errors import FedaxError
from fedax.extras import needed
from fedax.version import VERSION

if TYPE_CHECKING:
    import pandas

EXPERIMENT, STATUS, CLIENTS, RUNS = "experiment.json", "status.json", "clients.json", "runs"
MODEL, PERSONAL, HISTORY, INFO = "model.safetensors", "personal.safetensors", "metrics.jsonl", "result.json"
REPORT, LOCK, CHECKPOINTS, STATES = "report.html", ".lock", "checkpoints", "states.bin"
PREPARATION, ASSESSMENT, COEFFICIENTS = "preparation.json", "assessment.json", "coefficients.csv"


def check_folder(field: str, path: Any) -> Path:
    """A directory's path as it was given, if it can be one.

    >>> check_folder("out", 3)
    Traceback (most recent call last):
    fedax.errors.FedaxError: out is 3: it must be the path of a directory
    """
    named = str(path) if isinstance(path, str | os.PathLike) else ""
    if not named or not named.isprintable():
        raise FedaxError(f"{field} is {path!r}: it must be the path of a directory")
    return Path(named)


class History(list[dict[str, Any]]):
    """The evaluated rounds, one row each.

    >>> History([{"round": 0, "test_loss": 2.3}])[-1]["test_loss"]
    2.3
    """

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a data frame."""
        frame: pandas.DataFrame = needed("pandas", "tables", "a data frame").DataFrame(list(self))
        return frame

    def lines(self) -> bytes:
        """The rows as a metrics log has them.

        >>> History([{"round": 0}]).lines()
        b'{"round": 0}\\n'
        """
        return "".join(json.dumps(row) + "\n" for row in self).encode()


def read_history(path: Path) -> History:
    """The rows of a metrics log; a last line cut short by a crash is left out, and all from one that is no row."""
    rows = History()
    for line in path.read_text(errors="replace").splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(row, dict):
            break
        rows.append(row)
    return rows


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all. Of several processes the first writes."""
    if runtime.is_main_process():
        whole_files.write_whole(path, content)


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON file's table; None if there is no such file."""
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise FedaxError(f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise FedaxError(f"{path} cannot be read: it must be a JSON object")
    return content


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, whole or not at all."""
    write_whole(path, (json.dumps(as_json(content), indent=1, allow_nan=False, default=str) + "\n").encode())


def as_json(content: Any) -> Any:
    """The table with infinities as words, which JSON does not have as numbers.

    >>> as_json({"low": 0.0, "high": float("inf")})
    {'low': 0.0, 'high': 'inf'}
    """
    if isinstance(content, dict):
        return {key: as_json(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [as_json(value) for value in content]
    return str(content) if isinstance(content, float) and not math.isfinite(content) else content


def slug(label: str) -> str:
    """A label as the name of a directory.

    >>> slug("FedAvg, lr 0.1")
    'fedavg-lr-0.1'
    """
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-.") or "run"


def fresh(parent: Path, name: str) -> Path:
    """A directory that does not exist yet: parent/name, else parent/name-2 and so on.

    >>> fresh(Path("no-such-directory"), "My demo").as_posix()
    'no-such-directory/my-demo'
    """
    folder, number = parent / slug(name), 1
    while folder.exists():
        number += 1
        folder = parent / f"{slug(name)}-{number}"
    return folder


def claim(folder: Path) -> None:
    """Make a directory, unless it holds something already."""
    refuse_taken(folder)
    if runtime.is_main_process():
        folder.mkdir(parents=True, exist_ok=True)


def refuse_taken(folder: Path) -> None:
    """Raise if a directory holds a file other than a lock: a run must not overwrite it."""
    if runtime.is_main_process() and folder.exists() and (not folder.is_dir() or _holds_something(folder)):
        raise FedaxError(f"out is {str(folder)!r}: it already holds something, choose another directory or remove it")


def _holds_something(folder: Path) -> bool:
    return any(path.name != LOCK for path in folder.iterdir())


def versions() -> dict[str, str]:
    """The versions of what a result depends on."""
    found = {name: version(name) for name in ("jax", "numpy")}
    return {"fedax": VERSION, **found, "python": platform.python_version()}
