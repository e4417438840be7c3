"""Partitions: how one dataset is divided among clients.

`IID`, `ByLabel` and `Dirichlet` give a row to at most one client; with `Homogeneous` all clients share all
rows. A partition is a function of its parameters, the labels and the seed alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedax.data.checks import Array, Split, check_arrays, check_count, check_split
from fedax.data.draws import apportion, deal_labels, dirichlet, fill_up, group, spread
from fedax.data.federation import Federation, arrange
from fedax.data.splits import PARTS, is_label
from fedax.errors import FedaxError, unknown

_PURPOSE = 0xD171


@dataclass(frozen=True)
class Partition(ABC):
    """A rule that divides a dataset's rows among `clients` clients; subclasses define `assign`.

    >>> @dataclass(frozen=True)
    ... class RoundRobin(Partition):
    ...     def assign(self, y, rows, rng):
    ...         return [np.arange(i, rows, self.clients) for i in range(self.clients)]
    >>> RoundRobin(2).divide({"x": np.arange(5)}).client(1)["x"]
    array([1, 3])
    """

    clients: int

    def __post_init__(self) -> None:
        check_count("clients", self.clients, 1)

    @abstractmethod
    def assign(self, y: Array | None, rows: int, rng: np.random.Generator) -> list[Array]:
        """Each client's row numbers, out of range(rows); no row twice, no client empty."""

    def check(self, y: Array | None, rows: int) -> None:
        """Raise if the data cannot be divided this way."""
        if self.clients > rows:
            raise FedaxError(f"clients is {self.clients}: it must be at most the number of rows, {rows}")

    def divide(
        self,
        arrays: Mapping[str, Any],
        *,
        split: Sequence[float] | None = None,
        seed: int = 0,
        info: Mapping[str, Any] | None = None,
    ) -> Federation:
        """The federation of the divided rows; `split` and `seed` as in `Federation.from_clients`."""
        fractions, seed = check_split(split), check_count("seed", seed, 0)
        flat = check_arrays(arrays, "the dataset")
        y, rows = flat.get("y"), len(next(iter(flat.values())))
        self.check(y, rows)
        federation = self._federate(flat, y, rows, fractions, seed)
        return replace(federation, info={"partition": repr(self), "seed": seed, **(info or {})})

    def _federate(
        self, flat: dict[str, Array], y: Array | None, rows: int, split: Split | None, seed: int
    ) -> Federation:
        blocks = self.assign(y, rows, np.random.default_rng([seed, _PURPOSE]))
        if len(blocks) != self.clients or not all(len(block) for block in blocks):
            raise FedaxError(f"{self!r} left some of its {self.clients} clients without rows")
        if np.bincount(np.concatenate(blocks), minlength=rows).max() > 1:
            raise FedaxError(f"{self!r} gave some of the {rows} rows to more than one client")
        return arrange(flat, blocks, split=split, seed=seed)


@dataclass(frozen=True)
class IID(Partition):
    """Rows dealt out at random, in equal numbers to within one.

    >>> IID(3).divide({"x": np.arange(10)}).train.count
    array([4, 3, 3])
    """

    def assign(self, y: Array | None, rows: int, rng: np.random.Generator) -> list[Array]:
        return np.array_split(rng.permutation(rows), self.clients)


@dataclass(frozen=True)
class ByLabel(Partition):
    """Each client holds exactly `labels` labels, and unequal numbers of rows.

    The labels are spread over the clients as evenly as their numbers of rows allow. A label's rows go to its
    holders in shares proportional to independent draws from the uniform distribution on [0.5, 1.5], at least
    one row each. Where `clients * labels` is below the number of labels, some labels have no holder and
    their rows are left out.

    Parameters
    ----------
    clients : at least 1
    labels : from 1 to the number of labels; default 2

    >>> counts = ByLabel(5, labels=2).divide({"y": np.arange(100) % 10}).label_counts()
    >>> (counts > 0).sum(axis=1), (counts > 0).sum(axis=0)
    (array([2, 2, 2, 2, 2]), array([1, 1, 1, 1, 1, 1, 1, 1, 1, 1]))
    """

    labels: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("labels", self.labels, 1)

    def check(self, y: Array | None, rows: int) -> None:
        super().check(y, rows)
        sizes = np.bincount(_label_codes(y, self))
        if self.labels > len(sizes):
            raise FedaxError(f"labels is {self.labels}: the data have {len(sizes)} labels")
        pairs, possible = self.clients * self.labels, int(np.minimum(sizes, self.clients).sum())
        if pairs > possible:
            raise FedaxError(
                f"clients * labels is {pairs}: with at least one row for each label of each client the data "
                f"allow at most {possible}"
            )

    def assign(self, y: Array | None, rows: int, rng: np.random.Generator) -> list[Array]:
        code = _label_codes(y, self)
        capacity = np.minimum(np.bincount(code), self.clients)
        places = spread(self.clients * self.labels, capacity, rng)
        held = deal_labels(places, self.clients, self.labels, rng)
        owner = np.full(rows, -1)
        for label, members in enumerate(group(code, len(places), rng)):
            holders = np.flatnonzero(held[:, label])
            if not len(holders):
                continue
            shares = rng.uniform(0.5, 1.5, len(holders))
            count = 1 + apportion(len(members) - len(holders), shares / shares.sum())
            owner[members] = np.repeat(holders, count)
        return group(owner, self.clients, rng)


