"""FedAc: Theorems 3.1 (3.5 and B.12 in full), 3.3 (B.1), B.21, and Table 3.1 of the thesis.

Each function gives the bound of the lemma behind the theorem, which has explicit constants and holds for every lr
up to 1/L, at the theorem's own lr or at the one given. `potential` is Psi or Phi at the start: F(x0) - F* plus mu/2
(variant I) or mu/6 (variant II) times ||x0 - x*||^2.
"""

from __future__ import annotations

import math

from fedax.bounds.base import Bound, Need, counts, not_negative, over, positive, rate, strong_convexity
from fedax.errors import unknown

ASSUMED = (
    "all clients draw from the same distribution",
    "F is mu-strongly convex and L-smooth (Assumption 3.1)",
    "a stochastic gradient's variance is at most sigma^2 everywhere",
    "all clients take part in every round",
)
NEEDS: tuple[Need, ...] = ("convex", "alike", "everyone", "smooth")


def theorem_3_1(
    *,
    mu: float,
    L: float,
    sigma: float,
    potential: float,
    M: float,
    K: float,
    R: float,
    variant: str = "I",
    lr: float | None = None,
) -> Bound:
    """FedAc-I (Lemma 3.11) or FedAc-II (Lemma B.15) on a strongly convex problem: E F(x_ag) - F* and more.

    Theorem B.12 prints the sum of two quantities inside a minimum; it is their minimum, as in Theorem 3.5.

    >>> theorem_3_1(mu=0.1, L=1.0, sigma=1.0, potential=1.0, M=16, K=8, R=100).dominant
    'noise between averagings'
    """
    _check("Theorem 3.1", mu, L, sigma, potential, M, K, R)
    linear = over(mu * M * K * R * potential, sigma**2)
    if variant == "I":
        chosen = _log(min(linear, over(mu**2 * K * R**3 * potential, L * sigma**2))) ** 2 / (mu * K * R**2)
        lr = rate(lr, chosen, 1 / L, "1/L")
        terms = {
            "distance to go": math.exp(-_pull(lr, mu, K) * R) * potential,
            "noise": (lr / (mu * K)) ** 0.5 * sigma**2 / (2 * M) + lr * sigma**2 / (2 * M),
            "noise between averagings": 390 * lr**1.5 * L * (K / mu) ** 0.5 * sigma**2 + 7 * lr**2 * L * K * sigma**2,
        }
    elif variant == "II":
        chosen = 9 * _log(min(linear, over(mu**3 * K * R**4 * potential, (L * sigma) ** 2))) ** 2 / (mu * K * R**2)
        lr = rate(lr, chosen, 1 / L, "1/L")
        terms = {
            "distance to go": math.exp(-_pull(lr, mu, K) * R / 3) * potential,
            "noise": (lr / (mu * K)) ** 0.5 * sigma**2 / M,
            "noise between averagings": 100 * lr**2 * L**2 * K * sigma**2 / mu,
        }
    else:
        raise unknown("variant", variant, ("I", "II"))
    return Bound(f"Theorem 3.1({'a' if variant == 'I' else 'b'})", "E F(x_ag) - F*", terms, lr, ASSUMED, NEEDS)


def theorem_3_3(
    *,
    mu: float,
    L: float,
    Q: float,
    sigma: float,
    potential: float,
    M: float,
    K: float,
    R: float,
    lr: float | None = None,
) -> Bound:
    """FedAc-II on a strongly convex problem with a Q-Lipschitz Hessian (Lemma B.3 of Theorem B.1).

    The first minimum of Theorem B.1, too, is printed with a sum inside.

    >>> theorem_3_3(mu=0.1, L=1.0, Q=0.0, sigma=1.0, potential=1.0, M=16, K=8, R=100).terms["bias between averagings"]
    0.0
    """
    _check("Theorem 3.3", mu, L, sigma, potential, M, K, R)
    not_negative(Q=Q)
    gain = min(
        over(mu * M * K * R * potential, sigma**2),
        over(mu**2 * M * K * R**3 * potential, L * sigma**2),
        over(mu**5 * K**2 * R**8 * potential, Q**2 * sigma**4),
    )
    lr = rate(lr, 9 * _log(gain) ** 2 / (mu * K * R**2), 1 / L, "1/L")
    terms = {
        "distance to go": math.exp(-_pull(lr, mu, K) * R / 3) * potential,
        "noise": (lr / (mu * K)) ** 0.5 * sigma**2 / M + 2 * lr**1.5 * L * (K / mu) ** 0.5 * sigma**2 / M,
        "bias between averagings": math.exp(9) * lr**4 * Q**2 * K**2 * sigma**4 / mu,
    }
    further = ("F's Hessian is Q-Lipschitz", "a stochastic gradient's fourth central moment is at most sigma^4")
    return Bound("Theorem 3.3", "E F(x_ag) - F*", terms, lr, (*ASSUMED, *further), NEEDS)


