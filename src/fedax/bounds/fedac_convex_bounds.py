"""FedAc-II on convex problems: Theorems B.22 and B.23 of the thesis, by an anchor (weight/2) ||x - x0||^2.

Each function gives the last display before the weight and the rate are chosen, eq. B.55 and B.57, at the theorem's
choice of both. The theorems' closed forms, which follow from these, are the functions that end in `_rate`.
"""

from __future__ import annotations

import math

from fedax.bounds.base import Bound, counts, not_negative, over, positive
from fedax.bounds.fedac_bounds import ASSUMED, NEEDS

CONVEX = tuple(words.replace("mu-strongly convex", "convex") for words in ASSUMED)
LONG = "K R >= 1000"


def theorem_b_22(*, L: float, B: float, sigma: float, M: float, K: float, R: float) -> tuple[Bound, float]:
    """FedAc-II on F + (weight/2) ||x - x0||^2 for a convex F (eq. B.55); also the weight.

    The theorem assumes Assumption 3.2 in print; its title, its lemma B.27 and the proof have Assumption 3.1.

    >>> found, weight = theorem_b_22(L=1.0, B=1.0, sigma=0.1, M=16, K=8, R=200)
    >>> 0 < weight < 1, found.lr <= 1 / (1 + weight)
    (True, True)
    """
    _check(L, B, sigma, M, K, R)
    weight = max(sigma / ((M * K * R) ** 0.5 * B), (L * sigma / B) ** 0.5 / (K**0.25 * R), _least(L, K, R))
    gain = min(over(weight * L * M * K * R * B**2, sigma**2), over(weight**3 * K * R**4 * B**2, L * sigma**2))
    lr = min(
        1 / (L + weight),
        9 / (weight * K * R**2) * math.log(math.e + gain) ** 2,
        over((L * B**2) ** (1 / 3), (weight * K * R * sigma) ** (2 / 3)),
    )
    terms = {
        **_common(L, B, sigma, M, K, R, weight, lr),
        "noise between averagings": 200 * lr**2 * K * sigma**2 * (L**2 / weight + weight),
    }
    return Bound("Theorem B.22", "E F(x_ag) - F*", terms, lr, (*CONVEX, LONG), NEEDS), weight


def theorem_b_22_rate(*, L: float, B: float, sigma: float, M: float, K: float, R: float) -> float:
    """Theorem B.22's closed form, an upper bound of `theorem_b_22` for K R >= 1000.

    >>> theorem_b_22_rate(L=1.0, B=1.0, sigma=0.0, M=1, K=10, R=100) < theorem_b_22_rate(
    ...     L=1.0, B=1.0, sigma=0.1, M=1, K=10, R=100
    ... )
    True
    """
    _check(L, B, sigma, M, K, R)
    deterministic = 10 * _height(L, B, K, R)
    if sigma == 0:
        return deterministic
    parallel = (M * K * R) ** 0.5
    local = (L * sigma * B**3) ** 0.5 / (K**0.25 * R)
    return float(
        deterministic
        + 5 * sigma * B / parallel * math.log(math.e + L * parallel * B / sigma)
        + 16411 * local * math.log(math.e**4 + (L * B / sigma) ** 0.5 * K**0.25 * R) ** 4
    )


def theorem_b_23(*, L: float, Q: float, B: float, sigma: float, M: float, K: float, R: float) -> tuple[Bound, float]:
    """As Theorem B.22, for a Q-Lipschitz Hessian (eq. B.57); also the weight.

    >>> theorem_b_23(L=1.0, Q=0.0, B=1.0, sigma=0.1, M=16, K=8, R=200)[0].terms["bias between averagings"]
    0.0
    """
    _check(L, B, sigma, M, K, R)
    not_negative(Q=Q)
    weight = max(
        sigma / ((M * K * R) ** 0.5 * B),
        (L * sigma**2 / (M * K * B**2)) ** (1 / 3) / R,
        (Q * sigma**2 / (K * B)) ** (1 / 3) / R ** (4 / 3),
        _least(L, K, R),
    )
    gain = min(
        over(weight * L * M * K * R * B**2, sigma**2),
        over(weight**2 * M * K * R**3 * B**2, sigma**2),
        over(weight**5 * L * K**2 * R**8 * B**2, Q**2 * sigma**4),
    )
    lr = min(
        1 / (L + weight),
        9 / (weight * K * R**2) * math.log(math.e + gain) ** 2,
        over((L * M * B**2) ** (1 / 3), (weight * K * sigma) ** (2 / 3) * R),
    )
    terms = _common(L, B, sigma, M, K, R, weight, lr)
    terms["noise"] += 2 * lr**1.5 * (L + weight) * (K / weight) ** 0.5 * sigma**2 / M
    terms["bias between averagings"] = math.exp(9) * lr**4 * Q**2 * K**2 * sigma**4 / weight
    further = ("F's Hessian is Q-Lipschitz", "a stochastic gradient's fourth central moment is at most sigma^4")
    return Bound("Theorem B.23", "E F(x_ag) - F*", terms, lr, (*CONVEX, *further, LONG), NEEDS), weight


def theorem_b_23_rate(*, L: float, Q: float, B: float, sigma: float, M: float, K: float, R: float) -> float:
    """Theorem B.23's closed form, an upper bound of `theorem_b_23` for K R >= 1000.

    >>> theorem_b_23_rate(L=1.0, Q=1.0, B=1.0, sigma=0.1, M=1, K=10, R=100) > theorem_b_23_rate(
    ...     L=1.0, Q=0.0, B=1.0, sigma=0.1, M=1, K=10, R=100
    ... )
    True
    """
    _check(L, B, sigma, M, K, R)
    not_negative(Q=Q)
    found = 10 * _height(L, B, K, R)
    if sigma == 0:
        return float(found)
    parallel = (M * K * R) ** 0.5
    found += 5 * sigma * B / parallel * math.log(math.e + L * parallel * B / sigma)
    local = (L * sigma**2 * B**4 / (M * K)) ** (1 / 3) / R
    found += 139 * local * math.log(math.e**3 + (L**2 * M * K * B**2 / sigma**2) ** (1 / 3) * R) ** 3
    if Q:
        bent = (Q * sigma**2 * B**5 / K) ** (1 / 3) / R ** (4 / 3)
        inside = L * (K * B / (Q * sigma**2)) ** (1 / 3) * R ** (4 / 3)
        found += math.exp(19) * bent * math.log(math.e**8 + inside) ** 8
    return float(found)


def _check(L: float, B: float, sigma: float, M: float, K: float, R: float) -> None:
    positive(L=L, B=B)
    not_negative(sigma=sigma)
    counts(M=M, K=K, R=R)


def _height(L: float, B: float, K: float, R: float) -> float:
    return L * B**2 / (K * R**2) * math.log(math.e**2 + K * R**2) ** 2


def _least(L: float, K: float, R: float) -> float:
    return 18 * L / (K * R**2) * math.log(math.e**2 + K * R**2) ** 2


def _common(
    L: float, B: float, sigma: float, M: float, K: float, R: float, weight: float, lr: float
) -> dict[str, float]:
    return {
        "weight of the anchor": weight * B**2 / 2,
        "distance to go": L * B**2 / 2 * math.exp(-((lr * weight * K) ** 0.5) * R / 3),
        "noise": (lr / (weight * K)) ** 0.5 * sigma**2 / M,
    }
