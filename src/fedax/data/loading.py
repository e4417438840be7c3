"""From a name or a table to a federation: `load` divides rows among clients, `divided` takes divided data."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from types import EllipsisType
from typing import Any, Literal

import numpy as np

from fedax.data.checks import Array
from fedax.data.datasets.registry import DATASETS, FEDERATIONS
from fedax.data.datasets.spec import Dataset
from fedax.data.federation import Federation, Rows
from fedax.data.nested import flattened
from fedax.data.partitions.registry import IID, ByColumn, Partition
from fedax.data.splits import is_label
from fedax.data.storage.sharing import within_budget
from fedax.data.tables import own_rows as tables
from fedax.data.tables.federating import federate
from fedax.data.tables.table import Table, check
from fedax.errors import FedaxError, unknown
from fedax.outside import call, is_outside, parameters
from fedax.outside import load as load_outside

_loaded: weakref.WeakValueDictionary[Hashable, Federation] = weakref.WeakValueDictionary()


def load(
    name: str,
    *,
    partition: Partition | None = None,
    split: Sequence[float] | EllipsisType | None = ...,
    seed: int = 0,
    test: Literal["official"] | None = None,
    **options: Any,
) -> Federation:
    """The dataset of that name as a federation.

    Its arrays are read-only. The same call gives the same federation, while a reference to it exists.

    `info` holds the dataset's name, the partition, the number of classes (None for a regression) and the
    seed; the values of the labels where they are not 0, 1, ...; and as `normalise` the scale of the images' channels
    where the literature has one.

    Parameters
    ----------
    name : one of `DATASETS`; a set that is not on this machine is downloaded. Or "mymodule:make" or "file.py:make", a
        function of the options that returns a Federation, or a dict of arrays that is divided by `partition`
    partition : how the rows are divided; default `IID(10)`, or by the client column where one is named
    split : fractions (train, validation, test) of each client's rows; default (0.7, 0.1, 0.2). None is all for training
    seed : of the partition and the split
    test : "official" makes the dataset's own test set that of every client, without copies; `split` is then
        (train, validation), by default all for training
    options : further options of the dataset, such as path, label and client of a table

    >>> federation = load("iris", partition=IID(3), seed=1)
    >>> federation
    Federation(3 clients, 150 rows of x float32[4], y int32[]; rows a client: train 35, validation 5, test 10)
    >>> federation.info
    {'partition': 'IID(clients=3)', 'seed': 1, 'dataset': 'iris', 'classes': 3}
    """
    if is_outside(name):
        return _from_outside(name, partition, split, seed, test, options)
    if name not in DATASETS:
        raise unknown("dataset", name, DATASETS)
    dataset = DATASETS[name]
    chosen = dataset.resolved(options)
    fractions = check_fractions(split, test)
    try:
        key: Hashable = (dataset.key("all", chosen), partition, fractions, seed, test)
        known = _loaded.get(key)
    except TypeError:  # a partition of the user's own that cannot be hashed, or a wrong argument
        key = known = None
    if known is not None:
        return known
    made = _federation(dataset, chosen, partition, fractions, seed, test)
    if key is not None:
        _loaded[key] = made
    return made


def outside_dataset(name: str) -> Any:
    """The function that makes a dataset from outside.

    >>> outside_dataset("fedax.data:clusters").__name__
    'clusters'
    """
    return load_outside(name, "dataset", callable, "it must be a function that returns a fedax.Federation or arrays")


def check_outside_options(name: str, options: Mapping[str, Any]) -> None:
    """Raise if a dataset's function does not take these options; nothing is called."""
    call(name, _same_signature(outside_dataset(name)), options, seed=0)


def _same_signature(function: Any) -> Any:
    def nothing(**options: Any) -> None:
        return None

    nothing.__signature__ = inspect.Signature(parameters(function))  # type: ignore[attr-defined]
    return nothing


def _from_outside(
    name: str,
    partition: Partition | None,
    split: Sequence[float] | EllipsisType | None,
    seed: int,
    test: str | None,
    options: Mapping[str, Any],
) -> Federation:
    if test is not None:
        raise FedaxError(f"test must be left out: {name} has no test set of its own")
    made = call(name, outside_dataset(name), options, seed=seed)
    if isinstance(made, Federation):
        for field, value in (("partition", partition), ("split", None if isinstance(split, EllipsisType) else split)):
            if value is not None:
                raise FedaxError(f"{field} must be left out: {name} comes divided among clients")
        y = made.arrays.get("y")
        classes = len(np.unique(y)) if y is not None and is_label(y) else None
        return replace(made, info={"dataset": name, "classes": classes, "seed": seed, "partition": name, **made.info})
    if not isinstance(made, Mapping) or "y" not in made:
        raise FedaxError(
            f"{name} returns {type(made).__name__}: it must be a fedax.Federation, or a dict of arrays x, y"
        )
    arrays = {key: np.asarray(array) for key, array in flattened(made, name).items()}
    return _own(arrays, name, partition, check_fractions(split, None), seed)