def theorem_b_21(*, L: float, B: float, sigma: float, M: float, K: float, R: float) -> tuple[Bound, float]:
    """FedAc-I on F + (weight/2) ||x - x0||^2 for a convex F (eq. B.45 at the theorem's weight and lr); also the weight.

    >>> found, weight = theorem_b_21(L=1.0, B=1.0, sigma=0.1, M=16, K=8, R=100)
    >>> 0 < weight < 1, found.lr <= 1 / (1 + weight)
    (True, True)
    """
    positive(L=L, B=B)
    not_negative(sigma=sigma)
    counts(M=M, K=K, R=R)
    weight = max(
        sigma / ((M * K * R) ** 0.5 * B),
        (L * sigma**2 / (K * B**2)) ** (1 / 3) / R,
        2 * L / (K * R**2) * math.log(math.e**2 + K * R**2) ** 2,
    )
    gain = min(over(weight * L * M * K * R * B**2, sigma**2), over(weight**2 * K * R**3 * B**2, sigma**2))
    lr = min(
        1 / (L + weight),
        _log(gain) ** 2 / (weight * K * R**2),
        over((L * B**2) ** (1 / 3), (weight * K * sigma) ** (2 / 3) * R),
        over((L * B**2) ** 0.25, (weight * K) ** 0.75 * R * sigma**0.5),
    )
    both = L + weight
    terms = {
        "weight of the anchor": weight * B**2 / 2,
        "distance to go": L * B**2 / 2 * math.exp(-((lr * weight * K * R**2) ** 0.5)),
        "noise": (lr / (weight * K)) ** 0.5 * sigma**2 / (2 * M) + lr * sigma**2 / (2 * M),
        "noise between averagings": 390 * lr**1.5 * both * (K / weight) ** 0.5 * sigma**2
        + 7 * lr**2 * both * K * sigma**2,
    }
    convex = tuple(a.replace("mu-strongly convex", "convex") for a in ASSUMED)
    return Bound("Theorem B.21", "E F(x_ag) - F*", terms, lr, (*convex, "K R >= 24"), NEEDS), weight


def table_3_1(
    *, L: float, B: float, sigma: float, Q: float, M: float, K: float, R: float, mu: float = 0.0
) -> dict[tuple[str, str], float]:
    """The rates by (assumption, method), constants and logarithms set to 1, without the exponentially small term.

    mu = 0 gives the rows for convex problems. Two cells are not as printed: FedAvg under A3.2, mu > 0 has mu^5 (as in
    eq. 3.8; mu^3 has not the unit of F), FedAc under A3.2, mu = 0 has R^(4/3) in its last term (as in Theorem B.23).

    >>> rates = table_3_1(L=1.0, B=1.0, sigma=1.0, Q=1.0, M=16, K=8, R=100, mu=0.1)
    >>> rates["A3.1", "FedAc"] < rates["A3.1", "FedAvg"]
    True
    """
    positive(L=L, B=B)
    not_negative(sigma=sigma, Q=Q, mu=mu)
    counts(M=M, K=K, R=R)
    if mu:
        strong_convexity(mu, L, "Table 3.1")
        noise, local = sigma**2 / (mu * M * K * R), L * sigma**2 / (mu**2 * K)
        bent = Q**2 * sigma**4 / (mu**5 * K**2)
        return {
            ("A3.1", "FedAvg"): noise + local / R**2,
            ("A3.1", "FedAc"): noise + min(local / R**3, local * L / mu / R**4),
            ("A3.2", "FedAvg"): noise + bent / R**4,
            ("A3.2", "FedAc"): noise + bent / R**8,
        }
    noise, slow, fast = sigma * B / (M * K * R) ** 0.5, L * B**2 / (K * R), L * B**2 / (K * R**2)
    local, bent = (L * sigma**2 * B**4 / K) ** (1 / 3), (Q * sigma**2 * B**5 / K) ** (1 / 3)
    quarter = (L * sigma * B**3) ** 0.5 / K**0.25
    return {
        ("A3.1", "FedAvg"): slow + noise + local / R ** (2 / 3),
        ("A3.1", "FedAc"): fast + noise + min(local, quarter) / R,
        ("A3.2", "FedAvg"): slow + noise + bent / R ** (2 / 3),
        ("A3.2", "FedAc"): fast + noise + local / M ** (1 / 3) / R + bent / R ** (4 / 3),
    }


def _check(theorem: str, mu: float, L: float, sigma: float, potential: float, M: float, K: float, R: float) -> None:
    strong_convexity(mu, L, theorem)
    positive(L=L, potential=potential)
    not_negative(sigma=sigma)
    counts(M=M, K=K, R=R)


def _pull(lr: float, mu: float, K: float) -> float:
    """gamma mu K: the exponent a round gains."""
    return float(max(lr * mu, (lr * mu / K) ** 0.5)) * K


def _log(gain: float) -> float:
    return math.log(math.e + gain)
