"""Step sizes and local steps for each method that has a theorem, with the bound and what does not hold of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from fedax.errors import FedaxError, unknown
from fedax.theory import bounds
from fedax.theory.bound import Bound
from fedax.theory.estimate import Constants

WORSE = 2.0  # how much of the bound is given for fewer rounds


@dataclasses.dataclass(frozen=True)
class Work:
    """What a run does: n clients of which m take part, K local steps, R rounds."""

    n: int
    m: int
    K: int
    R: int


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
    """Proposals for the methods that have a theorem, or for those named.

    local_steps: with K R fixed, the most local steps (a power of 2) for which the bound is at most twice that with one.

    >>> from fedax.theory import Constants, Estimate
    >>> sure = lambda value: Estimate(value, value, value, "known")
    >>> L, mu, sigma, zeta, B, Delta, G = map(sure, (1.0, 0.01, 1.0, 0.0, 2.0, 1.0, 5.0))
    >>> known = Constants(L, mu, sigma, zeta, B, Delta, G, convex=True, smooth=True)
    >>> found = advise(known, Work(n=64, m=64, K=8, R=100), ["FedAc"])[0]
    >>> found.bound.theorem, sorted(found.settings), found.unmet
    ('Theorem 3.1(a)', ['lr', 'mu'], ())
    """
    chosen = list(RULES) if methods is None else methods
    found = []
    for method in chosen:
        if method not in RULES:
            raise unknown("method with a theorem", method, RULES)
        if method in COMPOSITE and constants.smooth and methods is None:
            continue
        rule = RULES[method]
        try:
            bound, settings = rule(constants, work)
        except FedaxError as error:
            if methods is not None:
                raise FedaxError(f"{method}: {error}") from None
            continue
        found.append(
            Proposal(method, settings, bound, _most_steps(rule, constants, work), _unmet(method, constants, work))
        )
    return found


def _most_steps(rule: Callable[[Constants, Work], Answer], constants: Constants, work: Work) -> int:
    total, most, first = work.K * work.R, 1, None
    steps = 1
    while steps <= total:
        try:
            value = rule(constants, dataclasses.replace(work, K=steps, R=total // steps))[0].total
        except FedaxError:
            break
        first = value if first is None else first
        most = steps if value <= WORSE * first else most
        steps *= 2
    return most


def _unmet(method: str, constants: Constants, work: Work) -> tuple[str, ...]:
    """What the theorem assumes and these estimates contradict."""
    alike = {"FedAc"} | (set() if constants.convex else {"FedAvg"})
    everyone = {"FedAvg", "FedAc", "FedSpeed", "FedDualAvg", "FedMiD"}
    convex = {"FedAvg", "FedAc", "FedDualAvg", "FedMiD"} if constants.convex else {"FedAc", "FedDualAvg", "FedMiD"}
    said = []
    if method in convex and not constants.convex:
        said.append("the loss is not convex: negative curvature was seen")
    if method in alike and constants.zeta.value > 0:
        said.append(f"clients differ (zeta = {constants.zeta.value:.3g}): the theorem is for clients alike")
    if method in everyone and work.m < work.n:
        said.append(f"{work.m} of {work.n} clients take part: the theorem is for all of them")
    if method not in COMPOSITE and not constants.smooth:
        said.append("the regularizer has no gradient")
    if method == "FedDualAvg":
        said.append("F must be quadratic, which is not checked")
    if method == "FedSpeed":
        said.append("a perturbation of fixed length (normalize) is not the theorem's")
    return tuple(said)


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
    bound = bounds.theorem_4_7(L=c.L.value, B=half, sigma=c.sigma.value, zeta=c.zeta.value, M=w.m, K=w.K, R=w.R)
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
    lr = 1 / (64 * (3 * w.K) ** 0.5 * c.L.value)
    common = {"L": c.L.value, "Delta": c.Delta.value, "sigma": c.sigma.value, "zeta": c.zeta.value}
    bound = bounds.fedspeed_theorem_4_4(**common, K=w.K, R=w.R, lr=lr, lam=lr * w.K)
    return bound, {"lr": lr, "lam": lr * w.K}


def _apfl(c: Constants, w: Work) -> Answer:
    squared = c.zeta.value**2
    bound = bounds.apfl_theorem_2(
        1.0,
        mu=c.mu.value,
        L=c.L.value,
        sigma=c.sigma.value,
        n=w.n,
        m=w.m,
        T=w.K * w.R,
        K=w.K,
        zeta_i=squared,
        zeta=w.n * squared,
    )
    later = max(128 * c.L.value / c.mu.value, w.K)
    return bound, {"lr": {"kind": "inverse-time", "initial": bound.lr, "decay": 1 / later, "per": "step"}}


def _pfedfbe(c: Constants, w: Work) -> Answer:
    lam = 2 * c.L.value
    bound = bounds.pfedfbe_theorem_1(
        lam=lam,
        L=c.L.value,
        Delta=c.Delta.value,
        N=w.n,
        S=w.m,
        K=w.K,
        R=w.R,
        gradient=c.G.value,
        sigma_G=c.sigma.value,
        gamma_G=c.zeta.value,
    )
    return bound, {"lr": bound.lr, "lam": lam}


COMPOSITE = ("FedDualAvg", "FedMiD", "PFedFBE")
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
