"""A federation: flat arrays, and for each client the ranges of rows that it owns."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedax import notebook
from fedax.data.checks import (
    Array,
    Split,
    check_arrays,
    check_count,
    check_names,
    check_same_layout,
    check_split,
)
from fedax.data.nested import flattened, nested
from fedax.data.splits import PARTS, is_label, split_blocks
from fedax.data.storage.sharing import in_order
from fedax.errors import FedaxError, unknown

log = logging.getLogger("fedax")


@dataclass(frozen=True, eq=False)
class Rows:
    """A range of rows for each client: client i owns rows `start[i]` to `start[i] + count[i]`, the last not included.

    Ranges of different clients may overlap, and a range may be empty.

    >>> rows = Rows(start=[0, 3], count=[3, 2])
    >>> len(rows), rows.of(1)
    (2, slice(3, 5, None))
    """

    start: NDArray[np.int64]
    count: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name in ("start", "count"):
            given = np.asarray(getattr(self, name))
            if given.ndim != 1 or given.dtype.kind not in "iu" or (given < 0).any():
                raise FedaxError(f"{name} is {given}: it must be one non-negative integer a client")
            object.__setattr__(self, name, given.astype(np.int64, copy=False))
        if len(self.start) != len(self.count):
            raise FedaxError(f"start has {len(self.start)} entries and count {len(self.count)}: one a client")

    def __len__(self) -> int:
        return len(self.start)

    def of(self, i: int) -> slice:
        """Client i's rows, as a slice of the flat arrays."""
        return slice(int(self.start[i]), int(self.start[i] + self.count[i]))

    def take(self, order: Sequence[int] | Array) -> Rows:
        """The ranges of the clients in `order`; a client may be named several times."""
        return Rows(self.start[order], self.count[order])


