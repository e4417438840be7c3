"""Bounds of SGD's iterate bias, ||E x_SGD - z_GD|| after k steps: Theorems A.1, A.4, A.7 and A.9 of the thesis.

Upper bounds hold from every start, lower ones for an instance that the theorem builds, from its optimum.
`fedax.papers.theory.iterate_bias` measures what they bound.
"""

from __future__ import annotations

from fedax.bounds.base import not_negative, positive, rate
from fedax.errors import FedaxError


def theorem_a_1(*, lr: float, k: int, L: float, sigma: float) -> float:
    """The most that the bias can be on a convex, L-smooth F, for lr <= 1/L.

    >>> theorem_a_1(lr=0.01, k=4, L=1.0, sigma=1.0)
    0.0032
    """
    _check(lr, k, L, sigma, 1 / L, "1/L")
    return float(min(4 * lr**2 * k**1.5 * L * sigma, lr * k**0.5 * sigma))


def theorem_a_4(*, lr: float, k: int, L: float, sigma: float) -> float:
    """The least that it is on (L/2) psi, psi = x^2 right of 0 and x^2/2 left of it, for lr <= 1/(2L).

    For k = 1 there is no bias, and the print's "k <= K" is k in [2, K], as in Theorem 2.7.

    >>> theorem_a_4(lr=0.01, k=4, L=1.0, sigma=1.0) < theorem_a_1(lr=0.01, k=4, L=1.0, sigma=1.0)
    True
    """
    _check(lr, k, L, sigma, 1 / (2 * L), "1/(2L)")
    if k < 2:
        return 0.0
    return float(0.002 * min(lr**2 * k**1.5 * L * sigma, (lr / L) ** 0.5 * sigma))


def theorem_a_7(*, lr: float, k: int, L: float, Q: float, sigma: float) -> float:
    """As Theorem A.1, for a Q-Lipschitz Hessian and a fourth central moment of at most sigma^4.

    >>> theorem_a_7(lr=0.01, k=4, L=1.0, Q=0.0, sigma=1.0)
    0.0
    """
    not_negative(Q=Q)
    return min(lr**3 * k**2 * Q * sigma**2 / 4, theorem_a_1(lr=lr, k=k, L=L, sigma=sigma))


def theorem_a_9(*, lr: float, k: int, K: int, L: float, Q: float, sigma: float) -> float:
    """The least that it is on the thesis' smooth instance, for k < K, Q <= L^2 / (12 K sigma) and lr <= 1/(2L).

    >>> theorem_a_9(lr=0.01, k=1, K=8, L=1.0, Q=0.01, sigma=1.0)
    0.0
    """
    _check(lr, k, L, sigma, 1 / (2 * L), "1/(2L)")
    not_negative(Q=Q)
    if k >= K:
        raise FedaxError(f"k must be below K = {K}, not {k}")
    if sigma > 0 and L**2 / (12 * K * sigma) * (1 + 1e-9) < Q:
        raise FedaxError(f"Q must be at most L^2 / (12 K sigma) = {L**2 / (12 * K * sigma):.6g}, not {Q}")
    return 0.005 * lr**3 * sigma**2 * Q * min((k - 1) / (lr * L), k * (k - 1))


def _check(lr: float, k: int, L: float, sigma: float, limit: float, words: str) -> None:
    positive(lr=lr, L=L)
    not_negative(sigma=sigma)
    if k < 1:
        raise FedaxError(f"k must be at least 1, not {k}")
    rate(lr, lr, limit, words)
