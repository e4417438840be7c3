"""A simulation in the words of an experiment file, for its directory."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedax.algorithms.base import Algorithm
from fedax.algorithms.with_model_state import bare
from fedax.outside import is_outside
from fedax.runs.folder import Record, Values, describe_clients

if TYPE_CHECKING:
    from fedax.engine.loop import Simulation

_NOT_SETTINGS = ("rounds", "seed", "out", "executor", "devices", "chunk", "protocol", "resume", "on_progress")


def describe(simulation: Simulation, label: str | None, options: Mapping[str, Any]) -> Record:
    """What a run made in Python is: the fields that a file would have, as far as they are known.

    options: those that `simulate` was given; the others have their defaults.
    """
    known = inspect.signature(type(simulation)).parameters.values()
    defaults = {p.name: p.default for p in known if p.default is not p.empty and p.name not in _NOT_SETTINGS}
    given = {name: options.get(name, value) for name, value in defaults.items()}
    problem, about = simulation.problem, simulation.whole.info
    method = written_out(bare(simulation.algorithm), {})
    psi = problem.regularizer
    experiment = {
        "source": "python",
        "rounds": simulation.rounds,
        **given,
        **used(simulation),
        "seed": simulation.seed,
        "data": {
            "name": about.get("dataset"),
            "partition": about.get("partition"),
            "seed": about.get("seed"),
            "clients": simulation.plan.clients + len(simulation.unseen),
        },
        "model": {"name": type(problem.model).__name__, "outputs": getattr(problem.model, "outputs", None)},
        "problem": {"loss": problem.name, "regularizer": None if psi is None else str(psi)},
        "algorithm": {"name": method["name"], "label": label or method["name"], **method},
    }
    return Record(experiment, simulation.rounds, functools.partial(describe_clients, simulation.whole))


def used(simulation: Simulation) -> dict[str, Any]:
    """How a run is executed, and what it measures."""
    executor = simulation.executor
    metrics = [metric.describe() for metric in simulation.problem.metrics.values()]
    return {"executor": executor.name, "devices": executor.devices, "chunk": executor.chunk, "metrics": metrics}


def client_values(simulation: Simulation) -> Values:
    """Every client's metrics of the last evaluation; None for clients that do not train."""

    def everyone(values: Any) -> list[float | None]:
        every = np.full(simulation.whole.clients, np.nan)
        every[simulation.seen] = values
        return [value if math.isfinite(value) else None for value in every.tolist()]

    return {
        part: {name: everyone(metric.values) for name, metric in metrics.items()}
        for part, metrics in simulation.per_client.items()
    }


def record_now(simulation: Simulation) -> Record | None:
    """What the directory of a run says now, if the run was described."""
    if simulation.about is None:
        return None
    ended = simulation.state.round >= simulation.rounds
    status: Any = "finished" if ended else "interrupted"
    return dataclasses.replace(simulation.about, values=client_values(simulation), status=status)


def written_out(made: Algorithm, options: dict[str, Any]) -> dict[str, Any]:
    """A method's table with every hyper-parameter, those left at their defaults too.

    >>> from fedax import FedAvg
    >>> written_out(FedAvg(lr=0.1), {})
    {'name': 'FedAvg', 'lr': 0.1, 'server_lr': 1.0}
    """
    asked = options.get("name")
    values: dict[str, Any] = {"name": asked if is_outside(asked) else type(made).__name__}
    for f in dataclasses.fields(made):  # type: ignore[arg-type]
        value, given = getattr(made, f.name), options.get(f.name)
        whole = written_out(value, given or {}) if isinstance(value, Algorithm) else options.get(f.name, value)
        values[f.name] = whole
    return values
