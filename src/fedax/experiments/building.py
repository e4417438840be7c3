"""From an experiment to what it describes: the problem, the federation, the simulation of one method."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from fedax.data import Federation
from fedax.engine.config import RunConfig, SimulatedWork
from fedax.engine.prepare import in_memory
from fedax.errors import FedaxError
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
    return {**shared, "eval_every": experiment.eval_every, "seed": seed}


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
