"""The methods, one a file. To add one: write its file, add it to `_METHODS`."""

from __future__ import annotations

import dataclasses
from typing import Any

from fedax.algorithms.apfl import APFL
from fedax.algorithms.base import Algorithm, Context, algorithm
from fedax.algorithms.fedac import FedAc
from fedax.algorithms.fedadmm import FedADMM, FedPD
from fedax.algorithms.fedavg import FedAvg
from fedax.algorithms.fedavgm import FedAvgM
from fedax.algorithms.fedcm import FedCM
from fedax.algorithms.feddeper import FedDeper
from fedax.algorithms.feddyn import FedDyn
from fedax.algorithms.fedopt import FedAdagrad, FedAdam, FedYogi
from fedax.algorithms.fedprox import FedProx
from fedax.algorithms.fedspeed import FedSpeed
from fedax.algorithms.local_only import LocalOnly
from fedax.algorithms.minibatch import MinibatchAccSGD, MinibatchSGD
from fedax.algorithms.scaffold import SCAFFOLD
from fedax.errors import FedaxError, unknown

_METHODS: tuple[type[Algorithm], ...] = (
    FedAvg,
    MinibatchSGD,
    MinibatchAccSGD,
    FedAc,
    FedProx,
    SCAFFOLD,
    FedAvgM,
    FedAdam,
    FedYogi,
    FedAdagrad,
    FedCM,
    FedDyn,
    FedADMM,
    FedPD,
    FedSpeed,
    FedDeper,
    APFL,
    LocalOnly,
)
ALGORITHMS: dict[str, type[Algorithm]] = {method.__name__: method for method in _METHODS}


def build(name: str, **parameters: Any) -> Algorithm:
    """A method by name, as experiment files write it.

    >>> build("fedavg", lr=0.1)
    FedAvg(lr=0.1, server_lr=1.0)
    >>> build("FedAvg", rate=0.1)
    Traceback (most recent call last):
    fedax.errors.FedaxError: unknown field of FedAvg 'rate': Allowed: lr, server_lr
    """
    by_lower = {n.lower(): cls for n, cls in ALGORITHMS.items()}
    if name.lower() not in by_lower:
        raise unknown("algorithm", name, ALGORITHMS)
    cls: Any = by_lower[name.lower()]
    fields = dataclasses.fields(cls)
    for given in parameters:
        if given not in {f.name for f in fields}:
            raise unknown(f"field of {cls.__name__}", given, [f.name for f in fields])
    missing = [f.name for f in fields if f.default is dataclasses.MISSING and f.name not in parameters]
    if missing:
        raise FedaxError(f"{cls.__name__} needs {', '.join(missing)}")
    made: Algorithm = cls(**parameters)
    return made


__all__ = [
    "ALGORITHMS",
    "APFL",
    "SCAFFOLD",
    "Algorithm",
    "Context",
    "FedADMM",
    "FedAc",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedCM",
    "FedDeper",
    "FedDyn",
    "FedPD",
    "FedProx",
    "FedSpeed",
    "FedYogi",
    "LocalOnly",
    "MinibatchAccSGD",
    "MinibatchSGD",
    "algorithm",
    "build",
]
