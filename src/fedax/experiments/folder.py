"""A run's directory: what was asked, how far it got, and how each client fares. Each file is written whole.

experiment.json     the resolved experiment of this run, versions, executor
metrics.jsonl       one row an evaluated round, appended by the simulation
status.json         running, finished, diverged, interrupted or failed, and the round
clients.json        names, labels and rows of the clients; their last metrics
model.safetensors, personal.safetensors, result.json        what `fedax.load` reads
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedax.data import Federation, heterogeneity
from fedax.data.generators.lazy import Lazy
from fedax.engine import Simulation
from fedax.errors import FedaxError
from fedax.experiments.building import in_memory
from fedax.experiments.file_tables import AlgorithmTable
from fedax.experiments.schema import Experiment
from fedax.runs.files import CLIENTS, EXPERIMENT, RUNS, STATUS, slug, versions, write_json

Status = Literal["running", "finished", "diverged", "interrupted", "failed"]


class RunFolder:
    """Writes the files of one run beside the simulation's metrics log."""

    def __init__(self, path: Path, rounds: int, clients: dict[str, Any]) -> None:
        self.path, self.rounds, self._clients = path, rounds, clients
        self._written = -math.inf

    def begin(self, resolved: dict[str, Any], simulation: Simulation) -> None:
        """Write what is known before the first round."""
        problem, executor = simulation.problem, simulation.executor
        used = {
            "problem": {**resolved["problem"], "loss": problem.name},
            "model": {**resolved["model"], "outputs": getattr(problem.model, "outputs", resolved["model"]["outputs"])},
            "executor": executor.name,
            "devices": executor.devices,
            "chunk": executor.chunk,
        }
        write_json(self.path / EXPERIMENT, {**resolved, **used, "versions": versions()})
        self.clients(simulation)
        self.status("running", simulation.state.round)

    def status(self, status: Status, round: int, message: str = "") -> None:
        """Say how far the run is."""
        about = {"status": status, "round": round, "rounds": self.rounds, "message": message}
        write_json(self.path / STATUS, about)
        self._written = time.monotonic()

    def still_running(self, round: int) -> None:
        """Say how far the run is, at most once a second."""
        if time.monotonic() - self._written > 1:
            self.status("running", round)

    def clients(self, simulation: Simulation) -> None:
        """Write each client's metrics of the last evaluation."""
        values = {
            part: {name: _numbers(_everyone(simulation, metric.values)) for name, metric in metrics.items()}
            for part, metrics in simulation.per_client.items()
        }
        by_client = {} if simulation.by_client is None else simulation.by_client.as_json()
        write_json(self.path / CLIENTS, {**self._clients, **by_client, "values": values})


def _everyone(simulation: Simulation, values: Any) -> list[float]:
    """The values of the clients that train, among those of all clients."""
    every = np.full(simulation.whole.clients, np.nan)
    every[simulation.seen] = values
    return every.tolist()


def run_folders(folder: Path) -> list[Path]:
    """The run directories in a directory: itself, or those of a comparison in their order."""
    if (folder / "metrics.jsonl").is_file():
        return [folder]
    try:
        names = json.loads((folder / EXPERIMENT).read_text())["runs"]
    except (OSError, ValueError, KeyError, TypeError):
        names = sorted(p.name for p in (folder / RUNS).glob("*"))
    found = [path for name in names if (path := folder / RUNS / name / "metrics.jsonl").is_file()]
    if not found:
        raise FedaxError(f"{str(folder)!r} is not a run or a comparison: it has no metrics.jsonl and no runs with one")
    return [path.parent for path in found]


def run_name(table: AlgorithmTable, seed: int) -> str:
    """The directory of one run of several."""
    return f"{slug(str(table.label))}-seed{seed}"


def resolved_run(experiment: Experiment, table: AlgorithmTable, seed: int) -> dict[str, Any]:
    """The experiment of one method and one seed, every default written out."""
    return {
        **experiment.model_dump(exclude={"algorithm", "seeds", "sweep"}),
        "seed": seed,
        "algorithm": table.resolved(),
    }


def resolved_comparison(experiment: Experiment, runs: list[str]) -> dict[str, Any]:
    """The experiment of several runs, every default written out, and the names of their directories."""
    tables = [table.resolved() for table in experiment.algorithm]
    return {**experiment.model_dump(exclude={"sweep"}), "algorithm": tables, "runs": runs, "versions": versions()}


def describe_clients(federation: Federation | Lazy) -> dict[str, Any]:
    """Names, rows, labels and gradient diversity of the clients; of those that are evaluated, where they are made as
    needed.

    >>> from fedax.data import Federation
    >>> describe_clients(Federation.from_clients([{"y": [0, 1, 1]}, {"y": [0]}]))["label_counts"]
    [[1, 2], [1, 0]]
    """
    shown = in_memory(federation)
    try:
        labels = shown.label_counts().tolist()
    except FedaxError:
        labels = None
    rows = {part: shown.part(part).count.tolist() for part in ("train", "validation", "test")}
    zeta = heterogeneity(shown).zeta
    return {"names": list(shown.names), "label_counts": labels, "rows": rows, "zeta": zeta}


def _numbers(values: list[float]) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values]
