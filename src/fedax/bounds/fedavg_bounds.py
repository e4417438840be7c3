"""FedAvg: Propositions 2.1 and 3.2, Theorems 2.19, 2.22, 2.23 and 3.4 of the thesis, and Table 2.1.

The theorems' O() has its constants in the proofs: each function gives the last display before the step size is chosen,
at the step size that the proof chooses or at the one given.
"""

from __future__ import annotations

import math

from fedax.bounds.base import Bound, Need, counts, not_negative, over, positive, rate, strong_convexity

CONVEX = (
    "every client's F_m is convex and L-smooth (Assumption 2.1)",
    "a stochastic gradient's variance is at most sigma^2 everywhere (Assumption 2.1c)",
    "all clients take part in every round",
)
ALIKE = "all clients draw from the same distribution (Assumption 2.2)"
FOURTH = "a stochastic gradient's fourth central moment is at most sigma^4 (Assumption 2.5b)"
NEEDS: tuple[Need, ...] = ("convex", "everyone", "smooth")
STATIONARY: tuple[Need, ...] = ("alike", "everyone", "smooth")


def proposition_2_1(
    *,
    L: float,
    B: float,
    sigma: float,
    M: float,
    K: float,
    R: float,
    zeta: float = 0.0,
    lr: float | None = None,
) -> Bound:
    """FedAvg on a convex problem: the mean over all steps of E F(mean of the clients) - F*.

    >>> found = proposition_2_1(L=1.0, B=1.0, sigma=1.0, M=16, K=8, R=100)
    >>> found.dominant, round(found.lr, 4)
    ('noise between averagings', 0.0539)
    """
    positive(L=L, B=B)
    not_negative(sigma=sigma, zeta=zeta)
    counts(M=M, K=K, R=R)
    chosen = min(
        over(M**0.5 * B, (K * R) ** 0.5 * sigma),
        over(B ** (2 / 3), (K**2 * R * L * sigma**2) ** (1 / 3)),
        over(B ** (2 / 3), (K**3 * R * L * zeta**2) ** (1 / 3)),
    )
    lr = rate(lr, chosen, 1 / (4 * L), "1/(4L)")
    terms = {
        "distance to go": B**2 / (2 * lr * K * R),
        "noise": lr * sigma**2 / M,
        "noise between averagings": 4 * K * lr**2 * L * sigma**2,
        "heterogeneity": 18 * K**2 * lr**2 * L * zeta**2,
    }
    apart = "no client's gradient is farther than zeta from the mean one, anywhere (Assumption 2.3)"
    return Bound("Proposition 2.1", "mean over steps of E F - F*", terms, lr, (*CONVEX, apart), NEEDS)


def theorem_2_19(
    *, L: float, Q: float, B: float, sigma: float, M: float, K: float, R: float, lr: float | None = None
) -> Bound:
    """FedAvg on a convex problem with a Q-Lipschitz Hessian: E F - F* at the weighted mean of all steps.

    The proof's lemma 2.20 needs lr <= 1/(4L), which the step size printed with 1/(2L) does not give; here it is 1/(4L).

    >>> theorem_2_19(L=1.0, Q=0.0, B=1.0, sigma=1.0, M=16, K=8, R=100).terms["bias between averagings"]
    0.0
    """
    positive(L=L, B=B)
    not_negative(sigma=sigma, Q=Q)
    counts(M=M, K=K, R=R)
    chosen = min(
        over(M**0.5 * B, (K * R) ** 0.5 * sigma),
        over(B ** (1 / 3), (K**2 * R * Q * sigma**2) ** (1 / 3)),
    )
    lr = rate(lr, chosen, 1 / (4 * L), "1/(4L)")
    terms = {
        "distance to go": 3 * B**2 / (lr * K * R),
        "noise": lr * sigma**2 / M,
        "bias between averagings": 96 * lr**5 * Q**2 * K**3 * R * sigma**4,
    }
    assumed = (*CONVEX, ALIKE, "F's Hessian is Q-Lipschitz", FOURTH)
    return Bound("Theorem 2.19", "E F - F*", terms, lr, assumed, (*NEEDS, "alike"))


