"""APFL: the generalisation bound of Theorem 1 with the mixing weight that minimises it, and Theorems 2 and 3.

Theorem 2 hides its constants in O(); here each is 1, so that it compares settings and does not certify a run. Theorem
3 has those of the last display of its proof. In both zeta_i is a SQUARED distance of gradients (Definition 2), and
zeta its sum over the n clients.
"""

from __future__ import annotations

import math

from fedax.bounds.base import Bound, Need, counts, not_negative, positive, rate, strong_convexity
from fedax.errors import FedaxError

NEEDS: tuple[Need, ...] = ("everyone", "full gradients", "smooth")  # of Theorem 3


def _complexity(rows: float, dimension: float, delta: float, constant: float) -> float:
    """C sqrt((d + log(1/delta)) / rows)."""
    positive(rows=rows)
    not_negative(dimension=dimension, constant=constant)
    if not 0 < delta < 1:
        raise FedaxError(f"delta must be in (0, 1), not {delta}")
    return float(constant * ((dimension + math.log(1 / delta)) / rows) ** 0.5)


def _risks(
    *,
    local_risk: float,
    shared_risk: float,
    divergence: float,
    local_rows: float,
    all_rows: float,
    dimension: float,
    delta: float = 0.05,
    loss_bound: float = 1.0,
    constant: float = 1.0,
    disagreement: float = 0.0,
) -> tuple[float, float]:
    """The two brackets of eq. 2: the local model's and the shared one's."""
    not_negative(local_risk=local_risk, shared_risk=shared_risk, divergence=divergence)
    not_negative(loss_bound=loss_bound, disagreement=disagreement)
    if divergence > 2:
        raise FedaxError(f"divergence must be in [0, 2], the L1 distance of two distributions, not {divergence}")
    if all_rows < local_rows:
        raise FedaxError(f"all_rows must be at least local_rows = {local_rows}, not {all_rows}")
    local = local_risk + 2 * _complexity(local_rows, dimension, delta, constant) + disagreement
    shared = shared_risk + loss_bound * divergence + _complexity(all_rows, dimension, delta, constant)
    return local, shared


def apfl_theorem_1(alpha: float, **setting: float) -> float:
    """The bound of eq. 2 on the risk of alpha * local + (1 - alpha) * shared on a client's distribution.

    local_risk: of the best model for this client. shared_risk: of the shared model on all clients' rows.
    divergence: L1 distance between the client's distribution and the mean one, in [0, 2].
    local_rows, all_rows: training rows of the client, of all. dimension: VC dimension.
    delta: one minus the probability (default 0.05). loss_bound: B (1). constant: the unnamed C (1).
    disagreement: G lambda_H(S_i) of Definition 1 (0).

    >>> setting = dict(local_risk=0.1, shared_risk=0.1, divergence=0.0, local_rows=100, all_rows=400, dimension=9)
    >>> apfl_theorem_1(1.0, **setting) > apfl_theorem_1(0.0, **setting)
    True
    """
    if not 0 <= alpha <= 1:
        raise FedaxError(f"alpha must be in [0, 1], not {alpha}")
    local, shared = _risks(**setting)
    return 2 * alpha**2 * local + 2 * (1 - alpha) ** 2 * shared


def optimal_mixing_weight(**setting: float) -> float:
    """The alpha that minimises `apfl_theorem_1`, whose settings it takes: near 1 for a client unlike the others.

    >>> setting = dict(local_risk=0.1, shared_risk=0.1, local_rows=100, all_rows=400, dimension=9)
    >>> optimal_mixing_weight(divergence=0.0, **setting) < optimal_mixing_weight(divergence=1.0, **setting)
    True
    """
    local, shared = _risks(**setting)
    if local + shared == 0:
        raise FedaxError("both risks are 0: every mixing weight is optimal")
    return shared / (local + shared)


def least_alpha(mu: float, L: float) -> float:
    """The least mixing weight that Theorem 2 is for.

    >>> round(least_alpha(mu=1.0, L=1.0), 4)
    0.8979
    """
    strong_convexity(mu, L, "APFL's Theorem 2")
    room = float(mu / (4 * 6**0.5 * L))
    return max(0.0, 1 - room, 1 - room / math.sqrt(mu))


