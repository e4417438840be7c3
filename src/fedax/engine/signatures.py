"""Check that a method's functions can be called as the engine calls them, before anything is traced."""

from __future__ import annotations

import inspect
from typing import Any

from fedax.algorithms.base import Algorithm
from fedax.errors import FedaxError
from fedax.own_code import defined

TAKES = {
    "init": "x0",
    "client_init": "x0",
    "broadcast": "server",
    "begin": "message, client, ctx",
    "step": "local, oracle, message, client, ctx",
    "finish": "local, oracle, message, client, ctx",
    "update": "server, upload, ctx",
    "model": "server",
    "personal": "server, client, oracle",
    "join": "server, client, oracle, steps",
}


def check_signatures(method: Any) -> None:
    """Raise if one of a method's functions, or of those of the method that it builds on, takes other arguments.

    >>> from fedax.algorithms import FedAvg
    >>> check_signatures(FedAvg(lr=0.1))
    """
    for name in ("step", "finish", "update"):
        if getattr(type(method), name) is getattr(Algorithm, name):
            raise FedaxError(f"{type(method).__name__} has no {name}: a method must have step, finish and update")
    for name, takes in TAKES.items():
        _check(f"{type(method).__name__}.{name}", getattr(method, name), takes)
    if method.aggregate != "mean":
        _check(f"{type(method).__name__}.aggregate", method.aggregate, "uploads, weights")
    if isinstance(base := getattr(method, "base", None), Algorithm):
        check_signatures(base)


def _check(name: str, function: Any, takes: str) -> None:
    if not callable(function):
        raise FedaxError(f"{name} is {function!r}: it must be a function of ({takes})")
    try:
        inspect.signature(function).bind(*takes.split(", "))
    except (TypeError, ValueError):
        if hasattr(getattr(function, "__func__", function), "__code__"):  # other callables may hide their arguments
            raise FedaxError(f"{name} must be a function of ({takes}): {defined(function)} takes others") from None
