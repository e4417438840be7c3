"""FedDeper's Theorems 1 and 2 and FedSpeed's Theorem 4.4: non-convex problems, E ||grad F||^2 averaged over rounds."""

from __future__ import annotations

from fedax.bounds.base import Bound, Need, counts, not_negative, over, positive, rate
from fedax.errors import FedaxError

EVERYONE: tuple[Need, ...] = ("everyone", "smooth")


def feddeper_theorem_1(
    *,
    L: float,
    Delta: float,
    sigma: float,
    n: int,
    m: int,
    K: float,
    R: float,
    spread: float = 0.0,
    ratio: float = 1.0,
    lr: float | None = None,
) -> Bound:
    """FedDeper: the mean over rounds of E ||grad f(x)||^2. Corollary 1 is this at the default lr.

    n clients of which m take part; spread and ratio are the G and B of its assumption 3, the mean over clients of
    ||grad f_i||^2 is at most ratio^2 ||grad f||^2 + spread^2. The default lr is that of Corollary 1, within the
    theorem's limit. It also asks for rho <= lr L.

    >>> feddeper_theorem_1(L=1.0, Delta=1.0, sigma=0.0, n=10, m=10, K=5, R=100).dominant
    'height to go'
    """
    positive(L=L, Delta=Delta)
    not_negative(sigma=sigma, spread=spread)
    counts(n=n, m=m, K=K, R=R, ratio=ratio)
    if m > n:
        raise FedaxError(f"m must be at most the number of clients n = {n}, not {m}")
    p, absent = m / n, (1 - m / n) ** 2
    few = 2 * (1 / m - 1 / n)
    b2, g2 = few * ratio**2 + 1, few * spread**2  # the paper's B and G with a tilde
    s2 = sigma**2 / K
    q = 5 + 75 * p + 15 * absent / p
    l1, l3 = 15 * absent / (49 * p**2), 5 / 7 + 5 / (49 * p)
    l2 = 1 + 25 / (3136 * p) + 75 * absent / (3136 * p**2)
    limit = min(1 / (144 * b2), 1 / (84 * (2 * (l1 + l2 * ratio**2 + l3 * b2)) ** 0.5)) / (K * L)
    lr = rate(lr, (m / (K * R)) ** 0.5, limit, "its limit over K L")
    a, own = lr * K * L, spread**2
    second = (
        (1120 + 160 / p) * g2
        + (1548 + 25 / (2 * p) + 97 / 6 + 37.5 * absent / p**2) * own
        + (330 * p + 40 / (m * p) + 280 / m + 73 / 12) * s2
    )
    terms = {
        "height to go": 24 * Delta / (lr * K * R),
        "sampled clients and noise": 12 * a * (4 * g2 + s2 / m),
        "heterogeneity and noise between averagings": 24 * a**2 * second,
        "higher orders": 192 * a**3 * (3 * own + s2)
        + 96 * a**4 * ((3 * p + 20 * q) * s2 / p + 12 * own)
        + 576 * a**5 * (4 * own + s2)
        + 5760 * a**6 * q * s2 / p,
    }
    assumed = (
        "every f_i is L-smooth",
        "a stochastic gradient's variance is at most sigma^2 everywhere",
        "the mean of ||grad f_i||^2 is at most ratio^2 ||grad f||^2 + spread^2",
        "rho <= lr L and lam in [1/2, 1]",
    )
    return Bound("FedDeper, Theorem 1", "mean over rounds of E ||grad f||^2", terms, lr, assumed, ("smooth",))


