"""From an experiment to what it describes: the problem, the federation, the simulation of one method."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedax.data import Federation
from fedax.errors import FedaxError
from fedax.experiments.schema import Experiment
from fedax.problem import Problem


def prepare(experiment: Experiment) -> tuple[Problem, Federation]:
    """The problem and the federation of an experiment.

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
    federation = experiment.data.build()
    loss = _loss(experiment.problem.loss, federation)
    outputs = experiment.model.outputs or _outputs(loss, federation)
    psi = experiment.problem.regularizer
    model: Any = experiment.model.build(outputs)
    if "normalise" in federation.info:
        from fedax.models import Normalised

        model = Normalised(model, **federation.info["normalise"])
    made = Problem(model, loss=loss, regularizer=None if psi is None else psi.build())
    return made, federation


def options(experiment: Experiment, seed: int) -> dict[str, Any]:
    """How an experiment is simulated, as `simulate` and `sweep` take it."""
    names = """rounds cohort local_steps local_epochs batch_size sampling weighted
               eval_every eval_on zero_below unseen join_steps executor"""
    return {**{name: getattr(experiment, name) for name in names.split()}, "seed": seed}


def _loss(asked: str | None, federation: Federation) -> str:
    classes, dataset = federation.info["classes"], federation.info["dataset"]
    if asked == "cross_entropy" and classes is None:
        raise FedaxError(f"problem.loss is 'cross_entropy': {dataset} has no classes, so it must be 'squared' or 'mse'")
    if asked == "logistic" and classes != 2:
        has = "no classes" if classes is None else f"{classes} classes"
        raise FedaxError(f"problem.loss is 'logistic': it needs data of two classes, and {dataset} has {has}")
    return asked or ("squared" if classes is None else "cross_entropy")


def _outputs(loss: str, federation: Federation) -> int:
    if loss == "cross_entropy":
        return int(federation.info["classes"])
    return int(np.prod(federation.arrays["y"].shape[1:]))
