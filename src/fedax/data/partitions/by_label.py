"""Partitions by label: which labels a client sees, and how many rows of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedax.data.checks import Array, check_count
from fedax.data.partitions.base import ByDirichlet, Partition, check_alpha, check_min_rows
from fedax.data.partitions.dividing import (
    apportion,
    deal_labels,
    dirichlet,
    draw_rows,
    fill_up,
    group,
    meet,
    spread,
    take_more,
)
from fedax.data.splits import is_label
from fedax.errors import FedaxError


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

    def check(self, arrays: Mapping[str, Array], rows: int) -> None:
        super().check(arrays, rows)
        _check_pairs(self, self.labels, np.bincount(label_codes(arrays, self)))

    def assign(self, arrays: Mapping[str, Array], rows: int, rng: np.random.Generator) -> list[Array]:
        code = label_codes(arrays, self)
        held = _hold(np.bincount(code), self.clients, self.labels, rng)
        owner = np.full(rows, -1)
        for label, members in enumerate(group(code, held.shape[1], rng)):
            holders = np.flatnonzero(held[:, label])
            if not len(holders):
                continue
            shares = rng.uniform(0.5, 1.5, len(holders))
            count = 1 + apportion(len(members) - len(holders), shares / shares.sum())
            owner[members] = np.repeat(holders, count)
        return group(owner, self.clients, rng)


@dataclass(frozen=True)
class LabelGroups(Partition):
    """Each client holds one of a few fixed groups of labels, the same groups for every seed.

    N labels make G = N / `labels` groups, of which group g has the labels g, g + G, g + 2 G and so on: of ten digits
    (0, 5), (1, 6), (2, 7), (3, 8) and (4, 9). So does the program that Deng, Kamani and Mahdavi published with APFL.
    Clients are dealt to groups at random, evenly to within one, and share a label's rows evenly to within one row.
    With fewer clients than groups, some labels have no holder and their rows are left out.

    Parameters
    ----------
    clients : at least 1
    labels : a divisor of the number of labels; default 2
    rows : the number of rows that a client keeps, equally many of each label; default all

    >>> counts = LabelGroups(5, labels=2).divide({"y": np.arange(100) % 10}).label_counts()
    >>> sorted(np.flatnonzero(row).tolist() for row in counts)
    [[0, 5], [1, 6], [2, 7], [3, 8], [4, 9]]
    """

    labels: int = 2
    rows: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("labels", self.labels, 1)
        if self.rows is not None:
            check_count("rows", self.rows, self.labels)

    def check(self, arrays: Mapping[str, Array], rows: int) -> None:
        super().check(arrays, rows)
        sizes = np.bincount(label_codes(arrays, self))
        if len(sizes) % self.labels:
            raise FedaxError(f"labels is {self.labels}: it must divide the data's {len(sizes)} labels")
        sharing = -(-self.clients // (len(sizes) // self.labels))
        if sizes.min() < sharing * (each := self._each or 1):
            raise FedaxError(
                f"clients is {self.clients}: {sharing} of them share a label with {each} rows each, and the rarest "
                f"label has {sizes.min()}"
            )

    @property
    def _each(self) -> int | None:
        """Rows of each label that a client keeps, or None for all of its share."""
        return None if self.rows is None else self.rows // self.labels

    def assign(self, arrays: Mapping[str, Array], rows: int, rng: np.random.Generator) -> list[Array]:
        code = label_codes(arrays, self)
        count = int(code.max()) + 1
        groups = count // self.labels
        own = rng.permutation(np.arange(self.clients) % groups)
        owner = np.full(rows, -1)
        for label, members in enumerate(group(code, count, rng)):
            holders = np.flatnonzero(own == label % groups)
            if len(holders):
                some = members if self._each is None else members[: self._each * len(holders)]
                owner[some] = np.resize(rng.permutation(holders), len(some))
        return group(owner, self.clients, rng)


@dataclass(frozen=True)
class Shards(Partition):
    """Rows sorted by label, cut into `clients * per_client` shards; each client gets `per_client` of them.

    McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", section 3.
    Shards are equal to within one row, and are dealt at random.

    Parameters
    ----------
    clients : at least 1
    per_client : shards a client, at least 1; default 2

    >>> counts = Shards(5, per_client=2).divide({"y": np.arange(100) % 10}).label_counts()
    >>> (counts > 0).sum(axis=1), counts.sum(axis=1)
    (array([2, 2, 2, 2, 2]), array([20, 20, 20, 20, 20]))
    """

    per_client: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("per_client", self.per_client, 1)

    def check(self, arrays: Mapping[str, Array], rows: int) -> None:
        super().check(arrays, rows)
        label_codes(arrays, self)
        if self.clients * self.per_client > rows:
            raise FedaxError(
                f"clients * per_client is {self.clients * self.per_client}: there must be at most as many shards as "
                f"rows, {rows}"
            )

    def assign(self, arrays: Mapping[str, Array], rows: int, rng: np.random.Generator) -> list[Array]:
        by_label = np.argsort(label_codes(arrays, self), kind="stable")
        shards = np.array_split(by_label, self.clients * self.per_client)
        dealt = rng.permutation(len(shards)).reshape(self.clients, self.per_client)
        return [np.concatenate([shards[s] for s in mine]) for mine in dealt]


@dataclass(frozen=True)
class Dirichlet(ByDirichlet):
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

    def check(self, arrays: Mapping[str, Array], rows: int) -> None:
        super().check(arrays, rows)
        label_codes(arrays, self)

    def assign(self, arrays: Mapping[str, Array], rows: int, rng: np.random.Generator) -> list[Array]:
        code = label_codes(arrays, self)
        owner = np.empty(rows, np.int64)
        for members in group(code, code.max() + 1, rng):
            count = apportion(len(members), dirichlet(self.alpha, self.clients, rng))
            owner[members] = np.repeat(np.arange(self.clients), count)
        return fill_up(group(owner, self.clients, rng), self.min_rows, rng)


@dataclass(frozen=True)
class DirichletLabels(Partition):
    """Clients of equal size, each with shares of the labels that are one draw from Dir(alpha, ..., alpha).

    Hsu et al., "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification";
    FedSpeed's experiments. Hsu et al. write Dir(a p) with p the labels' shares of the data: for N labels that are
    equally frequent, `alpha` is a / N. Sizes are equal to within one row. Rows are drawn without replacement; when a
    label has run out, clients that still want rows of it draw from the labels that are left, by their own shares.

    Parameters
    ----------
    clients : at least 1
    alpha : finite and above 0; with a small one most clients hold one label, a large one is close to even shares
    rows : the number of rows that a client gets, at least 1; default all rows, equal to within one

    >>> counts = DirichletLabels(4, alpha=0.3).divide({"y": np.arange(100) % 10}).label_counts()
    >>> counts.sum(axis=1), counts.sum(axis=0)
    (array([25, 25, 25, 25]), array([10, 10, 10, 10, 10, 10, 10, 10, 10, 10]))
    """

    alpha: float
    rows: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_alpha(self.alpha)
        if self.rows is not None:
            check_count("rows", self.rows, 1)

    def check(self, arrays: Mapping[str, Array], rows: int) -> None:
        super().check(arrays, rows)
        label_codes(arrays, self)
        most = rows // self.clients
        if self.rows is not None and self.rows > most:
            raise FedaxError(
                f"rows is {self.rows}: it must be at most {most}, for {rows} rows and {self.clients} clients"
            )

    def assign(self, arrays: Mapping[str, Array], rows: int, rng: np.random.Generator) -> list[Array]:
        code = label_codes(arrays, self)
        stock = np.bincount(code)
        shares = np.array([dirichlet(self.alpha, len(stock), rng) for _ in range(self.clients)])
        dealt = rows if self.rows is None else self.rows * self.clients
        sizes = rng.permutation(dealt // self.clients + (np.arange(self.clients) < dealt % self.clients))
        count = draw_rows(shares, sizes, stock, rng)
        owner = np.full(rows, -1)
        for label, members in enumerate(group(code, len(stock), rng)):
            owner[members[: count[:, label].sum()]] = np.repeat(np.arange(self.clients), count[:, label])
        return group(owner, self.clients, rng)


@dataclass(frozen=True)
class Pathological(Partition):
    """Each client holds exactly `labels` labels and from `min_rows` to `max_rows` rows; other rows are left out.

    The defaults are those of the pFedFBE paper, section 4.3, on MNIST with 20 clients. Labels are spread over the
    clients as evenly as possible. A client's size is drawn uniformly from the range. If its labels have fewer rows
    left, it gets these, at least `min_rows`.

    Parameters
    ----------
    clients : at least 1
    labels : from 1 to the number of labels; default 2
    min_rows : at least `labels`; default 1165
    max_rows : at least `min_rows`; default 3834

    >>> rule = Pathological(5, labels=2, min_rows=8, max_rows=16)
    >>> counts = rule.divide({"y": np.arange(100) % 10}).label_counts()
    >>> bool((counts.sum(axis=1) >= 8).all()), bool((counts.sum(axis=1) <= 16).all()), (counts > 0).sum(axis=1)
    (True, True, array([2, 2, 2, 2, 2]))
    """

    labels: int = 2
    min_rows: int = 1165
    max_rows: int = 3834

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("labels", self.labels, 1)
        check_count("min_rows", self.min_rows, self.labels)
        check_count("max_rows", self.max_rows, self.min_rows)

    def check(self, arrays: Mapping[str, Array], rows: int) -> None:
        super().check(arrays, rows)
        _check_pairs(self, self.labels, np.bincount(label_codes(arrays, self)))
        check_min_rows(self.min_rows, self.clients, rows)

    def assign(self, arrays: Mapping[str, Array], rows: int, rng: np.random.Generator) -> list[Array]:
        code = label_codes(arrays, self)
        size = np.bincount(code)
        held = _hold(size, self.clients, self.labels, rng)
        wanted = rng.integers(self.min_rows, self.max_rows, self.clients, endpoint=True)
        least = meet(held, size, self.min_rows)
        if least is None:
            raise FedaxError(
                f"min_rows is {self.min_rows}: with {self.labels} labels a client, the rarest of {size.min()} rows, "
                f"the data do not have that many for each of {self.clients} clients"
            )
        count = take_more(least, held, size, wanted, rng)
        owner = np.full(rows, -1)
        for label, members in enumerate(group(code, len(size), rng)):
            owner[members[: count[:, label].sum()]] = np.repeat(np.arange(self.clients), count[:, label])
        return group(owner, self.clients, rng)


def label_codes(arrays: Mapping[str, Array], needed_by: Partition) -> NDArray[np.int64]:
    """The labels numbered 0, 1, ... in ascending order; there must be two or more.

    >>> label_codes({"y": np.array([7, 3, 7])}, ByLabel(1))
    array([1, 0, 1])
    """
    y = arrays.get("y")
    if y is None:
        raise FedaxError(f"{needed_by!r} divides rows by their labels: the dataset has no array 'y'")
    if not is_label(y):
        raise FedaxError(
            f"{needed_by!r} divides rows by their labels: 'y' has dtype {y.dtype} and shape {y.shape}, "
            "it must be one integer a row"
        )
    labels, code = np.unique(y, return_inverse=True)
    if len(labels) == 1:
        raise FedaxError(
            f"{needed_by!r} divides rows by their labels: all {len(y)} rows have the label {labels[0]}, there must be "
            "at least 2 labels"
        )
    return np.asarray(code, np.int64)


def _check_pairs(rule: Partition, labels: int, sizes: NDArray[np.int64]) -> None:
    if labels > len(sizes):
        raise FedaxError(f"labels is {labels}: the data have {len(sizes)} labels")
    pairs, possible = rule.clients * labels, int(np.minimum(sizes, rule.clients).sum())
    if pairs > possible:
        raise FedaxError(
            f"clients * labels is {pairs}: with at least one row for each label of each client the data "
            f"allow at most {possible}"
        )


def _hold(sizes: NDArray[np.int64], clients: int, labels: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which labels each client holds: [clients, labels of the data]."""
    places = spread(clients * labels, np.minimum(sizes, clients), rng)
    return deal_labels(places, clients, labels, rng)
