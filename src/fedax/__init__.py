"""Fedax: federated optimisation that does what the papers say, fast.

Names are loaded on first use, so that `import fedax` costs nothing. On a CPU each core becomes a JAX device,
unless JAX is already in use or told otherwise; FEDAX_DEVICES=1 keeps a single one.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fedax import algorithms, data, evaluation, models, schedules, theory
    from fedax.algorithms import *
    from fedax.data import Federation
    from fedax.errors import DivergedError, FedaxError
    from fedax.oracle import Oracle
    from fedax.problem import Problem
    from fedax.simulation import History, Result, Simulation, grid, load, simulate, stream, sweep
    from fedax.vectors import Mixture, Vector

_ROOMS = (
    "algorithms",
    "data",
    "evaluation",
    "experiments",
    "models",
    "regularizers",
    "report",
    "schedules",
    "theory",
    "testing",
)
_NAMES = {
    "Federation": "fedax.data",
    "DivergedError": "fedax.errors",
    "FedaxError": "fedax.errors",
    "Oracle": "fedax.oracle",
    "Problem": "fedax.problem",
    "History": "fedax.simulation",
    "Result": "fedax.simulation",
    "Simulation": "fedax.simulation",
    "load": "fedax.simulation",
    "grid": "fedax.simulation",
    "simulate": "fedax.simulation",
    "sweep": "fedax.simulation",
    "stream": "fedax.simulation",
    "Mixture": "fedax.vectors",
    "Vector": "fedax.vectors",
}


def __getattr__(name: str) -> Any:
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
    return sorted([*_ROOMS, *_NAMES, *importlib.import_module("fedax.algorithms").ALGORITHMS, "Algorithm", "algorithm"])
