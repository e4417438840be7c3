"""Experiments: the file that describes one, and the runner that carries it out.

>>> from fedax.experiments import parse
>>> experiment = parse({
...     "rounds": 100,
...     "data": {"name": "iris", "partition": {"name": "IID", "clients": 3}},
...     "model": {"name": "logistic"},
...     "algorithm": {"name": "FedAvg", "lr": 0.1},
... })
>>> experiment.eval_every, experiment.algorithm[0].build()
(15, FedAvg(lr=0.1, server_lr=1.0))
"""

from __future__ import annotations

from fedax.experiments.building import prepare
from fedax.experiments.events import Progress, Run
from fedax.experiments.execute import Outcome, run
from fedax.experiments.reading import parse, read
from fedax.experiments.resuming import resume
from fedax.experiments.schema import Experiment
from fedax.experiments.sweeping import Best, Swept, resume_sweep, sweep

__all__ = [
    "Best",
    "Experiment",
    "Outcome",
    "Progress",
    "Run",
    "Swept",
    "parse",
    "prepare",
    "read",
    "resume",
    "resume_sweep",
    "run",
    "sweep",
]
