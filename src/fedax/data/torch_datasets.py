"""Federations from PyTorch's datasets and data loaders, and from Hugging Face's datasets. Neither is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedax.data.federation import Federation
from fedax.data.partitions.base import Partition
from fedax.errors import FedaxError
from fedax.own_code import telling_whose

LABELS = ("y", "labels", "label", "target")


def from_torch(
    datasets: Any,
    *,
    partition: Partition | None = None,
    split: Sequence[float] | None = (0.7, 0.1, 0.2),
    seed: int = 0,
    names: Sequence[str] | None = None,
) -> Federation:
    """The federation of a list of datasets, one for each client, or of one dataset and a partition of its rows.

    A dataset has `len` and gives rows by their numbers, as torch.utils.data.Dataset does: pairs (x, y), or
    dictionaries, whose "labels" become y and whose other entries become the dictionary x. Where there are "input_ids"
    and no labels, the tokens are their own labels, for loss="next_token"; -100 where "attention_mask" is 0. Of a
    DataLoader its dataset is taken: Fedax draws the minibatches itself. Transforms run once, here: random ones belong
    in Problem's `augment`.

    >>> rows = [(np.zeros(3), 0), (np.ones(3), 1), (np.ones(3), 0)]
    >>> from_torch([rows, rows], split=None).train.count
    array([3, 3])
    >>> from fedax.data import IID
    >>> from_torch(rows, partition=IID(3), split=None).clients
    3
    """
    if partition is not None:
        if names is not None:
            raise FedaxError("names are those of clients with datasets of their own: with a partition leave them out")
        return partition.divide(arrays_of(datasets, "the dataset"), split=split, seed=seed)
    if not isinstance(datasets, list | tuple):
        raise FedaxError("one dataset needs partition=, or give a list of datasets, one for each client")
    clients = [arrays_of(dataset, f"client {i}'s dataset") for i, dataset in enumerate(datasets)]
    return Federation.from_clients(clients, split=split, seed=seed, names=names)


def arrays_of(dataset: Any, owner: str) -> dict[str, Any]:
    """All rows of a dataset or of a data loader's, as arrays x and y; `owner` is named in the errors.

    >>> arrays_of([{"ids": [1, 2], "labels": 0}, {"ids": [3, 4], "labels": 1}], "the dataset")["x"]["ids"].tolist()
    [[1, 2], [3, 4]]
    """
    dataset = getattr(dataset, "dataset", dataset) if hasattr(dataset, "batch_size") else dataset
    if hasattr(dataset, "tensors"):  # a TensorDataset
        return _named(tuple(_array(tensor) for tensor in dataset.tensors), owner)
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise FedaxError(f"{owner} is a {type(dataset).__name__}: it must have a length and give rows by their numbers")
    if not len(dataset):
        raise FedaxError(f"{owner} has no rows")
    if hasattr(dataset, "column_names"):  # Hugging Face's: columns at once
        columns = dataset[:]
        return _named({key: _stacked(columns[key], key, owner) for key in dataset.column_names}, owner)
    with telling_whose():
        rows = [dataset[i] for i in range(len(dataset))]
    first = rows[0]
    if not isinstance(first, Mapping | tuple | list):
        raise FedaxError(
            f"{owner} gives rows of type {type(first).__name__}: they must be pairs (x, y) or dictionaries"
        )
    for i, row in enumerate(rows):
        if (
            type(row) is not type(first)
            or len(row) != len(first)
            or (isinstance(row, Mapping) and set(row) != set(first))
        ):
            raise FedaxError(f"{owner} gives {_parts(first)} in row 0 and {_parts(row)} in row {i}: make them alike")
    if isinstance(first, Mapping):
        return _named({key: _stacked([row[key] for row in rows], key, owner) for key in first}, owner)
    return _named(tuple(_stacked(list(parts), i, owner) for i, parts in enumerate(zip(*rows, strict=True))), owner)


def _parts(row: Any) -> str:
    """What a row is made of, in words."""
    if isinstance(row, Mapping):
        return ", ".join(map(str, row)) or "nothing"
    return f"{len(row)} values" if isinstance(row, tuple | list) else f"a {type(row).__name__}"


def _named(parts: Any, owner: str) -> dict[str, Any]:
    if isinstance(parts, tuple):
        if len(parts) != 2:
            raise FedaxError(f"{owner} gives {len(parts)} values a row: they must be pairs (x, y) or dictionaries")
        return {"x": parts[0], "y": parts[1]}
    label = next((name for name in LABELS if name in parts), None)
    if label is None and "input_ids" in parts:
        shown = parts.get("attention_mask", np.ones(1))
        return {"x": parts, "y": np.where(shown == 0, -100, parts["input_ids"])}
    if label is None:
        raise FedaxError(f"{owner} has {', '.join(parts)} and no labels: one of {', '.join(LABELS)} is needed")
    rest = {name: array for name, array in parts.items() if name != label}
    return {"x": rest["x"] if set(rest) == {"x"} else rest, "y": parts[label]}


def _stacked(values: Sequence[Any], part: Any, owner: str) -> np.ndarray:
    arrays = [_array(value) for value in values]
    if arrays[0].dtype.kind not in "biuf":
        raise FedaxError(f"{owner} has {part!r} with {values[0]!r}: leave out what is no number")
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise FedaxError(
            f"{owner} has rows of shapes {', '.join(map(str, sorted(shapes)))} in {part!r}: make them equal"
        )
    return np.stack(arrays)


def _array(value: Any) -> np.ndarray:
    return np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value)
