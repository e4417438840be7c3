"""Logging to TensorBoard, MLflow and Weights & Biases: the rows of metrics.jsonl, as they are made.

A tracker is told of a run when it begins, of each of its evaluated rounds, and of its end. The packages are the user's
to install; one that is missing is named before any work begins.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from fedax.errors import FedaxError, unknown
from fedax.report.summary import flat

if TYPE_CHECKING:
    from fedax.experiments.events import Progress, Run

log = logging.getLogger("fedax")


class Tracker(Protocol):
    """Where metrics go besides the run's own directory."""

    def begin(self, name: str, folder: Path, experiment: dict[str, Any]) -> None:
        """A run begins, or goes on: its name, its directory, and the resolved experiment under dotted names."""

    def row(self, round: int, values: dict[str, float]) -> None:
        """An evaluated round."""

    def end(self, status: str) -> None:
        """The run ended with this status: finished, diverged, interrupted or failed."""


class TensorBoard:
    """Scalars in the run's `tensorboard` directory, by tensorboardX or else by PyTorch's writer."""

    def __init__(self) -> None:
        self._make: Any = None
        for module in ("tensorboardX", "torch.utils.tensorboard"):
            try:
                self._make = import_module(module).SummaryWriter
                return
            except ImportError:
                continue
        raise _missing("tensorboard", "tensorboardX")

    def begin(self, name: str, folder: Path, experiment: dict[str, Any]) -> None:
        self._writer = self._make(str(folder / "tensorboard"))
        self._writer.add_text("experiment", "\n".join(f"    {key}: {value}" for key, value in experiment.items()))

    def row(self, round: int, values: dict[str, float]) -> None:
        for key, value in values.items():
            self._writer.add_scalar(key, value, round)

    def end(self, status: str) -> None:
        self._writer.add_text("status", status)
        self._writer.close()


class MLflow:
    """A run of MLflow for each run; MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME say where."""

    def __init__(self) -> None:
        self._mlflow = _package("mlflow")

    def begin(self, name: str, folder: Path, experiment: dict[str, Any]) -> None:
        self._mlflow.start_run(run_name=name)
        self._mlflow.log_params({key: str(value)[:500] for key, value in experiment.items()})

    def row(self, round: int, values: dict[str, float]) -> None:
        self._mlflow.log_metrics(values, step=round)

    def end(self, status: str) -> None:
        self._mlflow.set_tag("status", status)
        self._mlflow.end_run("FINISHED" if status == "finished" else "KILLED" if status == "interrupted" else "FAILED")


class WandB:
    """A run of Weights & Biases for each run, in the project that WANDB_PROJECT names."""

    def __init__(self) -> None:
        self._wandb = _package("wandb")

    def begin(self, name: str, folder: Path, experiment: dict[str, Any]) -> None:
        self._run = self._wandb.init(name=name, dir=str(folder), config=experiment, reinit=True)

    def row(self, round: int, values: dict[str, float]) -> None:
        self._run.log(values, step=round)

    def end(self, status: str) -> None:
        self._run.summary["status"] = status
        self._run.finish(exit_code=0 if status == "finished" else 1)


TRACKERS: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB}


def trackers(names: Sequence[str]) -> list[Tracker]:
    """Trackers by name, each once; raises where a package is missing.

    >>> trackers(["wand"])
    Traceback (most recent call last):
    fedax.errors.FedaxError: unknown tracker 'wand': did you mean 'wandb'? Allowed: tensorboard, mlflow, wandb
    """
    for name in names:
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS)
    return [TRACKERS[name]() for name in dict.fromkeys(names)]


def tracked(progress: Progress, told: Sequence[Tracker]) -> Progress:
    """A progress that passes on every event to another one, and to trackers."""
    return cast("Progress", _Tracked(progress, told)) if told else progress


class _Tracked:
    """Call a tracker; one that fails, as when the network does, is not called again, and the run goes on."""

    def __init__(self, progress: Progress, told: Sequence[Tracker]) -> None:
        self._progress, self._told = progress, list(told)
        self._run: Run | None = None
        self._began = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._progress, name)

    def start(self, run: Run) -> None:
        self._run, self._began = run, False
        self._progress.start(run)

    def evaluated(self, row: dict[str, Any]) -> None:
        self._begin()
        values = {key: float(value) for key, value in row.items() if key != "round"}
        self._tell(lambda tracker: tracker.row(int(row["round"]), values))
        self._progress.evaluated(row)

    def end(self, run: Run) -> None:
        self._begin()
        self._tell(lambda tracker: tracker.end(run.status))
        self._progress.end(run)

    def _begin(self) -> None:
        """Tell trackers that the run begins, with its first row: by then its directory has the resolved experiment."""
        if self._began or self._run is None:
            return
        self._began, run = True, self._run
        asked = flat(json.loads((run.folder / "experiment.json").read_text()))
        self._tell(lambda tracker: tracker.begin(f"{run.label}, seed {run.seed}", run.folder, asked))

    def _tell(self, what: Callable[[Tracker], None]) -> None:
        for tracker in list(self._told):
            try:
                what(tracker)
            except Exception as error:
                log.warning("%s takes no more metrics: %s", type(tracker).__name__, error)
                self._told.remove(tracker)


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise _missing(name, name) from None


def _missing(tracker: str, package: str) -> FedaxError:
    return FedaxError(f"log names {tracker!r}, which needs {package}: pip install {package}")