def _federation(
    dataset: Dataset,
    options: Mapping[str, Any],
    partition: Partition | None,
    split: Sequence[float] | None,
    seed: int,
    test: str | None,
) -> Federation:
    held_out = dataset.arrays("test", options) if test else None
    if dataset.own:
        return _own(dataset.read(**options), dataset.name, partition, split, seed)
    arrays = dataset.arrays("train", options)
    info: dict[str, Any] = {"dataset": dataset.name}
    if (scale := dataset.scale(options)) is not None:
        info["normalise"] = scale
    return _divide(arrays, partition, split, seed, info, held_out)


def from_table(
    table: Any,
    *,
    label: str,
    client: str | None = None,
    features: Sequence[str] | None = None,
    categorical: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    dates: Sequence[str] | Literal["numbers"] | None = None,
    missing: str | Mapping[str, str] = "error",
    weights: str | None = None,
    task: Literal["classification", "regression"] | None = None,
    partition: Partition | None = None,
    split: Sequence[float] | None = (0.7, 0.1, 0.2),
    seed: int = 0,
) -> Federation:
    """The federation of a pandas table or a Hugging Face dataset.

    Means, categories and the like are computed from training rows, and kept as `info["preparation"]`.

    label, client : the column to predict, and the column that names each row's client
    features : the columns to learn from; default all others but ids, texts, dates and constants
    categorical : features that are categories whatever their values are; drop : columns to leave out
    dates : columns of dates that become days; "numbers" for all of them
    missing : "error"; "fill" takes the median or the most frequent value, "flag" adds a column that says where; or a
        table of columns, such as {"age": "median", "*": "flag"}
    weights : "balanced" lets all classes count the same; or a column of weights, 0 or more
    task : "classification" or "regression", where whole numbers could be either

    >>> import pandas
    >>> cities = ["oslo", "oslo", "bodo", "bodo"]
    >>> table = pandas.DataFrame({"age": [30, 50, 20, 40], "ill": ["no", "yes"] * 2, "city": cities})
    >>> federation = from_table(table, label="ill", client="city", split=None)
    >>> federation.names, federation.info["labels"]
    (('bodo', 'oslo'), ['no', 'yes'])
    """
    columns: dict[str, Any] = {
        **{"label": label, "client": client, "features": features, "categorical": categorical, "drop": drop},
        **{"dates": dates, "missing": missing, "weights": weights, "task": task},
    }
    arrays: Table | dict[str, Array]
    if hasattr(table, "column_names") and hasattr(table, "to_pandas"):
        arrays = tables.from_huggingface(table, "the dataset", **columns)
    elif hasattr(table, "columns") and hasattr(table, "iloc"):
        arrays = check(table, "the table", **columns)
    else:
        raise FedaxError(f"table is a {type(table).__name__}: it must be a pandas table or a Hugging Face dataset")
    return _own(arrays, "table", partition, split, seed)


def check_fractions(split: Sequence[float] | EllipsisType | None, test: str | None) -> Sequence[float] | None:
    """The fractions (train, validation, test), with those left out filled in.

    >>> check_fractions((0.9, 0.1), "official")
    (0.9, 0.1, 0.0)
    """
    if test not in (None, "official"):
        raise FedaxError(f"test is {test!r}: it must be 'official', or be left out")
    if isinstance(split, EllipsisType):
        return None if test else (0.7, 0.1, 0.2)
    if split is None or test is None:
        return tuple(split) if isinstance(split, list) else split
    if not np.iterable(split) or len(split) not in (2, 3) or (len(split) == 3 and split[2] != 0):
        raise FedaxError(f"split is {split!r}: with test 'official' it must be two fractions (train, validation)")
    return (*split[:2], 0.0)


