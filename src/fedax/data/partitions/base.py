"""A partition, the rule that divides one dataset's rows among clients, and the partitions that use no labels."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedax.data.checks import Array, Split, check_arrays, check_count, check_split
from fedax.data.federation import Federation, arrange
from fedax.data.partitions.dividing import apportion, dirichlet, fill_up
from fedax.data.splits import PARTS
from fedax.errors import FedaxError

_PURPOSE = 0xD171


@dataclass(frozen=True)
class Partition(ABC):
    """A rule that divides a dataset's rows among `clients` clients; subclasses define `assign`.

    >>> @dataclass(frozen=True)
    ... class RoundRobin(Partition):
    ...     def assign(self, arrays, rows, rng):
    ...         return [np.arange(i, rows, self.clients) for i in range(self.clients)]
    >>> RoundRobin(2).divide({"x": np.arange(5)}).client(1)["x"]
    array([1, 3])
    """

    clients: int

    def __post_init__(self) -> None:
        check_count("clients", self.clients, 1)

    @abstractmethod
    def assign(self, arrays: Mapping[str, Array], rows: int, rng: np.random.Generator) -> list[Array]:
        """Each client's row numbers, out of range(rows); no row twice, no client empty."""

    def check(self, arrays: Mapping[str, Array], rows: int) -> None:
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
        rows = len(next(iter(flat.values())))
        self.check(flat, rows)
        federation = self._federate(flat, rows, fractions, seed)
        return replace(federation, info={"partition": repr(self), "seed": seed, **(info or {})})

    def _federate(self, flat: dict[str, Array], rows: int, split: Split | None, seed: int) -> Federation:
        blocks = self.assign(flat, rows, np.random.default_rng([seed, _PURPOSE]))
        # Rules that take the number of clients from the data leave `clients` None.
        if len(blocks) != (self.clients or len(blocks)) or not all(len(block) for block in blocks):
            raise FedaxError(f"{self!r} left some of its {self.clients or len(blocks)} clients without rows")
        if np.bincount(np.concatenate(blocks), minlength=rows).max() > 1:
            raise FedaxError(f"{self!r} gave some of the {rows} rows to more than one client")
        return arrange(flat, blocks, split=split, seed=seed)


@dataclass(frozen=True)
class IID(Partition):
    """Rows dealt out at random, in equal numbers to within one.

    >>> IID(3).divide({"x": np.arange(10)}).train.count
    array([4, 3, 3])
    """

    def assign(self, arrays: Mapping[str, Array], rows: int, rng: np.random.Generator) -> list[Array]:
        return np.array_split(rng.permutation(rows), self.clients)


@dataclass(frozen=True)
class ByDirichlet(Partition):
    """A partition by draws from a Dirichlet distribution, after which clients are filled up to `min_rows`."""

    alpha: float
    min_rows: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_alpha(self.alpha)
        check_count("min_rows", self.min_rows, 1)

    def check(self, arrays: Mapping[str, Array], rows: int) -> None:
        super().check(arrays, rows)
        check_min_rows(self.min_rows, self.clients, rows)


@dataclass(frozen=True)
class DirichletSize(ByDirichlet):
    """Rows dealt out at random, in numbers proportional to one draw from Dir(alpha, ..., alpha).

    The clients differ in size alone. Those that the draw leaves below `min_rows` are filled up from the
    largest.

    Parameters
    ----------
    clients : at least 1
    alpha : finite and above 0; the larger, the more equal
    min_rows : at least 1; default 1

    >>> federation = DirichletSize(4, alpha=0.5, min_rows=5).divide({"x": np.arange(100)})
    >>> federation.train.count.sum(), federation.train.count.min() >= 5
    (np.int64(100), np.True_)
    """

    def assign(self, arrays: Mapping[str, Array], rows: int, rng: np.random.Generator) -> list[Array]:
        count = apportion(rows, dirichlet(self.alpha, self.clients, rng))
        return fill_up(np.split(rng.permutation(rows), np.cumsum(count)[:-1]), self.min_rows, rng)


@dataclass(frozen=True)
class Homogeneous(Partition):
    """All clients share all rows, without copies: the same function on every client.

    With a split, the rows are split once and all clients share the same three ranges.

    >>> federation = Homogeneous(1000).divide({"x": np.arange(8)})
    >>> np.shares_memory(federation.client(0)["x"], federation.client(999)["x"])
    True
    """

    def check(self, arrays: Mapping[str, Array], rows: int) -> None:
        """Any data will do."""

    def assign(self, arrays: Mapping[str, Array], rows: int, rng: np.random.Generator) -> list[Array]:
        return [np.arange(rows)] * self.clients

    def _federate(self, flat: dict[str, Array], rows: int, split: Split | None, seed: int) -> Federation:
        one = arrange(flat, [np.arange(rows)], split=split, seed=seed)
        first = np.zeros(self.clients, np.int64)
        train, validation, test = (one.part(part).take(first) for part in PARTS)
        return Federation(one.arrays, train, validation, test)


def check_number(field: str, value: object, minimum: float) -> None:
    """A finite number of at least `minimum`.

    >>> check_number("noise", 0.5, 0)
    """
    if not _finite(value) or value < minimum:  # type: ignore[operator]
        allowed = "a finite number" if minimum == -math.inf else f"a finite number of at least {minimum}"
        raise FedaxError(f"{field} is {value!r}: it must be {allowed}")


def check_alpha(alpha: object) -> None:
    """A finite number above 0.

    >>> check_alpha(0.3)
    """
    if not _finite(alpha) or alpha <= 0:  # type: ignore[operator]
        raise FedaxError(f"alpha is {alpha!r}: it must be a finite number above 0")


def check_min_rows(min_rows: int, clients: int, rows: int) -> None:
    """Raise unless there are `min_rows` rows for each client.

    >>> check_min_rows(3, clients=2, rows=6)
    """
    if min_rows * clients > rows:
        raise FedaxError(
            f"min_rows is {min_rows}: it must be at most {rows // clients}, for {rows} rows and {clients} clients"
        )


def _finite(value: object) -> bool:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return number and math.isfinite(value)  # type: ignore[arg-type]