@dataclass(frozen=True)
class Dirichlet(Partition):
    """For each label, the clients' shares of its rows are one draw from Dir(alpha, ..., alpha).

    A large `alpha` is close to equal shares; with a small one each label sits with one client. Clients that
    the draw leaves below `min_rows` are filled up with random rows of the largest clients.

    Parameters
    ----------
    clients : at least 1
    alpha : finite and above 0
    min_rows : at least 1; default 1

    >>> federation = Dirichlet(4, alpha=0.1, min_rows=5).divide({"y": np.arange(100) % 10})
    >>> federation.train.count.sum(), federation.train.count.min() >= 5
    (np.int64(100), np.True_)
    """

    alpha: float
    min_rows: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        number = isinstance(self.alpha, int | float | np.number) and not isinstance(self.alpha, bool)
        if not number or not (math.isfinite(self.alpha) and self.alpha > 0):
            raise FedaxError(f"alpha is {self.alpha!r}: it must be a finite number above 0")
        check_count("min_rows", self.min_rows, 1)

    def check(self, y: Array | None, rows: int) -> None:
        super().check(y, rows)
        _label_codes(y, self)
        if self.min_rows * self.clients > rows:
            raise FedaxError(
                f"min_rows is {self.min_rows}: it must be at most {rows // self.clients}, for {rows} rows "
                f"and {self.clients} clients"
            )

    def assign(self, y: Array | None, rows: int, rng: np.random.Generator) -> list[Array]:
        code = _label_codes(y, self)
        owner = np.empty(rows, np.int64)
        for members in group(code, code.max() + 1, rng):
            count = apportion(len(members), dirichlet(self.alpha, self.clients, rng))
            owner[members] = np.repeat(np.arange(self.clients), count)
        return fill_up(group(owner, self.clients, rng), self.min_rows, rng)


@dataclass(frozen=True)
class Homogeneous(Partition):
    """All clients share all rows, without copies: the same function on every client.

    With a split, the rows are split once and all clients share the same three ranges.

    >>> federation = Homogeneous(1000).divide({"x": np.arange(8)})
    >>> np.shares_memory(federation.client(0)["x"], federation.client(999)["x"])
    True
    """

    def check(self, y: Array | None, rows: int) -> None:
        """Any data will do."""

    def assign(self, y: Array | None, rows: int, rng: np.random.Generator) -> list[Array]:
        return [np.arange(rows)] * self.clients

    def _federate(
        self, flat: dict[str, Array], y: Array | None, rows: int, split: Split | None, seed: int
    ) -> Federation:
        one = arrange(flat, [np.arange(rows)], split=split, seed=seed)
        first = np.zeros(self.clients, np.int64)
        train, validation, test = (one.part(part).take(first) for part in PARTS)
        return Federation(one.arrays, train, validation, test)


PARTITIONS: dict[str, type[Partition]] = {kind.__name__: kind for kind in (IID, ByLabel, Dirichlet, Homogeneous)}


def partition(name: str, **arguments: Any) -> Partition:
    """The partition of that name, in upper or lower case, with its arguments.

    >>> partition("dirichlet", clients=10, alpha=0.3)
    Dirichlet(clients=10, alpha=0.3, min_rows=1)
    """
    by_lower = {known.lower(): known for known in PARTITIONS}
    if str(name).lower() not in by_lower:
        raise unknown("partition", name, PARTITIONS)
    kind = PARTITIONS[by_lower[str(name).lower()]]
    known = [f.name for f in fields(kind)]
    for argument in arguments:
        if argument not in known:
            raise unknown(f"{kind.__name__} argument", argument, known)
    missing = [f.name for f in fields(kind) if f.default is MISSING and f.name not in arguments]
    if missing:
        raise FedaxError(f"{kind.__name__} is missing {', '.join(missing)}: its arguments are {', '.join(known)}")
    return kind(**arguments)


def _label_codes(y: Array | None, needed_by: Partition) -> NDArray[np.int64]:
    """The labels numbered 0, 1, ... in ascending order."""
    if y is None:
        raise FedaxError(f"{needed_by!r} divides rows by their labels: the dataset has no array 'y'")
    if not is_label(y):
        raise FedaxError(
            f"{needed_by!r} divides rows by their labels: 'y' has dtype {y.dtype} and shape {y.shape}, "
            "it must be one integer a row"
        )
    code: NDArray[np.int64] = np.unique(y, return_inverse=True)[1]
    return code
