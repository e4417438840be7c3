"""The rows of the one client that runs here: from the experiment's federation, or from a loader of one's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedax.data import Federation
from fedax.data.checks import check_arrays, check_same_layout
from fedax.data.federation import Rows
from fedax.data.nested import flattened
from fedax.data.splits import PARTS
from fedax.errors import FedaxError
from fedax.flower.agreement import Setting

#: A function from a node's configuration to its client's arrays: {"x": ..., "y": ...}, all for training, or by part,
#: {"train": {"x": ..., "y": ...}, "validation": ..., "test": ...}, where train is required.
Loader = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def own_rows(setting: Setting, number: int, data: Loader | None, config: Mapping[str, Any]) -> Federation:
    """A federation of this client alone, with its rows only."""
    if data is not None:
        return from_loader(data(config))
    if setting.federation is None:
        raise FedaxError("data is missing: this federation's clients bring their own rows, so it must be a loader")
    return _joined({part: flattened(setting.federation.client(number, part)) for part in PARTS})


def from_loader(loaded: Any) -> Federation:
    """What a loader returned, checked.

    >>> from_loader({"train": {"y": [0, 1, 1]}, "test": {"y": [1]}}).test.count
    array([1])
    >>> from_loader([1, 2])
    Traceback (most recent call last):
    fedax.errors.FedaxError: the data loader returned a list: it must be a dict of arrays, or of such dicts by part
    """
    if not isinstance(loaded, Mapping) or not loaded:
        kind = f"a {type(loaded).__name__}" if loaded or not isinstance(loaded, Mapping) else "an empty dict"
        raise FedaxError(f"the data loader returned {kind}: it must be a dict of arrays, or of such dicts by part")
    by_part = any(isinstance(value, Mapping) for value in loaded.values()) and "x" not in loaded
    parts = dict(loaded) if by_part else {"train": loaded}
    wrong = [name for name in parts if name not in PARTS]
    if wrong or "train" not in parts:
        given = ", ".join(map(str, parts))
        raise FedaxError(
            f"the data loader returned the parts {given}: they must be train and, if any, validation, test"
        )
    checked = {part: check_arrays(arrays, f"the loader's {part}") for part, arrays in parts.items()}
    check_same_layout(list(checked.values()), [f"the loader's {part}" for part in checked])
    empty = {name: array[:0] for name, array in checked["train"].items()}
    return _joined({part: checked.get(part, empty) for part in PARTS})


def _joined(parts: Mapping[str, Mapping[str, Any]]) -> Federation:
    arrays = {name: np.concatenate([parts[part][name] for part in PARTS]) for name in parts["train"]}
    counts = [len(next(iter(parts[part].values()))) for part in PARTS]
    starts = np.cumsum([0, *counts])[:-1]
    train, validation, test = (Rows(np.array([s]), np.array([c])) for s, c in zip(starts, counts, strict=True))
    return Federation(arrays, train, validation, test)
