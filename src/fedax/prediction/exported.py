"""The files that an exported model contains, to predict without Fedax."""

from __future__ import annotations

import inspect
from pathlib import Path

from fedax.data.tables import applying
from fedax.prediction import forward
from fedax.runs.files import PREPARATION, read_json


def can_predict(folder: Path) -> bool:
    """Whether a run's model can predict by NumPy alone: it must be linear or of dense layers, and on a table."""
    about = read_json(folder / PREPARATION)
    return about is not None and (about.get("model") or {}).get("name") in forward.MODELS


def programs(folder: Path) -> dict[str, bytes]:
    """The files, by name, that predict with a run's model; none where NumPy alone cannot.

    >>> programs(Path("no-such-run"))
    {}
    """
    if not can_predict(folder):
        return {}
    home = Path(__file__).parent
    own = {"applying.py": inspect.getsource(applying), "forward.py": inspect.getsource(forward)}
    return {"predict.py": (home / "standalone.py").read_bytes()} | {name: text.encode() for name, text in own.items()}
