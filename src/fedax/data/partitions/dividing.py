"""The random draws and exact roundings that partitions are made of."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from fedax.data.checks import Array


def apportion(total: int, shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """`total` rows in whole numbers proportional to `shares`, which sum to 1, by largest remainder.

    >>> apportion(10, np.array([0.55, 0.25, 0.2]))
    array([6, 2, 2])
    """
    quota = total * shares
    count = np.floor(quota).astype(np.int64)
    count[np.argsort(count - quota, kind="stable")[: total - count.sum()]] += 1
    return count


def dirichlet(alpha: float, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """One draw from Dir(alpha, ..., alpha), also where alpha is so small that Gamma(alpha) underflows.

    Gamma(alpha) has the law of Gamma(alpha + 1) * U^(1 / alpha), which is drawn as a logarithm. Beyond the
    limits on alpha the draw is, to within float precision, one client takes all or equal shares.

    >>> dirichlet(1e-6, 3, np.random.default_rng(0)).max()
    np.float64(1.0)
    """
    alpha = min(max(float(alpha), 1e-12), 1e12)
    log_gamma = np.log(rng.standard_gamma(alpha + 1, size)) - rng.standard_exponential(size) / alpha
    gamma = np.exp(log_gamma - log_gamma.max())
    shares: NDArray[np.float64] = gamma / gamma.sum()
    return shares


def group(owner: Array, groups: int, rng: np.random.Generator) -> list[Array]:
    """The row numbers of each owner 0, 1, ..., in random order; rows with owner -1 are left out.

    >>> [sorted(rows.tolist()) for rows in group(np.array([1, 0, -1, 1]), 2, np.random.default_rng(0))]
    [[1], [0, 3]]
    """
    order = rng.permutation(len(owner))
    order = order[owner[order] >= 0]
    order = order[np.argsort(owner[order], kind="stable")]
    size = np.bincount(owner[order], minlength=groups)
    return np.split(order, np.cumsum(size)[:-1])


def spread(total: int, capacity: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """`total` places over labels, as evenly as each label's capacity allows; odd ones go to labels at random.

    >>> spread(9, np.array([1, 5, 5]), np.random.default_rng(0))
    array([1, 4, 4])
    """
    places = np.zeros_like(capacity)
    while (left := total - int(places.sum())) > 0:
        open_labels = np.flatnonzero(places < capacity)
        if left < len(open_labels):
            places[rng.choice(open_labels, left, replace=False)] += 1
        else:
            places = np.minimum(places + left // len(open_labels), capacity)
    return places


def deal_labels(places: NDArray[np.int64], clients: int, labels: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """A random [clients, labels] table in which each client holds `labels` labels and label l has places[l].

    No place is above `clients`, and they sum to `clients * labels`. So among the r clients still to serve, at
    most `labels` labels have r places left; who takes those first can never get stuck.

    >>> deal_labels(np.array([3, 2, 1]), 3, 2, np.random.default_rng(0)).sum(axis=1)
    array([2, 2, 2])
    """
    left = places.copy()
    held = np.zeros((clients, len(places)), np.bool_)
    for i in range(clients):
        # The first arrivals of exponential clocks with rates `left` are a weighted draw without replacement.
        clock = np.full(len(left), np.inf)
        np.divide(rng.standard_exponential(len(left)), left, out=clock, where=left > 0)
        clock[left == clients - i] = -1.0
        chosen = np.argsort(clock, kind="stable")[:labels]
        held[i, chosen] = True
        left[chosen] -= 1
    return held[rng.permutation(clients)]


def fill_up(blocks: list[Array], min_rows: int, rng: np.random.Generator) -> list[Array]:
    """Blocks of at least `min_rows` rows each, the missing rows taken one by one from the largest block.

    >>> blocks = fill_up([np.arange(6), np.arange(6, 8), np.arange(0)], 2, np.random.default_rng(0))
    >>> [len(block) for block in blocks]
    [4, 2, 2]
    """
    size = np.array([len(block) for block in blocks])
    missing = np.maximum(min_rows - size, 0)
    taken = np.zeros_like(size)
    largest = [(-int(n), i) for i, n in enumerate(size)]
    heapq.heapify(largest)
    for _ in range(missing.sum()):
        negative, i = largest[0]
        heapq.heapreplace(largest, (negative + 1, i))
        taken[i] += 1
    freed = [block[len(block) - n :] for block, n in zip(blocks, taken, strict=True)]
    moved = np.split(rng.permutation(np.concatenate(freed)), np.cumsum(missing)[:-1])
    kept = [block[: len(block) - n] for block, n in zip(blocks, taken, strict=True)]
    return [np.concatenate(pair) for pair in zip(kept, moved, strict=True)]


def draw_rows(
    shares: NDArray[np.float64], sizes: NDArray[np.int64], stock: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Rows of each label for each client, [clients, labels]: `sizes[i]` for client i, `stock[l]` of label l in all.

    In each pass all clients draw the rows that they lack, each by its own shares of the labels that are left. If a
    label has fewer rows than clients want, they go to a random part of the wishes and the label is used up: so there
    is at most one pass more than there are labels.

    >>> shares = np.array([[1.0, 0.0], [0.9, 0.1]])
    >>> draw_rows(shares, np.array([3, 3]), np.array([3, 3]), np.random.default_rng(0)).sum(axis=0).tolist()
    [3, 3]
    """
    count = np.zeros(shares.shape, np.int64)
    left = stock.copy()
    while (count.sum(axis=1) < sizes).any():
        open_shares = np.where(left > 0, shares, 0.0)
        # A client with no share in any label that is left takes rows of all of them.
        open_shares[open_shares.sum(axis=1) == 0] = left
        open_shares /= open_shares.sum(axis=1, keepdims=True)
        asked = rng.multinomial(sizes - count.sum(axis=1), open_shares)
        for label in np.flatnonzero(asked.sum(axis=0) > left):
            asked[:, label] = rng.multivariate_hypergeometric(asked[:, label], left[label], method="marginals")
        count += asked
        left -= asked.sum(axis=0)
    return count