def theorem_2_22(
    *, L: float, Delta: float, G: float, sigma: float, M: float, K: float, R: float, lr: float | None = None
) -> Bound:
    """FedAvg on a smooth problem, convex or not: E ||grad F||^2 at a step drawn at random.

    The proof's last display has L lr sigma^2 / M; the line above it gives twice that, as in Theorem 2.23.

    >>> theorem_2_22(L=1.0, Delta=1.0, G=1.0, sigma=1.0, M=float("inf"), K=8, R=100).terms["noise"]
    0.0
    """
    _non_convex(L=L, Delta=Delta, G=G, sigma=sigma, M=M, K=K, R=R)
    chosen = min(_speedup(L, Delta, sigma, M, K * R), over(Delta ** (1 / 3), K * (R * L**2 * G**2) ** (1 / 3)))
    lr = rate(lr, chosen, 1 / L, "1/L")
    terms = _stationary(L, Delta, sigma, M, K * R, lr) | {"movement between averagings": 8 * (L * lr * G * K) ** 2}
    return Bound("Theorem 2.22", "E ||grad F||^2", terms, lr, _assumed(), STATIONARY)


def theorem_2_23(
    *, L: float, Q: float, Delta: float, G: float, sigma: float, M: float, K: float, R: float, lr: float | None = None
) -> Bound:
    """As Theorem 2.22, for a Q-Lipschitz Hessian.

    >>> theorem_2_23(L=1.0, Q=0.0, Delta=1.0, G=1.0, sigma=1.0, M=16, K=9, R=99).terms["movement between averagings"]
    0.0
    """
    _non_convex(L=L, Delta=Delta, G=G, sigma=sigma, M=M, K=K, R=R)
    not_negative(Q=Q)
    chosen = min(_speedup(L, Delta, sigma, M, K * R), over(Delta**0.2, K * (R * Q**2 * G**4) ** 0.2))
    lr = rate(lr, chosen, 1 / L, "1/L")
    terms = _stationary(L, Delta, sigma, M, K * R, lr) | {"movement between averagings": 8 * Q**2 * (lr * G * K) ** 4}
    assumed = (*_assumed(), "F's Hessian is Q-Lipschitz", FOURTH)
    return Bound("Theorem 2.23", "E ||grad F||^2", terms, lr, assumed, STATIONARY)


def _non_convex(*, L: float, Delta: float, G: float, sigma: float, M: float, K: float, R: float) -> None:
    positive(L=L, Delta=Delta, G=G)
    not_negative(sigma=sigma)
    counts(M=M, K=K, R=R)


def _speedup(L: float, Delta: float, sigma: float, M: float, T: float) -> float:
    return over((M * Delta) ** 0.5, sigma * (L * T) ** 0.5)


def _stationary(L: float, Delta: float, sigma: float, M: float, T: float, lr: float) -> dict[str, float]:
    return {"height to go": 2 * Delta / (lr * T), "noise": 2 * L * lr * sigma**2 / M}


def _assumed() -> tuple[str, ...]:
    return (
        "F is L-smooth, and no stochastic gradient is longer than G (Assumption 2.6)",
        "a stochastic gradient's variance is at most sigma^2 everywhere",
        ALIKE,
        "all clients take part in every round",
    )


