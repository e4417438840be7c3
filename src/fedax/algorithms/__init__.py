"""The methods, one a file. To add one: write its file, add its import here."""

from __future__ import annotations

import dataclasses
from typing import Any

from fedax.algorithms.apfl import APFL as APFL
from fedax.algorithms.base import Algorithm as Algorithm
from fedax.algorithms.base import Context as Context
from fedax.algorithms.base import algorithm as algorithm
from fedax.algorithms.ditto import Ditto as Ditto
from fedax.algorithms.fedac import FedAc as FedAc
from fedax.algorithms.fedadmm import FedADMM as FedADMM
from fedax.algorithms.fedadmm import FedPD as FedPD
from fedax.algorithms.fedavg import FedAvg as FedAvg
from fedax.algorithms.fedavgm import FedAvgM as FedAvgM
from fedax.algorithms.fedcm import FedCM as FedCM
from fedax.algorithms.feddeper import FedDeper as FedDeper
from fedax.algorithms.feddualavg import FedDualAvg as FedDualAvg
from fedax.algorithms.feddyn import FedDyn as FedDyn
from fedax.algorithms.fedmid import FedMiD as FedMiD
from fedax.algorithms.fedopt import FedAdagrad as FedAdagrad
from fedax.algorithms.fedopt import FedAdam as FedAdam
from fedax.algorithms.fedopt import FedYogi as FedYogi
from fedax.algorithms.fedprox import FedProx as FedProx
from fedax.algorithms.fedspeed import FedSpeed as FedSpeed
from fedax.algorithms.local_only import LocalOnly as LocalOnly
from fedax.algorithms.localised import Localised as Localised
from fedax.algorithms.minibatch import MinibatchAccSGD as MinibatchAccSGD
from fedax.algorithms.minibatch import MinibatchSGD as MinibatchSGD
from fedax.algorithms.perfedavg import PerFedAvg as PerFedAvg
from fedax.algorithms.pfedfbe import PFedFBE as PFedFBE
from fedax.algorithms.pfedme import PFedMe as PFedMe
from fedax.algorithms.private import Private as Private
from fedax.algorithms.robust import Robust as Robust
from fedax.algorithms.scaffold import SCAFFOLD as SCAFFOLD
from fedax.errors import FedaxError, unknown
from fedax.outside import is_outside, load

_METHODS = [c for c in globals().values() if isinstance(c, type) and issubclass(c, Algorithm) and c is not Algorithm]
#: every method by its name, shared-model methods before personal ones
ALGORITHMS: dict[str, type[Algorithm]] = {
    method.__name__: method for method in sorted(_METHODS, key=lambda m: (m.personalised, m.__name__.lower()))
}


Localized = Localised  # as it was once spelt


def method_class(name: str) -> type[Algorithm]:
    """The class of a method: one of `ALGORITHMS` in upper or lower case, or "mymodule:MyMethod", "file.py:MyMethod".

    >>> method_class("fedavg").__name__
    'FedAvg'
    >>> method_class("fedax.algorithms:FedAvgg")
    Traceback (most recent call last):
    fedax.errors.FedaxError: unknown method of fedax.algorithms 'FedAvgg': did you mean 'FedAvg'? ...
    """
    if is_outside(name):
        advice = "derive it from fedax.Algorithm and decorate it with @fedax.algorithm"
        found: type[Algorithm] = load(name, "method", _is_method, advice)
        return found
    by_lower = {n.lower(): cls for n, cls in ALGORITHMS.items()} | {"localized": Localised}
    if name.lower() not in by_lower:
        raise unknown("algorithm", name, ALGORITHMS)
    return by_lower[name.lower()]


def _is_method(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, Algorithm) and dataclasses.is_dataclass(found)


def required(method: type[Algorithm]) -> list[str]:
    """The fields of a method that have no default.

    >>> required(method_class("FedProx"))
    ['lr', 'mu']
    """
    return [f.name for f in dataclasses.fields(method) if f.default is dataclasses.MISSING]  # type: ignore[arg-type]


def build(name: str, **parameters: Any) -> Algorithm:
    """A method by name, as experiment files write it; one of your own by "mymodule:MyMethod" or "file.py:MyMethod".

    >>> build("fedavg", lr=0.1)
    FedAvg(lr=0.1, server_lr=1.0)
    >>> build("FedAvg", rate=0.1)
    Traceback (most recent call last):
    fedax.errors.FedaxError: unknown field of FedAvg 'rate': Allowed: lr, server_lr
    """
    cls: Any = method_class(name)
    fields = dataclasses.fields(cls)
    for given in parameters:
        if given not in {f.name for f in fields}:
            raise unknown(f"field of {cls.__name__}", given, [f.name for f in fields])
    missing = [name for name in required(cls) if name not in parameters]
    if missing:
        raise FedaxError(f"{cls.__name__} needs {', '.join(missing)}")
    made: Algorithm = cls(**parameters)
    return made
