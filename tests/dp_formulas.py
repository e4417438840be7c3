"""The accountant written out: a second opinion on `fedax.privacy.accounting`.

"fixed" are cohorts without replacement, neighbours by replacement; "poisson" is the figure that is usually published.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from scipy.special import gammaln, logsumexp

from fedax.errors import unknown

Cohorts = Literal["fixed", "poisson"]
ORDERS: tuple[int, ...] = (*range(2, 65), *range(68, 257, 4), *range(272, 1025, 16))


def epsilon(rounds: int, rate: float, multiplier: float, delta: float, cohorts: Cohorts = "fixed") -> float:
    """The least epsilon of (epsilon, delta) after some rounds, over the orders looked at.

    rate: the part of the clients that takes part in a round, in (0, 1]. multiplier: z, above 0.

    >>> epsilon(1, 1.0, 10.0, 1e-5, "poisson") < epsilon(2, 1.0, 10.0, 1e-5, "poisson")
    True
    """
    if rounds == 0:
        return 0.0
    divergences: dict[str, Callable[[int, float, float], float]] = {"fixed": renyi_fixed, "poisson": renyi_poisson}
    if cohorts not in divergences:
        raise unknown("cohorts", cohorts, divergences)
    divergence = divergences[cohorts]
    found = (
        rounds * divergence(order, rate, multiplier)
        + math.log1p(-1 / order)
        - (math.log(delta) + math.log(order)) / (order - 1)
        for order in ORDERS
    )
    return max(0.0, min(found))


def renyi_poisson(order: int, rate: float, multiplier: float) -> float:
    """The Renyi divergence of one round at an integer order; Mironov, Talwar and Zhang (2019), section 3.3.

    >>> renyi_poisson(8, 1.0, 2.0)  # everybody takes part: alpha / (2 z^2)
    1.0
    """
    if rate == 1.0:
        return order / (2 * multiplier**2)
    k = np.arange(order + 1)
    terms = _binomial(order, k) + (order - k) * math.log1p(-rate) + k * math.log(rate)
    return max(0.0, float(logsumexp(terms + (k * k - k) / (2 * multiplier**2))) / (order - 1))


def renyi_fixed(order: int, rate: float, multiplier: float) -> float:
    """A bound on it for cohorts without replacement; Wang, Balle and Kasiviswanathan (2019), Theorem 9.

    >>> renyi_fixed(8, 1.0, 2.0)  # everybody takes part, and a replaced client moves the sum by 2 S: 2 alpha / z^2
    4.0
    """
    whole = 2 * order / multiplier**2
    if rate == 1.0:
        return whole
    second = 4 / multiplier**2  # the divergence of the whole at order 2
    first = min(math.log(4) + _log_expm1(second), math.log(2) + second)
    terms = [0.0, 2 * math.log(rate) + float(_binomial(order, np.array(2))) + first]
    j = np.arange(3, order + 1)
    terms += list(j * math.log(rate) + _binomial(order, j) + (j - 1) * 2 * j / multiplier**2 + math.log(2))
    return min(whole, float(logsumexp(terms)) / (order - 1))


def _binomial(n: int, k: np.ndarray[Any, Any]) -> Any:
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)


def _log_expm1(value: float) -> float:
    return value + math.log(-math.expm1(-value))
