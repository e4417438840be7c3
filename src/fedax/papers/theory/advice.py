"""Step sizes and local steps for each method that has a theorem, with the bound and what does not hold of it.

The rates are the theorems' own. The local steps follow one rule for all methods: at the same number K R of local steps
in all, the most a round (a power of 2) for which the bound is at most twice that with one a round, and the terms of
averaging rarely are no more than the others. Terms that no amount of work removes are left out of both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from fedax.errors import FedaxError, unknown
from fedax.papers.theory import bounds
from fedax.papers.theory.bound_terms import Bound, positive
from fedax.papers.theory.estimate import Constants

WORSE = 2.0  # how much of the bound is given for fewer rounds
RARELY = (  # the terms that are there because clients do not average after every step
    "noise between averagings",
    "movement between averagings",
    "heterogeneity",
    "heterogeneity and noise between averagings",
    "higher orders",
    "drift",
)
LASTING = ("residual", "minibatch bias")
MIXED = 0.5  # APFL's own alpha, where the theorem does not restrict it


@dataclasses.dataclass(frozen=True)
class Work:
    """What a run does: n clients of which m take part, K local steps, R rounds."""

    n: int
    m: int
    K: int
    R: int

    def with_steps(self, steps: int) -> Work:
        """Another number of local steps a round, with so many rounds that there are no more of them in all.

        >>> Work(n=8, m=8, K=5, R=40).with_steps(16)
        Work(n=8, m=8, K=16, R=12)
        """
        return dataclasses.replace(self, K=steps, R=max(1, self.K * self.R // steps))


@dataclasses.dataclass(frozen=True)
class Proposal:
    """A method's hyper-parameters by a theorem; `local_steps` is the most that its bound allows at the same work."""

    method: str
    settings: dict[str, Any]
    bound: Bound
    local_steps: int
    unmet: tuple[str, ...]


Answer = tuple[Bound, dict[str, Any]]


def advise(constants: Constants, work: Work, methods: list[str] | None = None) -> list[Proposal]:
    """Proposals for the methods named, or for every method that has a theorem.

    A theorem whose assumptions these constants contradict is used all the same, and the proposal says so. A method
    is refused where a constant that its theorem divides by is 0, by a sentence that names it.

    >>> from fedax.papers.theory import Constants, Estimate
    >>> sure = lambda value: Estimate(value, value, value, "known")
    >>> L, mu, sigma, zeta, B, Delta, G = map(sure, (1.0, 0.01, 1.0, 0.0, 2.0, 1.0, 5.0))
    >>> known = Constants(L, mu, sigma, zeta, B, Delta, G, convex=True, smooth=True, quadratic=False)
    >>> found = advise(known, Work(n=64, m=64, K=8, R=100), ["FedAc"])[0]
    >>> found.bound.theorem, sorted(found.settings), found.unmet
    ('Theorem 3.1(a)', ['lr', 'mu'], ())
    """
    found = []
    for method in RULES if methods is None else methods:
        if method not in RULES:
            raise unknown("method with a theorem", method, RULES)
        rule = RULES[method]
        try:
            bound, settings = rule(constants, work)
        except FedaxError as error:
            raise FedaxError(f"{method}: {error}") from None
        most = _most_steps(rule, constants, work)
        found.append(Proposal(method, settings, bound, most, _unmet(bound.theorem, constants, work)))
    return found


def _most_steps(rule: Callable[[Constants, Work], Answer], constants: Constants, work: Work) -> int:
    most, first, steps = 1, None, 1
    while steps <= work.K * work.R:
        terms = rule(constants, work.with_steps(steps))[0].terms
        total = sum(value for name, value in terms.items() if name not in LASTING)
        rarely = sum(value for name, value in terms.items() if name in RARELY)
        first = total if first is None else first
        most = steps if total <= WORSE * first and rarely <= total / 2 else most
        steps *= 2
    return most


CONVEX = ("Proposition 2.1", "Theorem 3.1(a)", "Theorem B.21", "Theorem 4.3", "Theorem 4.4", "Theorem 4.7")
ALIKE = ("Theorem 2.22", "Theorem 3.1(a)", "Theorem B.21")
EVERYONE = (*CONVEX, "Theorem 2.22", "FedSpeed, Theorem 4.4", "APFL, Theorem 3")
FULL = ("APFL, Theorem 3",)
COMPOSITE = ("Theorem 4.3", "Theorem 4.4", "Theorem 4.7", "pFedFBE, Theorem 1")
#: what was not looked at, and what was taken instead
UNSEEN = {
    "Theorem 2.22": "no gradient may be longer than G: G is the longest that was seen",
    "Theorem 4.3": "how small the client's rate must be is not said: a K-th of both rates' product is taken",
    "Theorem 4.4": "no gradient may be longer than G: G is the longest that was seen",
    "Theorem 4.7": "sigma and zeta are Euclidean lengths: the theorem's are in the norm of the Hessian",
    "APFL, Theorem 2": "that every client's loss is mu-strongly convex is not checked",
    "APFL, Theorem 3": f"the domain is taken as a ball of diameter 2 B, alpha as {MIXED}",
    "pFedFBE, Theorem 1": "how Hessians differ between points, rows and clients is not estimated, and taken as 0",
}


