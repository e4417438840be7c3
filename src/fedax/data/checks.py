"""Checks of arrays, splits, seeds and counts, before any work starts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedax.data.nested import flattened
from fedax.errors import FedaxError
from fedax.memory import check_memory

Array: TypeAlias = NDArray[Any]
Split: TypeAlias = tuple[float, float, float]


def check_count(field: str, value: object, minimum: int) -> int:
    """An integer of at least `minimum`.

    >>> check_count("clients", 3, 1)
    3
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
        raise FedaxError(f"{field} is {value!r}: it must be an integer of at least {minimum}")
    return int(value)


def check_split(split: Sequence[float] | None) -> Split | None:
    """Three non-negative fractions (train, validation, test) that sum to 1, or None for no split.

    >>> check_split((0.7, 0.1, 0.2))
    (0.7, 0.1, 0.2)
    """
    if split is None:
        return None
    allowed = "it must be three non-negative fractions (train, validation, test) that sum to 1, or None"
    try:
        train, validation, test = (float(f) for f in split)
    except (TypeError, ValueError):
        raise FedaxError(f"split is {split!r}: {allowed}") from None
    values = (train, validation, test)
    if not all(math.isfinite(f) and f >= 0 for f in values) or abs(sum(values) - 1) > 1e-6:
        raise FedaxError(f"split is {split!r}: {allowed}")
    if not train:
        raise FedaxError(f"split is {split!r}: its first fraction is of the rows to train on, so it must be above 0")
    return values


def check_names(names: Sequence[str] | None, clients: int) -> tuple[str, ...]:
    """Distinct names, one for each client; "0", "1", ... where none are given.

    >>> check_names(None, 2)
    ('0', '1')
    """
    if not names:
        return tuple(map(str, range(clients)))
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise FedaxError(f"names is {names!r}: it must be a sequence of strings, one a client")
    if len(names) != clients:
        raise FedaxError(f"names has {len(names)} entries for {clients} clients: it must have one a client")
    first: dict[str, int] = {}
    for i, name in enumerate(names):
        if first.setdefault(name, i) != i:
            raise FedaxError(f"names gives {name!r} to clients {first[name]} and {i}: names must be distinct")
    return tuple(names)


def check_arrays(arrays: object, owner: str) -> dict[str, Array]:
    """Finite numeric arrays with the same, positive number of rows; `owner` is named in the errors.

    Dictionaries among them are spread out: see `fedax.data.nested`.

    >>> sorted(check_arrays({"x": [[1.0], [2.0]], "y": [0, 1]}, "client 0"))
    ['x', 'y']
    """
    if not isinstance(arrays, Mapping) or not arrays:
        if hasattr(arrays, "__getitem__") and type(arrays).__module__.startswith(("torch.", "datasets.")):
            name = type(arrays).__name__
            raise FedaxError(f"{owner} is a {name}: fedax.data.from_torch makes a federation of PyTorch's datasets")
        raise FedaxError(f"{owner} is {arrays!r}: it must be a dict of arrays such as {{'x': ..., 'y': ...}}")
    checked = {key: _numeric(key, value, owner) for key, value in flattened(arrays, owner).items()}
    lengths = {key: len(array) for key, array in checked.items()}
    if len(set(lengths.values())) > 1:
        text = ", ".join(f"{key!r} has {n}" for key, n in lengths.items())
        raise FedaxError(f"{owner} has arrays of different lengths: {text} rows; all must have the same")
    if 0 in lengths.values():
        raise FedaxError(f"{owner} has 0 rows: it must have at least 1")
    for key, array in checked.items():
        check_memory(f"{owner}: array {key!r}", array.nbytes)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            row = int(np.argwhere(~np.isfinite(array))[0, 0])
            raise FedaxError(f"{owner} has NaN or infinity in array {key!r} at row {row}: all must be finite")
    return checked


def check_same_layout(clients: Sequence[Mapping[str, Array]], owners: Sequence[str]) -> None:
    """Every client has the keys, the trailing shapes and the dtypes of the first one.

    >>> check_same_layout([{"x": np.zeros((2, 3))}, {"x": np.zeros((5, 3))}], ["client 0", "client 1"])
    """
    model = clients[0]
    for client, owner in zip(clients[1:], owners[1:], strict=True):
        if client.keys() != model.keys():
            raise FedaxError(
                f"{owner} has the arrays {sorted(client)} and {owners[0]} has {sorted(model)}: "
                "all clients must have the same"
            )
        for key, array in client.items():
            here, there = (array.shape[1:], array.dtype), (model[key].shape[1:], model[key].dtype)
            if here != there:
                raise FedaxError(
                    f"{owner} has array {key!r} with rows of shape {here[0]} and dtype {here[1]} and "
                    f"{owners[0]} has {there[0]} and {there[1]}: all clients must have the same"
                )


def _numeric(key: object, value: object, owner: str) -> Array:
    if not isinstance(key, str):
        raise FedaxError(f"{owner} has an array under the key {key!r}: keys must be strings")
    if not key or not key.isprintable():
        raise FedaxError(f"{owner} has an array under the key {key!r}: keys must be printable and not empty")
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise FedaxError(f"{owner} has array {key!r} with entries that are masked: fill them, or leave their rows out")
    try:
        array: Array = np.asarray(value)
    except ValueError:
        raise FedaxError(f"{owner} has array {key!r} with rows of unequal shape: all must agree") from None
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        allowed = "it must be numeric or bool, real, and of 64 bits at most"
        raise FedaxError(f"{owner} has array {key!r} of dtype {array.dtype}: {allowed}")
    if array.ndim == 0:
        raise FedaxError(f"{owner} has array {key!r} that is the single number {array}: it must have rows")
    if 0 in array.shape[1:]:
        raise FedaxError(f"{owner} has array {key!r} with rows of shape {array.shape[1:]}: they must not be empty")
    return array
