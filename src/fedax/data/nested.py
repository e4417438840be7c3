"""Arrays whose value for a row is a dictionary: `{"x": {"ids": ..., "mask": ...}}` is kept as "x.ids" and "x.mask".

So a federation is flat arrays alone; a model gets the dictionary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedax.errors import FedaxError


def flattened(arrays: Mapping[Any, Any], owner: str = "arrays") -> dict[Any, Any]:
    """Dictionaries among the arrays, spread out under dotted names; `owner` is named in the errors.

    >>> flattened({"x": {"ids": 1, "mask": 2}, "y": 3})
    {'x.ids': 1, 'x.mask': 2, 'y': 3}
    """
    if not any(isinstance(value, Mapping) for value in arrays.values()):
        return dict(arrays)
    flat: dict[Any, Any] = {}
    for key, value in arrays.items():
        if not isinstance(value, Mapping):
            flat[key] = value
            continue
        if not value:
            raise FedaxError(f"{owner} has array {key!r} as an empty dictionary: it must hold arrays")
        for inner, array in flattened(value, owner).items():
            if not isinstance(inner, str):
                raise FedaxError(f"{owner} has the key {inner!r} in the dictionary {key!r}: keys must be strings")
            flat[f"{key}.{inner}"] = array
    return flat


def nested(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays under dotted names, gathered in dictionaries again.

    >>> nested({"x.ids": 1, "x.mask": 2, "y": 3})
    {'x': {'ids': 1, 'mask': 2}, 'y': 3}
    """
    if not any("." in name for name in batch):
        return dict(batch)
    made: dict[str, Any] = {}
    for name, array in batch.items():
        *heads, last = name.split(".")
        place = made
        for head in heads:
            place = place.setdefault(head, {})
        place[last] = array
    return made
