"""pFedFBE: Lemmas 1 to 4, Proposition 1 and Theorem 1 of its paper, and how far its personal models can go.

Names are the paper's but for K local steps and R rounds, which it calls R and K. `gradient` is its B, which bounds the
gradients of f_i and the subgradients of psi where the iterates are.
"""

from __future__ import annotations

from fedax.bounds.base import Bound, counts, not_negative, positive, rate
from fedax.errors import FedaxError


def pfedfbe_personal_step(*, gradient: float, strength: float, lam: float) -> float:
    """The farthest that an entry of a personal model can be from the shared model's, with psi = strength ||.||_1.

    theta = prox of psi/lam at w - grad f / lam: the gradient step moves entry j by |grad_j f| / lam, and the prox by at
    most strength / lam. `gradient` is |grad_j f|.

    >>> pfedfbe_personal_step(gradient=1.0, strength=0.1, lam=2000.0)
    0.00055
    """
    positive(lam=lam)
    not_negative(gradient=gradient, strength=strength)
    return (gradient + strength) / lam


def pfedfbe_proposition_1(*, lam: float, L: float) -> None:
    """Refuse a lam for which Proposition 1 does not make the envelopes smooth and level-bounded: lam > L is needed.

    >>> pfedfbe_proposition_1(lam=2000.0, L=2050.0)
    Traceback (most recent call last):
    fedax.errors.FedaxError: lam must be above L = 2050.0, not 2000.0: otherwise the envelope is not smooth
    """
    positive(lam=lam, L=L)
    if lam <= L:
        raise FedaxError(f"lam must be above L = {L}, not {lam}: otherwise the envelope is not smooth")


def pfedfbe_lemma_1(*, lam: float, L: float, rho: float = 0.0, gradient: float = 0.0) -> float:
    """L_F, the smoothness of the envelopes; rho is the Lipschitz constant of the Hessians.

    >>> pfedfbe_lemma_1(lam=4.0, L=2.0)
    15.0
    """
    pfedfbe_proposition_1(lam=lam, L=L)
    not_negative(rho=rho, gradient=gradient)
    return (2 * rho * gradient + (lam + L) * (2 * lam + L)) / lam


def pfedfbe_lemma_2(*, lam: float, gamma_G: float, gamma_H: float = 0.0, gradient: float = 0.0) -> float:
    """gamma_F^2, the mean squared distance of the envelopes' gradients from their mean.

    The paper names this bound of a square gamma_F, and squares it once more in Lemma 4 and Theorem 1.

    >>> pfedfbe_lemma_2(lam=4.0, gamma_G=1.0)
    24.0
    """
    positive(lam=lam)
    not_negative(gamma_G=gamma_G, gamma_H=gamma_H, gradient=gradient)
    return 24 * gamma_G**2 + 12 * (gradient * gamma_H / lam) ** 2


def pfedfbe_lemma_3(
    *,
    lam: float,
    sigma_G: float,
    sigma_H: float = 0.0,
    gradient: float = 0.0,
    batch: float = 1.0,
    rows: float = float("inf"),
) -> tuple[float, float]:
    """The bias of the estimated gradient of an envelope, and sigma_F^2, the bound of its mean squared error.

    Both minibatches have `batch` of a client's `rows` rows. The last coefficient is 3, as in the proof (eq. 16 and the
    display after it, by ||a + b + c||^2 <= 3 (...)); the lemma prints 1. A full batch has neither bias nor error.

    >>> pfedfbe_lemma_3(lam=1.0, sigma_G=1.0, sigma_H=1.0)
    (2.0, 15.0)
    """
    positive(lam=lam)
    not_negative(sigma_G=sigma_G, sigma_H=sigma_H, gradient=gradient)
    counts(batch=batch, rows=rows)
    if batch >= rows:
        return 0.0, 0.0
    bias = 2 * ((1 - (batch - 1) / (rows - 1)) / batch) ** 0.5 * sigma_G
    products = 12 * (gradient * sigma_H / lam) ** 2 + 3 * (sigma_G * sigma_H / lam) ** 2 / batch
    return bias, (12 * sigma_G**2 + products) / batch


def pfedfbe_lemma_4(
    *, lr: float, t: float, K: float, L_F: float, sigma_F: float, gamma_F: float
) -> tuple[float, float]:
    """The clients' mean distance, and mean squared distance, from their mean after t of K local steps (eq. 10 and 11).

    The rate must be at most 1/(10 K L_F), as the proof has it; the lemma prints 1/(10 L_F B), B the gradients' bound.

    >>> pfedfbe_lemma_4(lr=0.01, t=0, K=5, L_F=1.0, sigma_F=1.0, gamma_F=1.0)
    (0.0, 0.0)
    """
    positive(lr=lr, L_F=L_F)
    not_negative(t=t, sigma_F=sigma_F, gamma_F=gamma_F)
    counts(K=K)
    rate(lr, lr, 1 / (10 * K * L_F), "1/(10 K L_F)")
    return 4 * lr * t * (sigma_F + gamma_F), 48 * t * K * lr**2 * (gamma_F**2 + 4 * sigma_F**2)


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

    A misprint is mended: the second term is 1600 lr^2 L_F^2 K^2 (...), for eq. 42 drops the L_F^2 of the line above it,
    without which the term has not the unit of the others.

    >>> found = pfedfbe_theorem_1(lam=4.0, L=2.0, Delta=1.0, N=8, S=8, K=5, R=100)
    >>> found.terms["minibatch bias"], found.total == found.terms["height to go"]
    (0.0, True)
    """
    positive(lam=lam, L=L, Delta=Delta)
    not_negative(rho=rho, gradient=gradient, sigma_G=sigma_G, sigma_H=sigma_H, gamma_G=gamma_G, gamma_H=gamma_H)
    counts(N=N, S=S, K=K, R=R, batch=batch, rows=rows)
    if S > N:
        raise FedaxError(f"S must be at most the number of clients N = {N}, not {S}")
    smooth = pfedfbe_lemma_1(lam=lam, L=L, rho=rho, gradient=gradient)
    apart = pfedfbe_lemma_2(lam=lam, gamma_G=gamma_G, gamma_H=gamma_H, gradient=gradient)
    bias, noise = pfedfbe_lemma_3(lam=lam, sigma_G=sigma_G, sigma_H=sigma_H, gradient=gradient, batch=batch, rows=rows)
    share = 0.0 if N == 1 else (N - S) / (S * (N - 1))
    lr = rate(lr, (K * R) ** -0.5, 1 / (10 * K * smooth), "1/(10 K L_F)")
    terms = {
        "height to go": 4 * Delta / (lr * K * R),
        "movement between averagings": 1600 * (lr * smooth * K) ** 2 * (apart + 4 * noise),
        "sampled clients and noise": 8 * smooth * lr * (share * apart + noise),
        "minibatch bias": 4 * bias**2,
    }
    assumed = (
        "every f_i is L-smooth with a rho-Lipschitz Hessian, psi is convex (A1 to A3)",
        "gradients and subgradients are no longer than `gradient` where the iterates are (A2)",
        "a row's gradient and Hessian have deviations sigma_G and sigma_H (A4)",
        "clients' gradients and Hessians are within gamma_G and gamma_H of the mean ones (A5)",
        "lam > L",
    )
    return Bound("pFedFBE, Theorem 1", "mean over steps of E ||grad F||^2", terms, lr, assumed)
