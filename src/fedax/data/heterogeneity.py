"""How much the clients of a federation differ: sizes, labels and first gradients.

Every client counts once, whatever its size:

- total variation: the mean over clients of 1/2 sum_c |p_i(c) - p(c)|, where p_i is client i's distribution of labels
  and p the mean of all p_i; 0 for clients alike, 1 - 1/N for N clients with labels of their own;
- zeta: sqrt(mean_i ||grad f_i(0) - grad f(0)||^2) for multinomial logistic regression with an intercept, at zero
  weights, on the training rows; f is the mean of the f_i.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedax.data.checks import Array
from fedax.data.splits import PARTS, is_label


class Ranges(Protocol):
    """Where each client's rows start and how many there are, as `Rows` has them."""

    @property
    def start(self) -> NDArray[np.int64]: ...

    @property
    def count(self) -> NDArray[np.int64]: ...

    def of(self, i: int) -> slice: ...


class DividedData(Protocol):
    """The part of a federation that this module uses; `fedax.data.federation` imports this module, not the reverse."""

    @property
    def arrays(self) -> dict[str, Array]: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def info(self) -> dict[str, Any]: ...

    @property
    def train(self) -> Ranges: ...

    def part(self, name: str) -> Ranges: ...

    def label_counts(self) -> NDArray[np.int64]: ...


@dataclass(frozen=True)
class Heterogeneity:
    """A federation in numbers, before any training: plain numbers and lists, as JSON has them.

    names : the clients'
    rows : rows for training, validation and testing, client by client
    label_counts : rows of each label, client by client; None where there are no labels
    total_variation, zeta : see the module; None where there are no labels, or no features
    title : the dataset and the partition

    >>> from fedax.data import Federation
    >>> federation = Federation.from_clients([{"y": [0, 0]}, {"y": [1, 1]}])
    >>> seen = heterogeneity(federation)
    >>> seen.label_counts, seen.total_variation
    ([[2, 0], [0, 2]], 0.5)
    >>> Heterogeneity.read(seen.json()) == seen
    True
    """

    names: list[str]
    rows: list[list[int]]
    label_counts: list[list[int]] | None
    total_variation: float | None
    zeta: float | None
    title: str = ""

    @property
    def sizes(self) -> NDArray[np.int64]:
        """All rows of each client."""
        return np.asarray(np.sum(self.rows, axis=1), np.int64)

    @property
    def shares(self) -> NDArray[np.float64]:
        """Each client's distribution of labels; no columns where there are no labels."""
        counts = np.array(self.label_counts) if self.label_counts is not None else np.zeros((len(self.names), 0))
        share: NDArray[np.float64] = counts / self.sizes[:, None]
        return share

    def sentences(self) -> list[str]:
        """The numbers, in words.

        >>> from fedax.data import Federation
        >>> for line in heterogeneity(Federation.from_clients([{"y": [0, 0]}, {"y": [1, 1]}])).sentences():
        ...     print(line)
        2 clients, 4 rows: 2 a client, median 2
        2 labels, 1 a client
        mean total variation to the average client's labels 0.500
        """
        sizes = self.sizes
        lines = [
            f"{len(sizes):,} clients, {sizes.sum():,} rows: {_range(sizes)} a client, median {np.median(sizes):,g}"
        ]
        if self.label_counts is None:
            return [*lines, "no labels: sizes only"]
        held = (np.array(self.label_counts) > 0).sum(axis=1)
        lines.append(f"{len(self.label_counts[0])} labels, {_range(held)} a client")
        lines.append(f"mean total variation to the average client's labels {self.total_variation:.3f}")
        if self.zeta is not None:
            lines.append(f"gradient diversity zeta {self.zeta:.4g} (logistic regression at zero weights)")
        return lines

    def json(self) -> dict[str, Any]:
        """As a dictionary for JSON."""
        return asdict(self)

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Heterogeneity:
        """From such a dictionary."""
        return cls(**told)


def heterogeneity(federation: DividedData) -> Heterogeneity:
    """Describe a federation in numbers, before any training.

    >>> from fedax.data import Dirichlet, load
    >>> few, many = (heterogeneity(load("digits", partition=Dirichlet(10, alpha))) for alpha in (100.0, 0.1))
    >>> few.total_variation < many.total_variation, few.zeta < many.zeta
    (True, True)
    """
    y, x = federation.arrays.get("y"), federation.arrays.get("x")
    counts = federation.label_counts() if y is not None and is_label(y) and y.min() >= 0 else None
    info = federation.info
    title = ", ".join(str(info[key]) for key in ("dataset", "partition") if info.get(key))
    return Heterogeneity(
        names=list(federation.names),
        rows=np.column_stack([federation.part(part).count for part in PARTS]).tolist(),
        label_counts=None if counts is None else counts.tolist(),
        total_variation=None if counts is None else total_variation(counts),
        zeta=None if counts is None or x is None else gradient_diversity(x, np.asarray(y), federation.train),
        title=title,
    )


def total_variation(counts: Array) -> float:
    """The mean over clients of the total variation between their labels and the average client's.

    >>> total_variation(np.eye(4)), total_variation(np.ones((3, 4)))
    (0.75, 0.0)
    """
    share = counts / counts.sum(axis=1, keepdims=True)
    return float(abs(share - share.mean(axis=0)).sum(axis=1).mean() / 2)


def gradient_diversity(x: Array, y: Array, rows: Ranges) -> float:
    """zeta of multinomial logistic regression at zero weights.

    There the softmax is uniform over the C labels, so that the gradient for label c is

        mean over rows of (1/C - [y = c]) (x, 1).

    >>> from fedax.data import Rows
    >>> x, y = np.array([[2.0], [2.0]]), np.array([0, 1])
    >>> round(gradient_diversity(x, y, Rows([0, 1], [1, 1])) ** 2, 9)  # each is 1/2 (x, 1) off, for two labels
    2.5
    """
    classes = int(y.max()) + 1
    seen: dict[tuple[int, int], Array] = {}
    gradients = []
    for i, place in enumerate(zip(rows.start.tolist(), rows.count.tolist(), strict=True)):
        if place not in seen:  # clients may share their rows
            mine = x[rows.of(i)].reshape(place[1], -1).astype(np.float64) / (255 if x.dtype == np.uint8 else 1)
            residual = 1 / classes - np.eye(classes)[y[rows.of(i)]]
            seen[place] = residual.T @ np.column_stack([mine, np.ones(len(mine))]) / len(mine)
        gradients.append(seen[place])
    mean = sum(gradients) / len(gradients)
    return float(np.sqrt(np.mean([((gradient - mean) ** 2).sum() for gradient in gradients])))


def _range(numbers: np.ndarray[Any, Any]) -> str:
    low, high = int(numbers.min()), int(numbers.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
