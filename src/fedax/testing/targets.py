"""From a name to a report: what `fedax check module:Class` does."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from fedax.algorithms import ALGORITHMS, method_class
from fedax.algorithms.base import Algorithm, within
from fedax.errors import FedaxError, unknown
from fedax.outside import is_outside
from fedax.testing.findings import Report
from fedax.testing.suite import check_algorithm

RATE, STEP = 0.05, 0.1


def load_class(target: str) -> type[Algorithm]:
    """The method at "module:Class" or "file.py:Class"; or a Fedax method.

    >>> load_class("fedax.algorithms.fedavg:FedAvg").__name__
    'FedAvg'
    >>> load_class("fedax.algorithms:FedAvgg")
    Traceback (most recent call last):
    fedax.errors.FedaxError: unknown method of fedax.algorithms 'FedAvgg': did you mean 'FedAvg'? ...
    """
    if not is_outside(target) and target not in ALGORITHMS:
        raise FedaxError(f"a method is named as module:Class, or by one of {', '.join(ALGORITHMS)}; not {target!r}")
    return method_class(target)


def make(cls: type[Algorithm], **params: Any) -> Algorithm:
    """A method with these parameters; one that has no default becomes 0.05 if a rate, else a value in its interval.

    A method that builds on another one gets FedAvg.

    >>> import fedax
    >>> make(fedax.FedProx)
    FedProx(lr=0.05, mu=0.1, server_lr=1.0, norm='squared')
    >>> make(fedax.FedProx, mu=2.0)
    FedProx(lr=0.05, mu=2.0, server_lr=1.0, norm='squared')
    """
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    for given in params:
        if given not in {f.name for f in fields}:
            raise unknown(f"field of {cls.__name__}", given, [f.name for f in fields])
    chosen = {f.name: _value(cls, f) for f in fields if _needs(f) and f.name not in params}
    return cls(**chosen, **params)


def _needs(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _value(cls: type[Algorithm], field: dataclasses.Field[Any]) -> Any:
    if field.metadata.get("method"):
        return make(ALGORITHMS["FedAvg"])
    interval = field.metadata.get("interval")
    if interval is None:
        raise FedaxError(f"{cls.__name__} needs {field.name}, which has neither a default nor an interval")
    if field.metadata.get("schedule"):
        return RATE
    if field.metadata.get("example") is not None:
        return field.metadata["example"]
    low, high = (float(end) for end in interval.strip("[]()").split(","))
    if field.metadata.get("static"):
        candidates: list[float] = [math.floor(low) + k for k in range(3)] if math.isfinite(low) else [0]
    elif math.isfinite(low) and math.isfinite(high):
        candidates = [(low + high) / 2]
    else:
        candidates = [low + STEP if math.isfinite(low) else min(STEP, high - STEP)]
    return next(value for value in candidates if within(value, interval))


def check_target(target: str, **params: Any) -> Report:
    """Check the method at "module:Class", with default parameters where none are given.

    >>> check_target("fedax.algorithms.fedavg:FedAvg", rate=0.1)
    Traceback (most recent call last):
    fedax.errors.FedaxError: unknown field of FedAvg 'rate': Allowed: lr, server_lr
    """
    return check_algorithm(make(load_class(target), **params))
