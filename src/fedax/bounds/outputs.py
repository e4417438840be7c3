"""The outputs that the thesis' bounds are about: weights of the models along a run, which sum to 1.

A weight belongs to the mean over clients of their models after k steps of round r, k = 0 .. K-1. The last model, which
a run gives, is another point; FedDualAvg alone has its theorem's output as an option (`average`, eq. 4.9).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedax.bounds.base import counts, positive
from fedax.errors import FedaxError

Weights = np.ndarray[Any, np.dtype[np.float64]]


def weights_2_19(*, K: int, R: int) -> Weights:
    """Theorem 2.19: (1 + 1/(K R))^-(r K + k + 1), as an array [R, K]; earlier models weigh more, by at most e.

    >>> found = weights_2_19(K=2, R=3)
    >>> found.shape, round(float(found.sum()), 12), bool(found[0, 0] > found[-1, -1])
    ((3, 2), 1.0, True)
    """
    counts(K=K, R=R)
    return _normalised((1 + 1 / (K * R)) ** -np.arange(1.0, K * R + 1), R)


def weights_b_18(*, lr: float, mu: float, K: int, R: int) -> Weights:
    """Theorem B.18 (and 3.4): (1 - lr mu / 2)^(K R - (r K + k) - 1), as an array [R, K]; later models weigh more.

    >>> found = weights_b_18(lr=0.1, mu=0.5, K=2, R=3)
    >>> round(float(found[0, 0] / found[0, 1]), 6)
    0.975
    """
    return _geometric(1 - lr * mu / 2, lr, mu, K, R)


def weights_3_2(*, lr: float, mu: float, K: int, R: int) -> Weights:
    """Proposition 3.2: (1 - lr mu)^(K R - (r K + k) - 1), of the models after each step, as an array [R, K].

    >>> found = weights_3_2(lr=0.1, mu=0.5, K=2, R=3)
    >>> round(float(found[0, 0] / found[0, 1]), 6)
    0.95
    """
    return _geometric(1 - lr * mu, lr, mu, K, R)


def weights_c_13(*, R: int) -> Weights:
    """Theorem C.13 (and 4.3): the rounds' models r = 1 .. R alike, as an array [R]; the start is not among them.

    >>> weights_c_13(R=4).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    counts(R=R)
    return np.full(R, 1 / R)


def _geometric(factor: float, lr: float, mu: float, K: int, R: int) -> Weights:
    positive(lr=lr, mu=mu)
    counts(K=K, R=R)
    if factor <= 0:
        raise FedaxError(f"lr must be below 1/mu = {1 / mu:.6g}, not {lr}")
    return _normalised(factor ** np.arange(K * R - 1.0, -1, -1), R)


def _normalised(raw: Weights, rounds: int) -> Weights:
    found: Weights = (raw / raw.sum()).reshape(rounds, -1)
    return found
