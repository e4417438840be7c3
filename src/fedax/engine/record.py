"""A run in the words of an experiment file, for its directory."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fedax.algorithms.base import Algorithm
from fedax.algorithms.with_model_state import bare
from fedax.data.federation import Federation
from fedax.data.tables.preparation import Preparation
from fedax.engine.prepare import Prepared
from fedax.engine.state import Metrics, RunState
from fedax.evaluation.assessment import assess
from fedax.evaluation.constant import MOST, constant_predictor
from fedax.models.adapters import library_of
from fedax.outside import is_outside
from fedax.prediction.predictor import described_model
from fedax.problem import Problem
from fedax.runs.folder import Record, Values, describe_clients

#: Options that do not change a run's result.
_ELSEWHERE = ("label", "out", "protocol", "resume", "on_progress")


def describe(run: Prepared) -> Record:
    """A run made in Python as the fields of an experiment file, as far as they are known."""
    options = {name: value for name, value in vars(run.config).items() if name not in _ELSEWHERE}
    problem, about = run.problem, run.whole.info
    method = written_out(bare(run.algorithm), {})
    psi = problem.regularizer
    experiment = {
        "source": "python",
        **options,
        **used(run),
        "data": {
            "name": about.get("dataset"),
            "partition": about.get("partition"),
            "seed": about.get("seed"),
            "clients": run.plan.clients + len(run.unseen),
        },
        "model": {
            "name": type(problem.model).__name__,
            "outputs": problem.outputs_per_row,
            "library": library_of(problem.model),
        },
        "problem": {"loss": problem.name, "regularizer": None if psi is None else str(psi)},
        "algorithm": {"name": method["name"], "label": run.config.label or method["name"], **method},
    }
    return Record(experiment, run.config.rounds, functools.partial(describe_clients, run.whole))


def described_table(
    problem: Problem, algorithm: Algorithm, federation: Federation | None, made: Preparation | None = None
) -> dict[str, Any] | None:
    """What prediction needs besides the parameters of a run on a table; None for other runs.

    made: the preparation, where there is no federation.
    """
    made = made if federation is None else federation.info.get("preparation")
    if not isinstance(made, Preparation) or problem.model is None:
        return None
    about = {"model": described_model(problem.model), "loss": problem.name, "shared": algorithm.shared}
    return {**made.as_json(), **about}


def assessment(run: Prepared) -> Callable[[Any], dict[str, Any]]:
    """A function of a run's result: the constant predictor that its model must beat, and for a table the assessment.

    The function keeps the data in memory, and nothing on the devices.
    """
    problem, trained, whole = run.problem, run.federation, run.whole
    parts, shared, own_models = list(run.meters), run.algorithm.shared, run.algorithm.personalised

    def made(result: Any) -> dict[str, Any]:
        constant = constant_predictor(problem, trained, parts, personal=own_models)
        found: dict[str, Any] = {} if constant is None else {"constant": constant}
        prepared = whole.info.get("preparation")
        if isinstance(prepared, Preparation) and problem.model is not None:
            own = result.personal if result.has_personal and whole.clients <= MOST else None
            found["quality"] = assess(problem, whole, prepared.labels, result.model if shared else None, own)
        return found

    return made


def used(run: Prepared) -> dict[str, Any]:
    """How a run is executed, and what it measures."""
    executor = run.executor
    metrics = [metric.describe() for metric in run.problem.metrics.values()]
    return {"executor": executor.name, "devices": executor.devices, "chunk": executor.chunk, "metrics": metrics}


def client_values(run: Prepared, metrics: Metrics) -> Values:
    """Every client's metrics; None for clients that do not train."""

    def everyone(values: Any) -> list[float | None]:
        every = np.full(run.whole.clients, np.nan)
        every[run.seen] = values
        return [value if math.isfinite(value) else None for value in every.tolist()]

    return {part: {name: everyone(metric.values) for name, metric in found.items()} for part, found in metrics.items()}


def record_now(about: Record | None, run: Prepared, state: RunState, early: str = "") -> Record | None:
    """The content of a run's directory as of now, if the run was described. early: why it stopped before its end."""
    if about is None:
        return None
    status: Any = "finished" if state.round >= run.config.rounds or early else "interrupted"
    return dataclasses.replace(about, values=client_values(run, state.per_client), status=status, message=early)


def written_out(made: Algorithm, options: dict[str, Any]) -> dict[str, Any]:
    """A method's table with every hyper-parameter, defaults included.

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