@dataclass(frozen=True, eq=False, repr=False)
class Federation:
    """Clients' data in memory: flat arrays, and each client's train, validation and test rows.

    Parameters
    ----------
    arrays : dict of arrays with the same first axis, such as `x` and `y`; where one is itself a dict, `{"x": {"ids":
        ..., "mask": ...}}`, its arrays are kept as "x.ids" and "x.mask", and a model gets the dict
    train, validation, test : the clients' rows in these arrays; every client has at least one train row
    names : distinct client names; default "0", "1", ...
    info : where the data come from: dataset, partition, number of classes, seed

    >>> federation = Federation.from_clients([{"y": [0, 1, 1]}, {"y": [1, 0]}], names=["north", "south"])
    >>> federation
    Federation(2 clients, 5 rows of y int64[]; rows a client: train 2-3, validation 0, test 0)
    >>> federation.client(1)["y"]
    array([1, 0])
    """

    arrays: dict[str, Array]
    train: Rows
    validation: Rows
    test: Rows
    names: tuple[str, ...] = ()
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrays", flattened(self.arrays))
        lengths = {key: len(array) for key, array in self.arrays.items()}
        if len(set(lengths.values())) != 1:
            raise FedaxError(f"arrays has the lengths {lengths}: there must be one, the same for all arrays")
        if not len(self.train):
            raise FedaxError("train has 0 clients: a federation must have at least 1")
        for part in PARTS:
            rows = self.part(part)
            if len(rows) != self.clients:
                raise FedaxError(f"{part} has {len(rows)} clients and train {self.clients}: must be equal")
            beyond = np.flatnonzero(rows.start + rows.count > self.rows)
            if len(beyond):
                raise FedaxError(
                    f"{part} gives client {beyond[0]} rows up to {rows.of(int(beyond[0])).stop}: "
                    f"the arrays have {self.rows}"
                )
        empty = np.flatnonzero(self.train.count == 0)
        if len(empty):
            raise FedaxError(f"train gives client {empty[0]} 0 rows: every client must have at least 1")
        object.__setattr__(self, "names", check_names(self.names, self.clients))

    @classmethod
    def from_clients(
        cls,
        clients: Sequence[Mapping[str, Any]],
        split: Sequence[float] | None = None,
        seed: int = 0,
        names: Sequence[str] | None = None,
    ) -> Federation:
        """A federation of clients that each bring their own arrays.

        All rows are for training unless `split` gives the fractions (train, validation, test). A client's
        split is random by `seed` and the client's number only, stratified by `y` where that is an integer
        label, and leaves every client at least one training row. Arrays keep their dtype.

        >>> clients = [{"x": np.ones((10, 3)), "y": np.arange(10) % 2}, {"x": np.ones((4, 3)), "y": [0] * 4}]
        >>> Federation.from_clients(clients, split=(0.5, 0.0, 0.5)).test.count
        array([5, 2])
        >>> list(Federation.from_clients([{"x": {"ids": [[3, 1]], "mask": [[1, 0]]}, "y": [1]}]).arrays)
        ['x.ids', 'x.mask', 'y']
        """
        fractions, seed = check_split(split), check_count("seed", seed, 0)
        if isinstance(clients, Mapping | str) or not isinstance(clients, Sequence) or len(clients) == 0:
            raise FedaxError(f"clients is {clients!r}: it must be a list of at least 1 dict of arrays")
        given = check_names(names, len(clients))
        owners = [f"client {i}" + (f" ({name!r})" if names else "") for i, name in enumerate(given)]
        checked = [check_arrays(client, owner) for client, owner in zip(clients, owners, strict=True)]
        check_same_layout(checked, owners)
        flat = {key: np.concatenate([client[key] for client in checked]) for key in checked[0]}
        ends = np.cumsum([len(next(iter(client.values()))) for client in checked])
        blocks = np.split(np.arange(ends[-1]), ends[:-1])
        return arrange(flat, blocks, split=fractions, seed=seed, names=given)

    @property
    def clients(self) -> int:
        """The number of clients."""
        return len(self.train)

    @property
    def rows(self) -> int:
        """The number of rows of the flat arrays."""
        return len(next(iter(self.arrays.values())))

    def part(self, name: str) -> Rows:
        """The rows of "train", "validation" or "test"."""
        if name not in PARTS:
            raise unknown("part", name, PARTS)
        rows: Rows = getattr(self, name)
        return rows

    def client(self, i: int, part: str = "train") -> dict[str, Any]:
        """Client i's arrays, as views of the flat ones; in dictionaries where they were given so."""
        rows = self.part(part)
        if isinstance(i, bool) or not isinstance(i, int | np.integer) or not 0 <= i < self.clients:
            raise FedaxError(f"client is {i!r}: it must be from 0 to {self.clients - 1}")
        return nested({key: array[rows.of(i)] for key, array in self.arrays.items()})

    def label_counts(self, key: str = "y") -> NDArray[np.int64]:
        """How many rows of each label 0, 1, ... each client has, over all its parts: [clients, labels].

        >>> Federation.from_clients([{"y": [0, 2, 2]}, {"y": [1]}]).label_counts()
        array([[1, 0, 2],
               [0, 1, 0]])
        """
        if key not in self.arrays:
            raise unknown("array", key, self.arrays)
        y = self.arrays[key]
        if not is_label(y) or y.min() < 0:
            raise FedaxError(
                f"array {key!r} has shape {y.shape}, dtype {y.dtype} and minimum {y.min()}: "
                "labels must be one non-negative integer a row"
            )
        labels = int(y.max()) + 1
        counts = np.zeros((self.clients, labels), np.int64)
        for rows in map(self.part, PARTS):
            for i in np.flatnonzero(rows.count).tolist():
                counts[i] += np.bincount(y[rows.of(i)], minlength=labels)
        return counts

    def reordered(self, order: Sequence[int] | Array) -> Federation:
        """The same clients in another order, on the same flat arrays.

        >>> Federation.from_clients([{"y": [0]}, {"y": [1]}]).reordered([1, 0]).names
        ('1', '0')
        """
        index = np.asarray(order)
        if not np.array_equal(np.sort(index, axis=None), np.arange(self.clients)):
            raise FedaxError(f"order is {order!r}: it must have each of 0 to {self.clients - 1} exactly once")
        return self.subset(index)

    def subset(self, clients: Sequence[int] | Array) -> Federation:
        """Some of the clients, on the same flat arrays.

        >>> Federation.from_clients([{"y": [0]}, {"y": [1]}, {"y": [2]}]).subset([0, 2]).names
        ('0', '2')
        """
        index = np.asarray(clients)
        index = index.astype(np.int64) if index.dtype.kind in "iu" or not index.size else index
        if (
            index.dtype != np.int64
            or index.ndim != 1
            or len(np.unique(index)) < len(index)
            or not np.isin(index, np.arange(self.clients)).all()
        ):
            raise FedaxError(f"clients is {clients!r}: it must name clients from 0 to {self.clients - 1}, none twice")
        return replace(
            self,
            train=self.train.take(index),
            validation=self.validation.take(index),
            test=self.test.take(index),
            names=tuple(self.names[i] for i in index),
        )

    def __repr__(self) -> str:
        arrays = ", ".join(f"{k} {a.dtype}{list(a.shape[1:])}" for k, a in self.arrays.items())
        sizes = ((part, self.part(part).count.min(), self.part(part).count.max()) for part in PARTS)
        ranges = ", ".join(f"{part} {low}" + (f"-{high}" if high > low else "") for part, low, high in sizes)
        return f"Federation({self.clients} clients, {self.rows} rows of {arrays}; rows a client: {ranges})"

    def plot(self) -> Any:
        """A plotly figure of who holds what: the labels client by client, above the numbers of rows."""
        from fedax.data.heterogeneity import heterogeneity
        from fedax.data.plot import figure

        return figure(heterogeneity(self))

    def _repr_html_(self) -> str:
        """The arrays, and each part's rows a client, for a notebook."""
        rows: list[tuple[object, ...]] = [("clients", self.clients), ("rows", self.rows)]
        rows += [(key, f"{array.dtype} {list(array.shape[1:])}") for key, array in self.arrays.items()]
        for part in PARTS:
            count = self.part(part).count
            rows.append((f"{part} rows a client", f"{count.min()} to {count.max()}, median {np.median(count):g}"))
        return notebook.table(str(self.info.get("dataset", "Federation")), rows)


