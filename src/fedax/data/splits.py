"""The division of rows into train, validation and test, client by client.

A client's split is a function of (seed, client number) and of its own labels alone, so that it stays the
same whatever the other clients hold.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedax.data.checks import Array, Split

PARTS = ("train", "validation", "test")
_PURPOSE = 0x5711


def is_label(y: Array | None) -> bool:
    """Whether y holds one integer class a row.

    >>> is_label(np.array([0, 2, 1])), is_label(np.array([0.5, 1.5])), is_label(None)
    (True, False, False)
    """
    return y is not None and y.ndim == 1 and y.dtype.kind in "biu"


def split_rows(y: Array | None, rows: int, split: Split, rng: np.random.Generator) -> NDArray[np.int64]:
    """The part of each row: 0 train, 1 validation, 2 test.

    Rows are stratified by y where it is a label. Within each class the counts are rounded by largest
    remainder, and what rounding took from a part is carried on to the next class: a class keeps its shares
    to within one row, and many small classes do not all round the same way. Where training would get no row,
    one is moved to it.

    >>> part = split_rows(np.repeat([0, 1], 10), 20, (0.7, 0.1, 0.2), np.random.default_rng(0))
    >>> np.bincount(part[:10]), np.bincount(part[10:])
    (array([7, 1, 2]), array([7, 1, 2]))
    """
    fractions = np.asarray(split) / sum(split)
    part = np.zeros(rows, np.int64)
    carried = np.zeros(3)
    for members in _strata(y, rows, rng):
        # Rounded so that 0.29 * 100 is 29, and so that ties do not depend on the last bit.
        quota = np.round(fractions * len(members), 9)
        count = np.floor(quota).astype(np.int64)
        claim = np.where(fractions > 0, np.round(quota - count + carried, 9), -np.inf)
        count[np.argsort(-claim, kind="stable")[: len(members) - count.sum()]] += 1
        carried += quota - count
        part[members] = np.repeat(np.arange(3), count)
    if not (part == 0).any():
        largest = np.bincount(part).argmax()
        part[rng.choice(np.flatnonzero(part == largest))] = 0
    return part


def split_blocks(
    y: Array | None, blocks: Sequence[Array], split: Split | None, seed: int
) -> tuple[list[Array], NDArray[np.int64]]:
    """Each client's row numbers in the order train, validation, test, and the [clients, 3] counts.

    >>> blocks, counts = split_blocks(None, [np.arange(4), np.arange(4, 14)], (0.5, 0.0, 0.5), seed=0)
    >>> counts.tolist()
    [[2, 0, 2], [5, 0, 5]]
    """
    counts = np.zeros((len(blocks), 3), np.int64)
    if split is None:
        counts[:, 0] = [len(block) for block in blocks]
        return list(blocks), counts
    labels = y if is_label(y) else None
    ordered = []
    for i, block in enumerate(blocks):
        rng = np.random.default_rng([seed, _PURPOSE, i])
        part = split_rows(None if labels is None else labels[block], len(block), split, rng)
        ordered.append(block[np.argsort(part, kind="stable")])
        counts[i] = np.bincount(part, minlength=3)
    return ordered, counts


def _strata(y: Array | None, rows: int, rng: np.random.Generator) -> list[Array]:
    """Row numbers class by class, both in random order; one stratum where there are no labels."""
    shuffled = rng.permutation(rows)
    if y is None:
        return [shuffled]
    _, code, size = np.unique(y, return_inverse=True, return_counts=True)
    by_class = shuffled[np.argsort(code[shuffled], kind="stable")]
    strata = np.split(by_class, np.cumsum(size)[:-1])
    return [strata[c] for c in rng.permutation(len(strata))]