def meet(held: NDArray[np.bool_], size: NDArray[np.int64], need: int) -> NDArray[np.int64] | None:
    """Rows of each label for each client: `need` in all, at least one of each label that it holds, or None.

    A client's labels get equal numbers where that takes no more than the `size[l]` rows of a label; otherwise a
    maximum flow from clients to labels finds numbers, if there are any. `need` is at least the labels a client holds.

    >>> held = np.array([[True, True], [True, True]])
    >>> meet(held, np.array([4, 9]), 4).tolist(), meet(held, np.array([3, 9]), 4).sum(axis=1).tolist()
    ([[2, 2], [2, 2]], [4, 4])
    >>> meet(held, np.array([3, 4]), 4) is None
    True
    """
    labels = held.sum(axis=1, keepdims=True)
    count = np.where(held, need // labels + (np.cumsum(held, axis=1) <= need % labels), 0)
    if (count.sum(axis=0) <= size).all():
        return count
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    clients, kinds = held.shape
    capacity = np.zeros((clients + kinds + 2,) * 2, np.int32)
    source, sink = clients + kinds, clients + kinds + 1
    capacity[source, :clients] = need - labels[:, 0]
    capacity[:clients, clients:source] = held * need
    capacity[clients:source, sink] = size - held.sum(axis=0)
    found = maximum_flow(csr_array(capacity), source, sink)
    if found.flow_value < capacity[source].sum():
        return None
    flow: NDArray[np.int64] = held + found.flow.toarray()[:clients, clients:source].astype(np.int64)
    return flow


def take_more(
    count: NDArray[np.int64],
    held: NDArray[np.bool_],
    size: NDArray[np.int64],
    wanted: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Counts raised, client after client in random order, to `wanted` rows each or as far as their labels have rows.

    >>> held = np.array([[True, True]])
    >>> take_more(np.array([[1, 1]]), held, np.array([3, 9]), np.array([12]), np.random.default_rng(0)).tolist()
    [[3, 9]]
    """
    count = count.copy()
    spare = size - count.sum(axis=0)
    for i in rng.permutation(len(count)):
        there = np.where(held[i], spare, 0)
        extra = min(int(wanted[i] - count[i].sum()), int(there.sum()))
        if extra > 0:
            more = apportion(extra, there / there.sum())
            count[i] += more
            spare -= more
    return count
