"""One setting of a sweep, and the directory that keeps it from the moment it is done.

metrics.jsonl, result.json      its history, and how it ended
model.safetensors, personal.safetensors     its models, until the best setting of its method is known
trial.json          its values, its clients' last metrics, its experiment's fingerprint; written last
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedax.engine import Result, load
from fedax.engine.fingerprint import compare
from fedax.engine.state import Metrics
from fedax.errors import FedaxError
from fedax.evaluation import Measurement
from fedax.experiments.judging import Judge
from fedax.runs.files import HISTORY, INFO, MODEL, PERSONAL, read_history, write_json

TRIAL = "trial.json"


@dataclasses.dataclass(frozen=True)
class TriedSetting:
    """One setting of one method with one seed, its clients' last metrics, and its score: NaN if it diverged."""

    label: str
    seed: int
    setting: dict[str, float]
    result: Result
    metrics: Metrics
    score: float
    reached: int | None

    @classmethod
    def of(
        cls, label: str, seed: int, setting: dict[str, float], result: Result, metrics: Metrics, judge: Judge
    ) -> TriedSetting:
        """A setting that is done, with its score."""
        score = math.nan if "diverged" in result.info else judge.score(result.history)
        return cls(label, seed, setting, result, metrics, score, judge.reached(result.history))

    def line(self, judge: Judge) -> dict[str, Any]:
        """Its row of the table of settings."""
        best = judge.best(self.result.history)
        decided = {
            "diverged": self.result.info.get("diverged", ""),
            "score": "" if math.isnan(self.score) else self.score,
            "rounds_to_target": "" if self.reached is None else self.reached,
            "best": best.get(judge.metric, ""),
            "best_round": best.get("round", ""),
        }
        return {"algorithm": self.label, "seed": self.seed, **self.setting, **decided, **self.last}

    @property
    def last(self) -> dict[str, Any]:
        """The last row of its history."""
        return self.result.history[-1] if self.result.history else {}

    def save(self, folder: Path, fingerprint: Mapping[str, str]) -> None:
        """Keep it, whole or not at all."""
        self.result.keep(folder)
        metrics = {
            part: {
                name: {"values": _numbers(found.values), "rows": found.rows.tolist()} for name, found in metrics.items()
            }
            for part, metrics in self.metrics.items()
        }
        write_json(folder / TRIAL, {"setting": self.setting, "fingerprint": fingerprint, "metrics": metrics})


def recall_trial(
    folder: Path, label: str, seed: int, setting: dict[str, float], fingerprint: dict[str, str], judge: Judge
) -> TriedSetting | None:
    """The setting that a directory keeps, if it is done; raises if it was run under another experiment.

    >>> recall_trial(Path("no-such-directory"), "FedAvg", 0, {}, {}, Judge("f1", "max", rounds=1)) is None
    True
    """
    try:
        about = json.loads((folder / TRIAL).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise FedaxError(f"{folder / TRIAL} cannot be read: {error}") from None
    compare(about["fingerprint"], fingerprint)
    if (folder / MODEL).exists():
        result = load(folder)
    else:  # the best setting of the method is known, and other models are not needed any more
        kept = json.loads((folder / INFO).read_text())
        result = Result(read_history(folder / HISTORY), None, None, kept["clients"], kept["info"])
    metrics = {
        part: {
            name: Measurement(np.array(found["values"], float), np.array(found["rows"], float))
            for name, found in metrics.items()
        }
        for part, metrics in about["metrics"].items()
    }
    return TriedSetting.of(label, seed, setting, result, metrics, judge)


def drop_models(folder: Path) -> None:
    """Remove the models of settings whose best is kept as a run."""
    for name in (MODEL, PERSONAL):
        for path in folder.glob(f"*/{name}"):
            path.unlink()


def _numbers(values: Any) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]