def _unmet(theorem: str, constants: Constants, work: Work) -> tuple[str, ...]:
    """What the theorem assumes and these estimates contradict, or do not show."""
    said = []
    if theorem in CONVEX and not constants.convex:
        said.append("the loss is not convex: negative curvature was seen")
    if theorem in ALIKE and constants.zeta.value > 0:
        said.append(f"clients differ (zeta = {constants.zeta.value:.3g}): the theorem is for clients alike")
    if theorem in EVERYONE and work.m < work.n:
        said.append(f"{work.m} of {work.n} clients take part: the theorem is for all of them")
    if theorem in FULL and constants.sigma.value > 0:
        said.append(f"gradients are of minibatches (sigma = {constants.sigma.value:.3g}): the theorem is for full ones")
    if theorem not in COMPOSITE and not constants.smooth:
        said.append("the regularizer has no gradient")
    return (*said, UNSEEN[theorem]) if theorem in UNSEEN else tuple(said)


def _fedavg(c: Constants, w: Work) -> Answer:
    common = {"L": c.L.value, "sigma": c.sigma.value, "M": w.m, "K": w.K, "R": w.R}
    if c.convex:
        bound = bounds.proposition_2_1(**common, B=c.B.value, zeta=c.zeta.value)
    else:
        bound = bounds.theorem_2_22(**common, Delta=c.Delta.value, G=c.G.value)
    return bound, {"lr": bound.lr}


def _fedac(c: Constants, w: Work) -> Answer:
    mu = c.mu.value
    if mu > 0:
        potential = c.Delta.value + mu / 2 * c.B.value**2
        bound = bounds.theorem_3_1(L=c.L.value, mu=mu, sigma=c.sigma.value, potential=potential, M=w.m, K=w.K, R=w.R)
        return bound, {"lr": bound.lr, "mu": mu}
    bound, weight = bounds.theorem_b_21(L=c.L.value, B=c.B.value, sigma=c.sigma.value, M=w.m, K=w.K, R=w.R)
    return bound, {"lr": bound.lr, "mu": weight, "augment": True}


def _feddualavg(c: Constants, w: Work) -> Answer:
    half = c.B.value / 2**0.5  # D_h of the Euclidean mirror map is half the squared distance
    common = {"L": c.L.value, "B": half, "sigma": c.sigma.value, "M": w.m, "K": w.K, "R": w.R}
    if c.quadratic:
        bound = bounds.theorem_4_7(**common, zeta=c.zeta.value)
    else:
        bound = bounds.theorem_4_4(**common, G=c.G.value)
    return bound, {"lr": bound.lr, "server_lr": 1.0}


def _fedmid(c: Constants, w: Work) -> Answer:
    bound = bounds.theorem_4_3(L=c.L.value, B=c.B.value / 2**0.5, sigma=c.sigma.value, M=w.m, K=w.K, R=w.R)
    return bound, {"lr": bound.lr / w.K, "server_lr": float(w.K)}


def _feddeper(c: Constants, w: Work) -> Answer:
    bound = bounds.feddeper_theorem_1(
        L=c.L.value, Delta=c.Delta.value, sigma=c.sigma.value, spread=c.zeta.value, n=w.n, m=w.m, K=w.K, R=w.R
    )
    return bound, {"lr": bound.lr, "rho": bound.lr * c.L.value}


def _fedspeed(c: Constants, w: Work) -> Answer:
    """Half of the longest lr, the largest lam (lr K), and Corollary 4.5's rho, of order 1 / sqrt(R)."""
    positive(L=c.L.value)
    lr, rho = 1 / (64 * (3 * w.K) ** 0.5 * c.L.value), 1 / (4 * c.L.value * w.R**0.5)
    common = {"L": c.L.value, "Delta": c.Delta.value, "sigma": c.sigma.value, "zeta": c.zeta.value}
    bound = bounds.fedspeed_theorem_4_4(**common, K=w.K, R=w.R, lr=lr, lam=lr * w.K, rho=rho)
    return bound, {"lr": lr, "lam": lr * w.K, "rho": rho, "normalize": False}


def _apfl(c: Constants, w: Work) -> Answer:
    """Theorem 2 where the loss is strongly convex, at the least alpha that it is for; else Theorem 3."""
    L, mu, squared, T = c.L.value, c.mu.value, c.zeta.value**2, w.K * w.R
    common: dict[str, Any] = {"L": L, "n": w.n, "T": T, "K": w.K, "zeta_i": squared, "zeta": w.n * squared}
    if mu > 0:
        alpha = bounds.least_alpha(mu, L)
        apart = squared / mu**2  # mu ||v_i* - w*|| <= ||grad f_i(w*)|| <= zeta
        bound = bounds.apfl_theorem_2(alpha, **common, mu=mu, sigma=c.sigma.value, m=w.m, optima_apart=apart)
        later = max(128 * L / mu, w.K)
        lr = {"kind": "inverse-time", "initial": bound.lr, "decay": 1 / later, "per": "step"}
        return bound, {"lr": lr, "alpha": alpha}
    common |= {"own_height": c.Delta.high, "height": c.Delta.value, "diameter": (2 * c.B.value) ** 2}
    bound = bounds.apfl_theorem_3(MIXED, **common)
    return bound, {"lr": bound.lr}


def _pfedfbe(c: Constants, w: Work) -> Answer:
    positive(L=c.L.value)
    lam = 2 * c.L.value
    seen = {"gradient": c.G.value, "sigma_G": c.sigma.value, "gamma_G": c.zeta.value}
    common = {"lam": lam, "L": c.L.value, "Delta": c.Delta.value, "K": w.K, "R": w.R}
    bound = bounds.pfedfbe_theorem_1(N=w.n, S=w.m, **common, **seen)
    return bound, {"lr": bound.lr, "lam": lam}


RULES: dict[str, Callable[[Constants, Work], Answer]] = {
    "FedAvg": _fedavg,
    "FedAc": _fedac,
    "FedDeper": _feddeper,
    "FedSpeed": _fedspeed,
    "APFL": _apfl,
    "FedDualAvg": _feddualavg,
    "FedMiD": _fedmid,
    "PFedFBE": _pfedfbe,
}