def feddeper_theorem_2(
    *,
    L: float,
    mu: float,
    Delta: float,
    sigma: float,
    n: int,
    m: int,
    K: float,
    R: float,
    spread: float = 0.0,
    ratio: float = 1.0,
    lr: float | None = None,
) -> Bound:
    """FedDeper: the mean over rounds, clients and local steps of E ||v - x*||^2, v the clients' own models.

    The theorem hides its constants; these are its proof's, with Theorem 1's bound for the mean of ||grad f(x)||^2 and
    Lemma 4's for the first round's distance, where all models start at x0. The proof bounds ||x - x*||^2 by
    ||grad f(x)||^2 / L^2 "due to the smoothness", which bounds it from below: what it needs is a curvature of at least
    mu, and then it is ||grad f(x)||^2 / mu^2. Without one the theorem does not hold.

    >>> bound = feddeper_theorem_2(L=1.0, mu=0.5, Delta=1.0, sigma=0.0, n=10, m=10, K=5, R=100)
    >>> bound.dominant
    'the shared model'
    """
    positive(mu=mu)
    shared = feddeper_theorem_1(L=L, Delta=Delta, sigma=sigma, n=n, m=m, K=K, R=R, spread=spread, ratio=ratio, lr=lr)
    if mu > L:
        raise FedaxError(f"mu must be at most L = {L}, not {mu}")
    p, absent, few = m / n, (1 - m / n) ** 2, 2 * (1 / m - 1 / n)
    b2, g2 = few * ratio**2 + 1, few * spread**2
    way = (shared.lr * K) ** 2  # eta^2 tau^2
    a2, noise = way * L**2, way * sigma**2 / K
    c, q = 20 * (1 / p - 1 / 48), 5 + 75 * p + 15 * absent / p
    Q = 6 * q * a2 * (1 + 4 * a2) + 34 * p
    first = (2 * way * (spread**2 + ratio**2 * 2 * L * Delta) + noise) / (1 - 4 * a2)
    moved = 12 * c * absent / p + 4 * c * (1 + 7 * p) * b2 + c * Q * ratio**2 + 25 / 12 * ratio**2
    noisy = 33 * c * p / 4 + (1 + 7 * p) * c / m + 25 / 24 + 2 * c * q * a2 + 6 * c * q * a2**2
    terms = {
        "the shared model": 2 * shared.total / mu**2,
        "the first round": 96 / p * first / R,
        "the shared model's gradient over a round": 96 / p * moved * way * shared.total,
        "noise": 96 / p * noisy * noise,
        "heterogeneity": 96 / p * way * ((c * Q + 25 / 12) * spread**2 + 4 * c * (1 + 7 * p) * g2),
    }
    assumed = (*shared.assumptions, "f is mu-strongly convex")
    return Bound("FedDeper, Theorem 2", "mean of E ||v - x*||^2", terms, shared.lr, assumed, ("smooth", "convex"))


def fedspeed_theorem_4_4(
    *,
    L: float,
    Delta: float,
    sigma: float,
    zeta: float,
    lam: float,
    K: float,
    R: float,
    rho: float = 0.0,
    alpha: float = 1.0,
    lr: float | None = None,
    duals: float = 0.0,
    mean_dual: float = 0.0,
) -> Bound:
    """FedSpeed: the mean over rounds of E ||grad F(z)||^2, z of eq. 5.

    Delta is F(z) - F* and duals, mean_dual the mean of ||ghat_i||^2 and ||mean of ghat_i||^2 after the first round.
    The default lr is half of its upper limit 1 / (32 sqrt(3K) L), which leaves kappa above 0; lr K must reach lam.

    Two misprints of eq. 6 and 7 are mended, from the last inequality but one of the proof divided by lam kappa: the
    second term has lr^2, and Phi has no factor lam.

    >>> round(fedspeed_theorem_4_4(L=1.0, Delta=1.0, sigma=0.0, zeta=0.0, lam=0.05, K=50, R=100).total, 2)
    1.07
    """
    positive(L=L, Delta=Delta, lam=lam)
    not_negative(sigma=sigma, zeta=zeta, rho=rho, alpha=alpha, duals=duals, mean_dual=mean_dual)
    counts(K=K, R=R)
    if rho > (furthest := over(1, 6**0.5 * alpha * L)):
        raise FedaxError(f"rho must be at most 1 / (sqrt(6) alpha L) = {furthest:.4g}, not {rho}")
    longest = 1 / (32 * (3 * K) ** 0.5 * L)
    lr = rate(lr, longest / 2, min(longest, 2 * lam), "1 / (32 sqrt(3K) L) and 2 lam")
    if lr * K < lam * (1 - 1e-9):
        raise FedaxError(f"lr K = {lr * K:.4g} must be at least lam = {lam}: more local steps, or a smaller lam")
    kappa = 0.5 - 3 * (alpha * L * rho) ** 2 - 1536 * (lr * L) ** 2 * K
    if not kappa > 0:
        raise FedaxError(f"kappa = {kappa:.4g} must be above 0: a smaller lr or rho")
    terms = {
        "height to go": 2 * Delta / (lam * kappa * R),
        "first duals": (64 * (lr * L) ** 2 * K * duals + 32 * (lam * L) ** 2 * mean_dual) / (kappa * R),
        "movement between averagings": 32 * (lr * L) ** 2 * K * (16 * zeta**2 + sigma**2) / kappa,
        "perturbation": (alpha * L * rho) ** 2 * (3 * zeta**2 + sigma**2) / kappa,
    }
    assumed = (
        "every F_i is L-smooth",
        "a stochastic gradient's variance is at most sigma^2 everywhere",
        "E ||grad F_i - grad F||^2 is at most zeta^2 everywhere",
        "all clients take part in every round",
        "lam is small enough for the two further conditions on it in the proof",
    )
    return Bound("FedSpeed, Theorem 4.4", "mean over rounds of E ||grad F(z)||^2", terms, lr, assumed, EVERYONE)
