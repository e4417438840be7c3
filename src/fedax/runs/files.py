"""The files of a run's directory: their names, and how they are written: whole or not at all.

experiment.json     the resolved experiment of this run, versions, executor
metrics.jsonl       one row an evaluated round, appended as it is reached
status.json         running, finished, diverged, interrupted or failed, and the round
clients.json        names, labels and rows of the clients; their last metrics
model.safetensors, personal.safetensors, result.json        what `fedax.load` reads
checkpoints/        what a run that was stopped goes on from
runs/               of a comparison: a run's directory for each method and seed
report.html         the report
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

from fedax import runtime
from fedax.errors import FedaxError
from fedax.version import VERSION

if TYPE_CHECKING:
    import pandas

MODEL, PERSONAL, INFO = "model.safetensors", "personal.safetensors", "result.json"
EXPERIMENT, STATUS, CLIENTS, HISTORY, RUNS = "experiment.json", "status.json", "clients.json", "metrics.jsonl", "runs"
CHECKPOINTS, REPORT = "checkpoints", "report.html"


class History(list[dict[str, Any]]):
    """The evaluated rounds, one row each.

    >>> History([{"round": 0, "test_loss": 2.3}])[-1]["test_loss"]
    2.3
    """

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a data frame."""
        import pandas

        return pandas.DataFrame(list(self))


def read_history(path: Path) -> History:
    """The rows of a metrics log; a last line cut short by a crash is left out."""
    rows = History()
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: to a temporary name, then renamed. Of several processes the first writes."""
    if not runtime.is_main_process():
        return
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def slug(label: str) -> str:
    """A label as the name of a directory.

    >>> slug("FedAvg, lr 0.1")
    'fedavg-lr-0.1'
    """
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-.") or "run"


def fresh(parent: Path, name: str) -> Path:
    """A directory that is not taken: parent/name, else parent/name-2 and so on.

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
    """Raise if a directory holds something, which a run must not overwrite."""
    if runtime.is_main_process() and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FedaxError(f"out is {str(folder)!r}: it already holds something, choose another directory or remove it")


def versions() -> dict[str, str]:
    """The versions of what a result depends on."""
    found = {name: version(name) for name in ("jax", "numpy")}
    return {"fedax": VERSION, **found, "python": platform.python_version()}


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON file's table; None if there is no such file."""
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise FedaxError(f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise FedaxError(f"{path} cannot be read: it must be a JSON object")
    return content


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, whole or not at all."""
    write_whole(path, (json.dumps(as_json(content), indent=1, allow_nan=False, default=str) + "\n").encode())


def as_json(content: Any) -> Any:
    """JSON has no infinity: the bound of a box that has none is the word.

    >>> as_json({"low": 0.0, "high": float("inf")})
    {'low': 0.0, 'high': 'inf'}
    """
    if isinstance(content, dict):
        return {key: as_json(value) for key, value in content.items()}
    return str(content) if isinstance(content, float) and not math.isfinite(content) else content
