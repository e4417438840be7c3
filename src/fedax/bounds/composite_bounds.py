"""FedDualAvg and FedMiD: Theorems 4.3, 4.4 and 4.7 of the thesis, with the constants of their full versions.

Here B^2 = D_h(x*, x0), the Bregman divergence of the mirror map: for the Euclidean one half the squared distance.
Phi = F + psi. sigma, zeta and G are measured in the dual norm.
"""

from __future__ import annotations

from fedax.bounds.base import Bound, Need, counts, not_negative, over, positive, rate

ASSUMED = (
    "psi is closed and convex, the mirror map 1-strongly convex (Assumption 4.1a, b)",
    "f(.; xi) is convex and L-smooth for every xi (Assumption 4.1c)",
    "a stochastic gradient's variance is at most sigma^2 (Assumption 4.1d)",
    "all clients take part in every round (Assumption 4.1e)",
)
NEEDS: tuple[Need, ...] = ("convex", "everyone")
AVERAGED = "E Phi - Phi* at the mean of all steps' models"


def theorem_4_3(*, L: float, B: float, sigma: float, M: float, K: float, R: float, lr: float | None = None) -> Bound:
    """FedDualAvg (and FedMiD) with a small client rate (Theorem C.13): E Phi - Phi* at the mean of the rounds' models.

    lr is the product of the client's and the server's rate. How small the client's must be the theorem does not say.

    >>> theorem_4_3(L=1.0, B=1.0, sigma=0.0, M=4, K=5, R=10).total
    0.4
    """
    _check(L, B, sigma, M, K, R)
    lr = rate(lr, over(B * M**0.5, (K * R) ** 0.5 * sigma), 1 / (4 * K * L), "1/(4KL)")
    terms = {"distance to go": B**2 / (lr * K * R), "noise": 3 * lr * sigma**2 / M}
    small = "the client's rate is small enough, and the server's makes up for it"
    return Bound("Theorem 4.3", "E Phi - Phi* at the mean of the rounds' models", terms, lr, (*ASSUMED, small), NEEDS)


def theorem_4_4(
    *, L: float, B: float, sigma: float, G: float, M: float, K: float, R: float, lr: float | None = None
) -> Bound:
    """FedDualAvg, server rate 1, bounded gradients (Theorem C.11): E Phi - Phi* at the mean of all steps (eq. 4.9).

    >>> theorem_4_4(L=1.0, B=1.0, sigma=1.0, G=2.0, M=4, K=1, R=10).terms["movement between averagings"]
    0.0
    """
    _check(L, B, sigma, M, K, R)
    not_negative(G=G)
    chosen = min(
        over(M**0.5 * B, sigma * (K * R) ** 0.5),
        over(B ** (2 / 3), K * (L * R * G**2) ** (1 / 3)),
    )
    lr = rate(lr, chosen, 1 / (4 * L), "1/(4L)")
    terms = _synchronised(B, sigma, M, K * R, lr) | {"movement between averagings": 4 * L * (lr * (K - 1) * G) ** 2}
    bounded = "no stochastic gradient on psi's domain is longer than G"
    return Bound("Theorem 4.4", AVERAGED, terms, lr, (*ASSUMED, bounded, "server_lr = 1"), NEEDS)


def theorem_4_7(
    *, L: float, B: float, sigma: float, M: float, K: float, R: float, zeta: float = 0.0, lr: float | None = None
) -> Bound:
    """FedDualAvg, server rate 1, quadratic F (Lemmas 4.9 and 4.11): E Phi - Phi* at the mean of all steps (eq. 4.9).

    The norm is that of A / ||A||, A the Hessian of F, so L = ||A|| and sigma, zeta are lengths in its dual.
    Eq. 4.12 prints the bound of ||grad F_m - grad F|| as zeta^2; it is zeta, as in Assumption 2.3.

    >>> theorem_4_7(L=1.0, B=1.0, sigma=1.0, M=4, K=4, R=10).terms["heterogeneity"]
    0.0
    """
    _check(L, B, sigma, M, K, R)
    not_negative(zeta=zeta)
    chosen = min(
        over(M**0.5 * B, sigma * (K * R) ** 0.5),
        over(B ** (2 / 3), (L * K**2 * R * sigma**2) ** (1 / 3)),
        over(B ** (2 / 3), (L * K**3 * R * zeta**2) ** (1 / 3)),
    )
    lr = rate(lr, chosen, 1 / (4 * L), "1/(4L)")
    terms = _synchronised(B, sigma, M, K * R, lr) | {
        "noise between averagings": 7 * lr**2 * L * K * sigma**2,
        "heterogeneity": 14 * lr**2 * L * K**2 * zeta**2,
    }
    quadratic = "F is quadratic, and no client's gradient is farther than zeta from the mean one (Assumption 4.2)"
    return Bound("Theorem 4.7", AVERAGED, terms, lr, (*ASSUMED, quadratic, "server_lr = 1"), NEEDS)


def _check(L: float, B: float, sigma: float, M: float, K: float, R: float) -> None:
    positive(L=L, B=B)
    not_negative(sigma=sigma)
    counts(M=M, K=K, R=R)


def _synchronised(B: float, sigma: float, M: float, T: float, lr: float) -> dict[str, float]:
    return {"distance to go": B**2 / (lr * T), "noise": lr * sigma**2 / M}
