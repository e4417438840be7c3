"""Arguments that tell a model's call whether it trains."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

#: the arguments: name -> their value in training
SWITCHES = {
    "train": True,
    "training": True,
    "is_training": True,
    "deterministic": False,
    "use_running_average": False,
}


def mode(call: Callable[..., Any], train: bool) -> dict[str, bool]:
    """The switches that a call takes, with their values in training or in evaluation.

    >>> mode(lambda x, deterministic: x, train=True)
    {'deterministic': False}
    """
    named = inspect.signature(call).parameters
    return {name: value == train for name, value in SWITCHES.items() if name in named}