def apfl_theorem_2(
    alpha: float,
    *,
    mu: float,
    L: float,
    sigma: float,
    n: int,
    m: int,
    T: float,
    K: float,
    zeta_i: float = 0.0,
    zeta: float = 0.0,
    optima_apart: float = 0.0,
) -> Bound:
    """E f_i - f_i* of a client's weighted mean personal model, strongly convex, lr = 16 / (mu (t + a)), constants 1.

    n clients of which m take part; T steps in all, K of them a round. optima_apart: ||v_i* - w*||^2 (Definition 3).
    `lr` of the bound is the first rate, 16 / (mu a), a = max(128 L / mu, K). The last terms are left for T -> infinity.

    >>> apfl_theorem_2(1.0, mu=0.1, L=1.0, sigma=1.0, n=10, m=10, T=1e4, K=10, zeta_i=5.0, zeta=50.0).terms
    {'own noise': 0.002, 'shared noise': 0.0, 'drift': 0.0, 'residual': 0.0}
    """
    positive(L=L)
    not_negative(sigma=sigma, zeta_i=zeta_i, zeta=zeta, optima_apart=optima_apart)
    counts(n=n, m=m, T=T, K=K)
    if m > n:
        raise FedaxError(f"m must be at most the number of clients n = {n}, not {m}")
    least, kappa = least_alpha(mu, L), L / mu
    if not least <= alpha <= 1:
        raise FedaxError(f"alpha must be in [{least:.6g}, 1] for this condition number, not {alpha}")
    b, mixed = min(m / n, 0.5), (1 - alpha) ** 2
    terms = {
        "own noise": alpha**2 * sigma**2 / (mu * b * T),
        "shared noise": mixed * kappa**2 * sigma**2 / (mu * b * m * T),
        "drift": mixed * kappa**2 * K * (K * zeta_i + kappa**2 * K * zeta / m) / (mu * b * T**2),
        "residual": mixed * ((zeta_i + zeta / m) / (mu * b) + kappa * L * optima_apart / b),
    }
    assumed = (
        "every f_i is mu-strongly convex and L-smooth",
        "a stochastic gradient's variance is at most sigma^2 everywhere",
        "||grad F - grad f_i||^2 is at most zeta_i everywhere",
        "alpha is fixed",
        "the constants of O() are 1",
    )
    return Bound("APFL, Theorem 2", "E f_i - f_i*", terms, 16 / (mu * max(128 * kappa, K)), assumed, ("smooth",))


def apfl_theorem_3(
    alpha: float,
    *,
    L: float,
    n: int,
    T: float,
    K: float,
    diameter: float,
    own_height: float,
    height: float,
    zeta_i: float = 0.0,
    zeta: float = 0.0,
    lr: float | None = None,
) -> Bound:
    """The mean over steps of ||grad f_i||^2 at a client's personal model, non-convex, full gradients.

    T steps in all, K of them a round. diameter: the largest ||w - w'||^2 in the domain. own_height, height: of f_i and
    of F at the start, above their infima. The default lr is the theorem's 1 / (2 sqrt(5) L sqrt(T)), within the
    1 / (2 sqrt(5) L K) that Lemma 10 asks for besides. The heights are in the constant of the theorem's O(L / sqrt(T)).

    >>> alone = apfl_theorem_3(1.0, L=1.0, n=10, T=400, K=5, diameter=4.0, own_height=1.0, height=1.0, zeta_i=1.0)
    >>> round(alone.total / (16 * 5**0.5 / 20), 9), alone.terms["residual"], alone.terms["drift"]
    (1.0, 0.0, 0.0)
    """
    positive(L=L)
    not_negative(diameter=diameter, own_height=own_height, height=height, zeta_i=zeta_i, zeta=zeta)
    counts(n=n, T=T, K=K)
    if not 0 <= alpha <= 1:
        raise FedaxError(f"alpha must be in [0, 1], not {alpha}")
    lr = rate(lr, 1 / (20**0.5 * L * T**0.5), 1 / (20**0.5 * L * K), "1 / (2 sqrt(5) L K)")
    mixed, moved = (1 - alpha) ** 2, (lr * L * K) ** 2
    terms = {
        "height to go": (8 * own_height + 1024 * mixed * height) / (lr * T),
        "residual": (1 - alpha**2) ** 2 * (48 * zeta_i + 128 * L**2 * diameter),
        "drift": mixed * moved * (24 * alpha**4 * (200 * moved * zeta / n + 20 * zeta_i) + 7800 * zeta / n),
    }
    assumed = (
        "every f_i is L-smooth, and the domain is bounded",
        "full gradients, and all clients take part in every round",
        "||grad F - grad f_i||^2 is at most zeta_i everywhere",
        "alpha is fixed",
    )
    return Bound("APFL, Theorem 3", "mean over steps of ||grad f_i||^2", terms, lr, assumed, NEEDS)