def _own(
    arrays: Table | Mapping[str, Array],
    name: str,
    partition: Partition | None,
    split: Sequence[float] | None,
    seed: int,
) -> Federation:
    """The federation of a user's rows. Labels and clients are numbered in the order of their values, which `info` and
    `names` keep."""
    if isinstance(arrays, Table):
        return _from_table(arrays, name, partition, split, seed)
    rest = {key: array for key, array in arrays.items() if key != "client"}
    info: dict[str, Any] = {"dataset": name}
    y = rest["y"]
    if y.ndim == 1 and y.dtype.kind in "biuU":
        values, code = np.unique(y, return_inverse=True)
        if len(values) < 2:
            raise FedaxError(f"the label is {values[0]!s} in all {len(y)} rows: there must be at least two values")
        rest["y"] = code.astype(np.int32)
        if values.tolist() != list(range(len(values))):
            info["labels"] = values.tolist()
    if "client" not in arrays:
        return _divide(rest, partition, split, seed, info, None)
    if partition is not None:
        raise FedaxError(f"partition is {partition!r}: the client column divides the rows, so it must be left out")
    names = _client_names(arrays["client"])
    made = _divide({**rest, "client": arrays["client"]}, ByColumn(column="client"), split, seed, info, None)
    return replace(made, names=names)


def _from_table(
    table: Table, name: str, partition: Partition | None, split: Sequence[float] | None, seed: int
) -> Federation:
    info: dict[str, Any] = {"dataset": name}
    if table.labels is not None and table.labels != list(range(len(table.labels))):
        info["labels"] = table.labels
    names: tuple[str, ...] | None = None
    if table.clients is not None:
        if partition is not None:
            raise FedaxError(f"partition is {partition!r}: the client column divides the rows, so it must be left out")
        names, partition = _client_names(table.clients), ByColumn(column="client")

    def divide(arrays: Mapping[str, Array]) -> Federation:
        given = arrays if table.clients is None else {**arrays, "client": table.clients}
        made = _divide(given, partition, split, seed, info, None)
        return made if names is None else replace(made, names=names)

    return federate(table, divide)


def _client_names(column: Array) -> tuple[str, ...]:
    """The column's values; raises if two of them differ only in the spaces around them."""
    names = np.unique(column).astype(str).tolist()
    first: dict[str, str] = {}
    for name in names:
        if first.setdefault(name.strip(), name) != name:
            raise FedaxError(
                f"the client column has {first[name.strip()]!r} and {name!r}: spaces alone tell them apart"
            )
    return tuple(names)


def _divide(
    arrays: Mapping[str, Array],
    partition: Partition | None,
    split: Sequence[float] | None,
    seed: int,
    info: dict[str, Any],
    test: dict[str, Array] | None,
) -> Federation:
    if partition is not None and not isinstance(partition, Partition):
        raise FedaxError(f"partition is {partition!r}: it must be a Partition such as IID(10), or None")
    classes = len(np.unique(arrays["y"])) if is_label(arrays["y"]) else None
    rule = IID(10) if partition is None else partition
    made = rule.divide(arrays, split=split, seed=seed, info={**info, "classes": classes})
    if test is not None:
        made = _with_test(made, test)
    return replace(made, arrays=within_budget(dict(made.arrays)))


def _with_test(federation: Federation, test: Mapping[str, Array]) -> Federation:
    """The federation whose clients all have the same further rows for their test set."""
    arrays = {}
    for key, array in federation.arrays.items():
        if key not in test or (test[key].dtype, test[key].shape[1:]) != (array.dtype, array.shape[1:]):
            changed = federation.info["partition"]
            raise FedaxError(
                f"test is 'official': {changed} changes {key}, which the test set is without; leave it out"
            )
        arrays[key] = np.concatenate([array, test[key]])
    start, count = (np.full(federation.clients, n) for n in (federation.rows, len(test["y"])))
    info = {**federation.info, "test": "official"}
    return replace(federation, arrays=arrays, test=Rows(start, count), info=info)


def divided(name: str, *, seed: int | None = None, **options: Any) -> Federation:
    """The federation of a dataset that comes divided among clients.

    >>> divided("lasso", preset="thesis-II", dimension=100, clients=3, rows=8, test_rows=2, seed=1)
    Federation(3 clients, 30 rows of x float32[100], y float32[]; rows a client: train 8, validation 0, test 2)
    """
    if name not in FEDERATIONS:
        raise unknown("divided dataset", name, FEDERATIONS)
    entry = FEDERATIONS[name]
    if seed is not None and not entry.presets:
        raise FedaxError(f"seed is {seed}: {name} has nothing to draw, so it must be left out")
    chosen = entry.resolved(options)
    return entry.make(**chosen) if seed is None else entry.make(**chosen, seed=seed)
