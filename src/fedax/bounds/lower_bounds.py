"""The thesis' lower bounds of FedAvg, Theorems 2.8 and 2.10, whole: with every minimum, their constant set to 1.

Table 2.1 shows the case in which the minima are at their second entries. No rate, however small or large, does better
on the instances that the theorems build (eq. 2.6).
"""

from __future__ import annotations

from fedax.bounds.base import counts, not_negative, positive


def theorem_2_8(*, L: float, B: float, sigma: float, M: float, K: float, R: float) -> float:
    """Clients alike: what E F - F* of the last model cannot be below, up to a constant.

    >>> theorem_2_8(L=1.0, B=1.0, sigma=0.0, M=4, K=5, R=10)
    0.02
    """
    return theorem_2_10(L=L, B=B, sigma=sigma, zeta_star=0.0, M=M, K=K, R=R)


def theorem_2_10(*, L: float, B: float, sigma: float, zeta_star: float, M: float, K: float, R: float) -> float:
    """Clients that differ, with zeta_star^2 the mean squared gradient of a client at the optimum.

    In the proof, eq. 2.16 has (lr L K)^2, the square of eq. 2.15's entry, where lr L K is printed, and case 3.2 has
    zeta_*^2 / L where L / zeta_*^2 is printed: with these the display eq. 2.26 follows, as it stands.

    >>> theorem_2_10(L=1.0, B=1.0, sigma=1.0, zeta_star=2.0, M=4, K=5, R=10) > theorem_2_8(
    ...     L=1.0, B=1.0, sigma=1.0, M=4, K=5, R=10
    ... )
    True
    """
    positive(L=L, B=B)
    not_negative(sigma=sigma, zeta_star=zeta_star)
    counts(M=M, K=K, R=R)
    height = L * B**2
    noise = sigma * B / (M * K * R) ** 0.5
    bias = min(sigma * B / (K * R) ** 0.5, (L * sigma**2 * B**4 / (K * R**2)) ** (1 / 3))
    apart = min(zeta_star**2 / L, (L * zeta_star**2 * B**4 / R**2) ** (1 / 3))
    return float(height / (K * R) + min(height, noise + bias + apart))