def proposition_3_2(
    *, mu: float, L: float, B: float, sigma: float, M: float, K: float, R: float, lr: float | None = None
) -> Bound:
    """FedAvg on a strongly convex problem: E F - F* at the mean of all steps with weights (1 - lr mu)^(K R - t - 1).

    The thesis prints no constants. These follow from the one-step inequality behind Proposition 2.1: strong convexity
    puts (1 - lr mu) before the old distance, 2 lr E(F - F*) <= (1 - lr mu) d_t - d_(t+1) + 2 lr (...), and the weighted
    sum leaves (mu/2) B^2 / ((1 - lr mu)^-(K R) - 1) of the start, which is B^2 / (2 lr K R) for mu to 0.

    >>> proposition_3_2(mu=0.1, L=1.0, B=1.0, sigma=1.0, M=16, K=8, R=100).dominant
    'noise between averagings'
    """
    strong_convexity(mu, L, "Proposition 3.2")
    positive(L=L, B=B)
    not_negative(sigma=sigma)
    counts(M=M, K=K, R=R)
    gain = min(over(M * (mu * K * R * B) ** 2, sigma**2), over(mu**3 * K**2 * R**3 * B**2, L * sigma**2))
    lr = rate(lr, math.log(math.e + gain) / (mu * K * R), 1 / (4 * L), "1/(4L)")
    grown = -K * R * math.log1p(-lr * mu)
    terms = {
        "distance to go": mu / 2 * B**2 * math.exp(-grown) / -math.expm1(-grown),
        "noise": lr * sigma**2 / M,
        "noise between averagings": 4 * K * lr**2 * L * sigma**2,
    }
    assumed = (*CONVEX, ALIKE, "F is mu-strongly convex")
    at = "E F - F* at the weighted mean of all steps"
    return Bound("Proposition 3.2", at, terms, lr, assumed, (*NEEDS, "alike"))


def theorem_3_4(
    *, mu: float, L: float, Q: float, B: float, sigma: float, M: float, K: float, R: float, lr: float | None = None
) -> Bound:
    """FedAvg on a strongly convex problem with a Q-Lipschitz Hessian (Theorem B.18, eq. B.33): E F - F*.

    >>> theorem_3_4(mu=0.1, L=1.0, Q=0.0, B=1.0, sigma=1.0, M=16, K=8, R=100).dominant
    'noise'
    """
    strong_convexity(mu, L, "Theorem 3.4")
    positive(L=L, B=B)
    not_negative(sigma=sigma, Q=Q)
    counts(M=M, K=K, R=R)
    gain = min(over(M * (mu * K * R * B) ** 2, sigma**2), over(mu**6 * K**3 * R**5 * B**2, Q**2 * sigma**4))
    lr = rate(lr, 2 / (mu * K * R) * math.log(math.e + gain), 1 / (4 * L), "1/(4L)")
    terms = {
        "distance to go": B**2 / lr * math.exp(-lr * mu * K * R / 2),
        "noise": lr * sigma**2 / M,
        "bias between averagings": 192 * lr**4 * Q**2 * K**2 * sigma**4 / mu,
    }
    assumed = (*CONVEX, ALIKE, "F is mu-strongly convex", "F's Hessian is Q-Lipschitz", FOURTH)
    return Bound("Theorem 3.4", "E F - F* at the weighted mean of all steps", terms, lr, assumed, (*NEEDS, "alike"))


def table_2_1(
    *, L: float, B: float, sigma: float, M: float, K: float, R: float, zeta: float = 0.0, zeta_star: float = 0.0
) -> dict[str, float]:
    """FedAvg's rates, every constant set to 1: the upper bound, the lower one that matches it, and the old lower one.

    zeta is the heterogeneity everywhere, zeta_star at the optimum (the upper and the lower bound differ in it).
    The old lower bound's second term has K^(2/3), as the text of section 2.1.1 says; the table prints K^(1/3).

    >>> rates = table_2_1(L=1.0, B=1.0, sigma=1.0, M=16, K=8, R=100)
    >>> rates["upper"] == rates["lower"] > rates["old lower"]
    True
    """
    positive(L=L, B=B)
    not_negative(sigma=sigma, zeta=zeta, zeta_star=zeta_star)
    counts(M=M, K=K, R=R)
    common = L * B**2 / (K * R) + sigma * B / (M * K * R) ** 0.5

    def cubic(spread: float, steps: float) -> float:
        return float((L * spread**2 * B**4 / (steps * R**2)) ** (1 / 3))

    return {
        "upper": common + cubic(sigma, K) + cubic(zeta, 1),
        "lower": common + cubic(sigma, K) + cubic(zeta_star, 1),
        "old lower": sigma * B / (M * K * R) ** 0.5 + cubic(sigma, K**2) + min(L * B**2 / R, cubic(zeta_star, 1)),
    }
