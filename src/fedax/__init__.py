"""Fedax: federated optimisation that does what the papers say, fast.

Names are loaded on first use, so that `import fedax` costs nothing and sets nothing up. A run makes each core a JAX
device, unless JAX is already in use or told otherwise; FEDAX_DEVICES=1 keeps a single one, and `fedax.configure()`
does it early.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedax.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from fedax import algorithms, data, evaluation, models, plot, schedules
    from fedax.algorithms import *
    from fedax.algorithms.attacks import Attack
    from fedax.client.availability import Availability
    from fedax.data import Federation
    from fedax.engine import History, Result, Simulation, grid, load, simulate, stream, sweep
    from fedax.engine.compare import compare
    from fedax.errors import DivergedError, FedaxError
    from fedax.papers import theory
    from fedax.problem import Problem
    from fedax.problem.oracle import Oracle
    from fedax.runtime import configure
    from fedax.selection import Recommendation, recommend
    from fedax.vectors import Mixture, Vector

_ROOMS = (
    "algorithms",
    "data",
    "evaluation",
    "experiments",
    "models",
    "plot",
    "regularizers",
    "report",
    "schedules",
    "sklearn",
    "testing",
)
_WINGS = {"theory": "fedax.papers.theory", "reproductions": "fedax.papers.reproductions"}
_NAMES = {
    "Attack": "fedax.algorithms.attacks",
    "Availability": "fedax.client.availability",
    "Federation": "fedax.data",
    "DivergedError": "fedax.errors",
    "FedaxError": "fedax.errors",
    "Oracle": "fedax.problem.oracle",
    "Problem": "fedax.problem",
    "History": "fedax.engine",
    "Result": "fedax.engine",
    "Simulation": "fedax.engine",
    "compare": "fedax.engine.compare",
    "load": "fedax.engine",
    "grid": "fedax.engine",
    "simulate": "fedax.engine",
    "sweep": "fedax.engine",
    "stream": "fedax.engine",
    "configure": "fedax.runtime",
    "Recommendation": "fedax.selection",
    "recommend": "fedax.selection",
    "Mixture": "fedax.vectors",
    "Vector": "fedax.vectors",
}


def __getattr__(name: str) -> Any:
    if name in _WINGS:
        return importlib.import_module(_WINGS[name])
    if name in _ROOMS:
        return importlib.import_module(f"fedax.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    if name[0].isupper() or name == "algorithm":  # anything else is a submodule, which Python finds itself
        methods = importlib.import_module("fedax.algorithms")
        if hasattr(methods, name):
            return getattr(methods, name)
    raise AttributeError(f"module 'fedax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(
        [*_ROOMS, *_WINGS, *_NAMES, *importlib.import_module("fedax.algorithms").ALGORITHMS, "Algorithm", "algorithm"]
    )
