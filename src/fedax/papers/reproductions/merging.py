"""An experiment's table with some of its fields changed."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from fedax.errors import unknown


def merged(table: Mapping[str, Any], changes: Mapping[str, Any], only: Sequence[str] = ()) -> dict[str, Any]:
    """The table with changes merged in, and some of its methods alone.

    Tables merge field by field, unless they name another thing than before; everything else is replaced. Of the
    methods, `algorithm = { FedAvg = { lr = 1 } }` changes the one with that label.

    >>> table = {"rounds": 9, "data": {"name": "mnist", "seed": 3}, "algorithm": [{"name": "FedAvg", "lr": 0.1}]}
    >>> merged(table, {"rounds": 2, "data": {"seed": 4}, "algorithm": {"FedAvg": {"lr": 1}}})
    {'rounds': 2, 'data': {'name': 'mnist', 'seed': 4}, 'algorithm': [{'name': 'FedAvg', 'lr': 1}]}
    >>> merged(table, {"data": {"name": "iris"}})["data"]
    {'name': 'iris'}
    """
    found = {key: copy.deepcopy(value) for key, value in table.items()}
    for key, value in changes.items():
        found[key] = _combined(found.get(key), value)
    if only:
        _keep(found, only)
    return found


def _combined(old: Any, new: Any) -> Any:
    if isinstance(old, list) and isinstance(new, Mapping):
        labels = [label(one) for one in old]
        for name in new:
            if name not in labels:
                raise unknown("method", name, labels)
        return [merged(one, new.get(name, {})) for one, name in zip(old, labels, strict=True)]
    another = (
        isinstance(old, Mapping) and isinstance(new, Mapping) and new.get("name", old.get("name")) != old.get("name")
    )
    if isinstance(old, Mapping) and isinstance(new, Mapping) and not another:
        return merged(old, new)
    return copy.deepcopy(new)


def _keep(table: dict[str, Any], only: Sequence[str]) -> None:
    """Leave out the other methods."""
    key = "algorithm" if "algorithm" in table else "methods"
    labels = [label(one) for one in table[key]]
    for name in only:
        if name not in labels:
            raise unknown("method", name, labels)
    table[key] = [one for one in table[key] if label(one) in only]


def label(method: Any) -> str:
    """What a method is called: its label, else its name."""
    return str(method.get("label", method["name"])) if isinstance(method, Mapping) else str(method)
