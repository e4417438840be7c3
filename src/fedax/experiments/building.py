"""From an experiment to what it describes: the problem and the federation."""

from __future__ import annotations

import numpy as np

from fedax import data
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
    table = experiment.data
    federation = data.load(table.name, partition=table.partition.build(), split=table.split, seed=table.seed)
    loss = _loss(experiment.problem.loss, federation)
    outputs = experiment.model.outputs or _outputs(loss, federation)
    return Problem(experiment.model.build(outputs), loss=loss), federation


def _loss(asked: str | None, federation: Federation) -> str:
    classes, dataset = federation.info["classes"], federation.info["dataset"]
    if asked == "cross_entropy" and classes is None:
        raise FedaxError(f"problem.loss is 'cross_entropy': {dataset} has no classes, so it must be 'squared'")
    if asked == "logistic" and classes != 2:
        has = "no classes" if classes is None else f"{classes} classes"
        raise FedaxError(f"problem.loss is 'logistic': it needs data of two classes, and {dataset} has {has}")
    return asked or ("squared" if classes is None else "cross_entropy")


def _outputs(loss: str, federation: Federation) -> int:
    if loss == "cross_entropy":
        return int(federation.info["classes"])
    return int(np.prod(federation.arrays["y"].shape[1:]))
