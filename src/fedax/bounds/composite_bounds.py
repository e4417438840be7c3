"""FedDualAvg and FedMiD: Theorems 4.3, 4.4 and 4.7 of the thesis, with the constants of their full versions; pFedFBE.

Here B^2 = D_h(x*, x0), the Bregman divergence of the mirror map: for the Euclidean one half the squared distance.
Phi = F + psi. sigma, zeta and G are measured in the dual norm.
"""

from __future__ import annotations

from fedax.bounds.base import Bound, Need, counts, not_negative, over, positive, rate
from fedax.errors import FedaxError

ASSUMED = (
    "psi is closed and convex, the mirror map 1-strongly convex (Assumption 4.1a, b)",
    "f(.; xi) is convex and L-smooth for every xi (Assumption 4.1c)",
    "a stochastic gradient's variance is at most sigma^2 (Assumption 4.1d)",
    "all clients take part in every round (Assumption 4.1e)",
)
NEEDS: tuple[Need, ...] = ("convex", "everyone")


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
    return Bound("Theorem 4.3", "E Phi - Phi*", terms, lr, (*ASSUMED, small), NEEDS)


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
    return Bound("Theorem 4.4", "E Phi - Phi*", terms, lr, (*ASSUMED, bounded, "server_lr = 1"), NEEDS)


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
    return Bound("Theorem 4.7", "E Phi - Phi*", terms, lr, (*ASSUMED, quadratic, "server_lr = 1"), NEEDS)


def _check(L: float, B: float, sigma: float, M: float, K: float, R: float) -> None:
    positive(L=L, B=B)
    not_negative(sigma=sigma)
    counts(M=M, K=K, R=R)


def _synchronised(B: float, sigma: float, M: float, T: float, lr: float) -> dict[str, float]:
    return {"distance to go": B**2 / (lr * T), "noise": lr * sigma**2 / M}


def pfedfbe_theorem_1(
    *,
    lam: float,
    L: float,
    Delta: float,
    N: int,
    S: int,
    K: float,
    R: float,
    rho: float = 0.0,
    gradient: float = 0.0,
    sigma_G: float = 0.0,
    sigma_H: float = 0.0,
    gamma_G: float = 0.0,
    gamma_H: float = 0.0,
    batch: float = 1.0,
    rows: float = float("inf"),
    lr: float | None = None,
) -> Bound:
    """pFedFBE: the mean over all steps of E ||grad F||^2, F the mean of the clients' envelopes.

    N clients of which S take part; K local steps and R rounds (the paper's R and K); rho is the Lipschitz constant
    of the Hessians, gradient the paper's B, the bound of gradients and subgradients; sigma_G, sigma_H the deviations
    of a row's gradient and Hessian, gamma_G, gamma_H the clients' distances from the mean; batch of rows rows.

    Two misprints are mended. The second term is 1600 lr^2 L_F^2 K^2 (...): eq. 42 drops the L_F^2 of the line above it,
    without which the term has not the unit of the others. Lemma 2 bounds a squared distance by gamma_F, which the
    theorem squares again: here gamma_F^2 is that bound.

    >>> found = pfedfbe_theorem_1(lam=4.0, L=2.0, Delta=1.0, N=8, S=8, K=5, R=100)
    >>> found.terms["minibatch bias"], found.total == found.terms["height to go"]
    (0.0, True)
    """
    positive(lam=lam, L=L, Delta=Delta)
    not_negative(rho=rho, gradient=gradient, sigma_G=sigma_G, sigma_H=sigma_H, gamma_G=gamma_G, gamma_H=gamma_H)
    counts(N=N, S=S, K=K, R=R, batch=batch, rows=rows)
    if lam <= L:
        raise FedaxError(f"lam must be above L = {L}, not {lam}: otherwise the envelope is not smooth")
    if S > N:
        raise FedaxError(f"S must be at most the number of clients N = {N}, not {S}")
    smooth = (2 * rho * gradient + (lam + L) * (2 * lam + L)) / lam
    apart = 24 * gamma_G**2 + 12 * (gradient * gamma_H / lam) ** 2
    exact = batch >= rows  # a full batch has no variance; the paper's bounds keep one
    noise = (
        0.0
        if exact
        else (12 * sigma_G**2 + 12 * (gradient * sigma_H / lam) ** 2 + (sigma_G * sigma_H / lam) ** 2 / batch) / batch
    )
    share = 0.0 if N == 1 else (N - S) / (S * (N - 1))
    fraction = 0.0 if exact else (1 - (batch - 1) / (rows - 1)) / batch
    lr = rate(lr, (K * R) ** -0.5, 1 / (10 * K * smooth), "1/(10 K L_F)")
    terms = {
        "height to go": 4 * Delta / (lr * K * R),
        "movement between averagings": 1600 * (lr * smooth * K) ** 2 * (apart + 4 * noise),
        "sampled clients and noise": 8 * smooth * lr * (share * apart + noise),
        "minibatch bias": 16 * fraction * sigma_G**2,
    }
    assumed = (
        "every f_i is L-smooth with a rho-Lipschitz Hessian, psi is convex (A1 to A3)",
        "gradients and subgradients are no longer than `gradient` where the iterates are (A2)",
        "a row's gradient and Hessian have deviations sigma_G and sigma_H (A4)",
        "clients' gradients and Hessians are within gamma_G and gamma_H of the mean ones (A5)",
        "lam > L",
    )
    return Bound("pFedFBE, Theorem 1", "mean over steps of E ||grad F||^2", terms, lr, assumed)
