"""Natural partitions: an array of the dataset names each row's client, or another library's partitioner does."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedax.data.checks import Array, check_count
from fedax.data.federation import Federation
from fedax.data.partitions.base import Partition
from fedax.errors import FedaxError, unknown


@dataclass(frozen=True)
class ByColumn(Partition):
    """A client for each value of the array `column`, such as a writer, a hospital or a day.

    The array holds one integer or string a row. Clients come in the order of its values and are named after them.
    Unless it is `x` or `y`, the array itself is dropped: within a client it says nothing.

    Parameters
    ----------
    clients : the number of clients to keep, those with the most rows; default all
    column : the name of the array; default "client"
    min_rows : leave out those with fewer rows; at least 1, default 1

    >>> data = {"y": np.arange(6), "city": np.array(["oslo", "bergen", "oslo", "bergen", "oslo", "bodo"])}
    >>> federation = ByColumn(column="city", min_rows=2).divide(data)
    >>> federation.names, federation.client(1)["y"]
    (('city bergen', 'city oslo'), array([0, 2, 4]))
    """

    clients: int | None = None  # type: ignore[assignment]
    column: str = "client"
    min_rows: int = 1

    def __post_init__(self) -> None:
        if self.clients is not None:
            super().__post_init__()
        check_count("min_rows", self.min_rows, 1)

    def divide(
        self,
        arrays: Mapping[str, Any],
        *,
        split: Sequence[float] | None = None,
        seed: int = 0,
        info: Mapping[str, Any] | None = None,
    ) -> Federation:
        """The federation of the rows by the column's values."""
        if self.column not in arrays:
            raise unknown("column", self.column, arrays)
        given = np.asarray(arrays[self.column])
        if given.ndim != 1 or given.dtype.kind not in "biuUS":
            raise FedaxError(
                f"column {self.column!r} has shape {given.shape} and dtype {given.dtype}: it must be one integer or "
                "string a row"
            )
        values, code = np.unique(given, return_inverse=True)
        names = tuple(f"{self.column} {value}" for value in values[self._kept(code)])
        coded = arrays if self.column in ("x", "y") else {**arrays, self.column: code}
        made = super().divide(coded, split=split, seed=seed, info=info)
        kept = {key: array for key, array in made.arrays.items() if key != self.column or key in ("x", "y")}
        return replace(made, arrays=kept, names=names)

    def check(self, arrays: Mapping[str, Array], rows: int) -> None:
        count = np.unique(arrays[self.column], return_counts=True)[1]
        enough = int((count >= self.min_rows).sum())
        if enough < (self.clients or 1):
            raise FedaxError(
                f"clients is {self.clients or 'all'}: the column {self.column!r} has {enough} values with at least "
                f"{self.min_rows} rows"
            )

    def assign(self, arrays: Mapping[str, Array], rows: int, rng: np.random.Generator) -> list[Array]:
        code = np.unique(arrays[self.column], return_inverse=True)[1]
        by_value = np.split(np.argsort(code, kind="stable"), np.cumsum(np.bincount(code))[:-1])
        return [by_value[value] for value in self._kept(code)]

    def _kept(self, code: Array) -> NDArray[np.int64]:
        """The values that become clients, in ascending order."""
        count = np.bincount(code)
        largest = np.argsort(-count, kind="stable")
        enough = largest[count[largest] >= self.min_rows]
        return np.sort(enough[: self.clients])


@dataclass(frozen=True)
class ByWriter(ByColumn):
    """A client for each writer: `ByColumn` of the array "writer".

    >>> ByWriter(clients=1).divide({"y": np.arange(3), "writer": np.array([4, 9, 9])}).names
    ('writer 9',)
    """

    column: str = "writer"


@dataclass(frozen=True)
class FromFlower(Partition):
    """The division that a partitioner of `flwr-datasets` makes, or any object with its interface.

    The partitioner is given the dataset's arrays of one number a row under their own names, so `partition_by` is
    "y" for the labels, and is asked for `num_partitions` and `load_partition(i)`. It is copied first: it may be used
    again, and its own seed decides. A dataset must not have been assigned to it.

    Parameters
    ----------
    clients : None, or the number of partitions that there must be; default None
    partitioner : a partitioner such as `flwr_datasets.partitioner.DirichletPartitioner(...)`

    >>> FromFlower(partitioner=3)
    Traceback (most recent call last):
    fedax.errors.FedaxError: partitioner is 3: it must have load_partition and num_partitions, as flwr-datasets' have
    """

    clients: int | None = None  # type: ignore[assignment]
    partitioner: Any = None

    def __post_init__(self) -> None:
        if self.clients is not None:
            super().__post_init__()
        # num_partitions is a property that may need the dataset: ask the class.
        if not all(hasattr(type(self.partitioner), name) for name in ("load_partition", "num_partitions")):
            raise FedaxError(
                f"partitioner is {self.partitioner!r}: it must have load_partition and num_partitions, as "
                "flwr-datasets' have"
            )

    def __repr__(self) -> str:
        return f"FromFlower({type(self.partitioner).__name__})"

    def check(self, arrays: Mapping[str, Array], rows: int) -> None:
        """The partitioner checks for itself."""

    def assign(self, arrays: Mapping[str, Array], rows: int, rng: np.random.Generator) -> list[Array]:
        columns = {key: array for key, array in arrays.items() if array.ndim == 1}
        partitioner = copy.deepcopy(self.partitioner)
        try:
            dataset = importlib.import_module("datasets").Dataset
            partitioner.dataset = dataset.from_dict({**columns, _ROW: np.arange(rows)})
            parts = [partitioner.load_partition(i) for i in range(partitioner.num_partitions)]
        except Exception as error:
            raise FedaxError(f"{self!r} could not divide the rows: {error}") from error
        return [np.asarray(part[_ROW], np.int64) for part in parts]


_ROW = "fedax row"