def arrange(
    arrays: dict[str, Array],
    blocks: Sequence[Array],
    *,
    split: Split | None,
    seed: int,
    names: tuple[str, ...] = (),
) -> Federation:
    """The federation whose client i owns the rows `blocks[i]`, made contiguous as train, validation, test.

    Arrays whose rows already lie in that order are not copied.

    >>> x = np.array([10, 11, 12, 13])
    >>> arrange({"x": x}, [np.array([3, 0]), np.array([1, 2])], split=None, seed=0).arrays["x"]
    array([13, 10, 11, 12])
    """
    ordered, counts = split_blocks(arrays.get("y"), blocks, split, seed)
    if split is not None:
        _say_who_is_too_small(counts, split, names)
    order = np.concatenate(ordered)
    rows = len(next(iter(arrays.values())))
    if not np.array_equal(order, np.arange(rows)):
        arrays = {key: in_order(array, order) for key, array in arrays.items()}
    starts = (np.cumsum(counts) - counts.ravel()).reshape(counts.shape)
    train, validation, test = (Rows(starts[:, p], counts[:, p]) for p in range(len(PARTS)))
    return Federation(arrays, train, validation, test, names)


def _say_who_is_too_small(counts: Array, split: Split, names: tuple[str, ...]) -> None:
    """Log which clients have too few rows for every part that the split asks for, and what the first one gets."""
    wanted = np.array([share > 0 for share in split])
    small = np.flatnonzero((counts[:, wanted] == 0).any(axis=1))
    if not len(small):
        return
    first = int(small[0])
    gets = ", ".join(f"{count} for {part}" for part, count in zip(PARTS, counts[first].tolist(), strict=True))
    name = repr(names[first]) if names else first
    others = f"; {len(small) - 1} more clients likewise" if len(small) > 1 else ""
    log.warning("client %s has too few rows for the split %s: it gets %s%s", name, tuple(split), gets, others)
