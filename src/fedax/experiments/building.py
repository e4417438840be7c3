"""From an experiment to what it describes: the problem, the federation, the simulation of one method."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from fedax.client.availability import Availability
from fedax.data import Federation
from fedax.data.tables.own_rows import read_table
from fedax.engine.config import RunConfig, SimulatedWork
from fedax.engine.prepare import in_memory
from fedax.errors import FedaxError, unknown
from fedax.evaluation.metrics import check_outputs
from fedax.experiments.schema import Experiment
from fedax.kernels.switch import wanted
from fedax.outside import is_outside
from fedax.problem import Problem


def prepare(experiment: Experiment) -> tuple[Problem, Any]:
    """The problem and the federation of an experiment; a `fedax.data.generators.lazy.Lazy` with `lazy = true`.

    >>> from fedax.experiments import parse
    >>> problem, federation = prepare(parse({
    ...     "rounds": 1,
    ...     "data": {"name": "diabetes"},
    ...     "model": {"name": "linear"},
    ...     "algorithm": {"name": "FedAvg", "lr": 0.1},
    ... }))
    >>> problem.name, federation.clients
    ('squared', 10)
    """
    wanted()  # refuses a wrong FEDAX_KERNELS before anything is written
    federation = experiment.data.build()
    shown = in_memory(federation)
    loss = _loss(experiment.problem.loss, shown)
    outputs = experiment.model.outputs or _outputs(loss, shown)
    psi = experiment.problem.regularizer
    model: Any = experiment.model.build(outputs)
    if "normalise" in shown.info:
        from fedax.models import Normalised

        model = Normalised(model, **shown.info["normalise"])
    augment = _augment(experiment.problem.augment, shown)
    made = Problem(
        model,
        loss=loss,
        regularizer=None if psi is None else psi.build(),
        augment=augment,
        gradients=experiment.problem.gradients or (),
        metrics=experiment.problem.metrics,
        trainable=experiment.problem.trainable,
    )
    made.outputs_per_row = outputs
    check_outputs(made.metrics.values(), outputs)
    return made, federation


def options(experiment: Experiment, seed: int) -> dict[str, Any]:
    """How an experiment is simulated, as `simulate` and `sweep` take it."""
    shared = {field.name: getattr(experiment, field.name) for field in dataclasses.fields(SimulatedWork)}
    shared["attack"] = None if experiment.attack is None else experiment.attack.build()
    shared["availability"] = availability_of(experiment)
    return {**shared, "eval_every": experiment.eval_every, "seed": seed}


def availability_of(experiment: Experiment) -> Availability | None:
    """When clients are there, or None for always; a column of the data may give each client's probability."""
    asked: Any = experiment.availability
    if asked is None or asked.column is None:
        made: Availability | None = None if asked is None else asked.build()
        return made
    given = experiment.data.options
    if "path" not in given or given.get("client") is None or experiment.unseen:
        raise FedaxError("availability.column is for a table with a client column, of which nobody is held out")
    frame = read_table(given["path"])
    if asked.column not in frame.columns:
        raise unknown("column of availability", asked.column, [str(name) for name in frame.columns])
    values = frame[asked.column]
    if values.dtype.kind not in "biuf" or not values.between(0, 1).all():
        raise FedaxError(f"availability.column is {asked.column!r}: its cells must be numbers from 0 to 1")
    means = values.astype(float).groupby(frame[given["client"]].astype(str)).mean()
    rates = tuple(float(means[name]) for name in in_memory(experiment.data.build()).names)
    by_column: Availability = asked.build(rates)
    return by_column


def config_of(experiment: Experiment, seed: int, **more: Any) -> RunConfig:
    """What an experiment asks of one run."""
    return RunConfig(**options(experiment, seed), **more)


def _loss(asked: str | None, federation: Federation) -> str:
    classes, dataset = federation.info["classes"], federation.info["dataset"]
    if asked in ("cross_entropy", "next_token") and classes is None:
        raise FedaxError(f"problem.loss is {asked!r}: {dataset} has no classes, so it must be 'squared' or 'mse'")
    if asked == "logistic" and classes != 2:
        has = "no classes" if classes is None else f"{classes} classes"
        raise FedaxError(f"problem.loss is 'logistic': it needs data of two classes, and {dataset} has {has}")
    return asked or ("squared" if classes is None else "cross_entropy")


def _augment(asked: str | None, federation: Federation) -> Any:
    if asked is None:
        return None
    shape = federation.arrays["x"].shape[1:] if "x" in federation.arrays else ()
    if len(shape) < 2:
        dataset = federation.info["dataset"]
        raise FedaxError(
            f"problem.augment is {asked!r}: it needs images, and the rows of {dataset} are {math.prod(shape)} numbers "
            "each"
        )
    return asked


def _outputs(loss: str, federation: Federation) -> int:
    classes = federation.info["classes"]
    if loss in ("cross_entropy", "next_token") or (is_outside(loss) and classes is not None):
        return int(classes)
    return int(np.prod(federation.arrays["y"].shape[1:]))
