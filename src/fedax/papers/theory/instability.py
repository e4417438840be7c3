"""Standard accelerated gradient descent does not forget where it started (thesis section 3.6, Theorem 3.8).

For L/mu >= 25 there is an L-smooth, mu-strongly convex F of one variable on which two runs of AGD (Algorithm 3) that
start a hair apart separate by 2 (1 - 1/sqrt(kappa))^3 > 1.02 every three steps. F has curvature mu, and L on narrow
intervals around the points at which AGD takes every third gradient; Claim 3.26 builds it interval by interval, and
so does `unstable_objective`. The intervals soon are narrower than a double can tell, hence decimals of many digits.

AGD is FedAc without its trade-off: both are

    x_md = (gamma mu x + x_ag) / (1 + gamma mu)      x_ag <- x_md - eta F'(x_md)
    x <- (1 - gamma mu) x + gamma mu x_md - gamma F'(x_md)

with eta = 1/L and gamma = sqrt(eta/mu) for AGD, gamma = max(sqrt(eta / (mu K)), eta) for FedAc-I.

The theorem as printed gives x the growth (1/2) 1.02^K and x_ag 1.02^K; its proof ends with the two exchanged, and so
do the runs: for kappa = 25 and K = 1 x_ag grows by 0.6 * 1.024.
"""

from __future__ import annotations

import dataclasses
import decimal
from collections.abc import Sequence
from decimal import Decimal

from fedax.errors import FedaxError

DIGITS = 24  # a bump, for positions that fall geometrically and intervals that shrink with every bump
SHRINK = Decimal(1) / 16


@dataclasses.dataclass(frozen=True)
class Bumps:
    """F(0) = F'(0) = 0 and F'' = mu, but for L on some intervals, given by centre and radius."""

    L: Decimal
    mu: Decimal
    intervals: tuple[tuple[Decimal, Decimal], ...] = ()

    def gradient(self, w: Decimal) -> Decimal:
        """F'(w)."""
        inside = Decimal(0)
        for centre, radius in self.intervals:
            low, high = centre - radius, centre + radius
            inside += min(max(w, low), high) - min(max(Decimal(0), low), high)
        return self.mu * w + (self.L - self.mu) * inside

    def margin(self, points: Sequence[Decimal]) -> Decimal:
        """How far points may move with F'' staying L near those with t mod 3 = 1 and mu near the others.

        Steps whose interval is not there yet count as the others. Negative if it is not so already.
        """
        room = []
        for t, w in enumerate(points):
            third, own = divmod(t, 3)
            for k, (centre, radius) in enumerate(self.intervals):
                away = abs(w - centre)
                room.append(radius - away if own == 1 and k == third else away - radius)
        return min(room, default=Decimal(1))


@dataclasses.dataclass(frozen=True)
class Momentum:
    """The step sizes eta and gamma of accelerated gradient descent."""

    eta: Decimal
    gamma: Decimal

    def run(self, F: Bumps, x: Decimal, x_ag: Decimal, steps: int) -> list[tuple[Decimal, Decimal, Decimal]]:
        """x, x_ag and x_md of each step, and of the end."""
        share = self.gamma * F.mu
        path = []
        for _ in range(steps + 1):
            x_md = (share * x + x_ag) / (1 + share)
            path.append((x, x_ag, x_md))
            g = F.gradient(x_md)
            x, x_ag = (1 - share) * x + share * x_md - self.gamma * g, x_md - self.eta * g
        return path


def standard_agd(L: float, mu: float) -> Momentum:
    """Algorithm 3: eta = 1/L, gamma = 1/sqrt(L mu).

    >>> standard_agd(25, 1)
    Momentum(eta=Decimal('0.04'), gamma=Decimal('0.2'))
    """
    _check(L, mu, 1)
    return Momentum(1 / Decimal(L), (1 / (Decimal(L) * Decimal(mu))).sqrt())


def fedac_one(L: float, mu: float, local_steps: int) -> Momentum:
    """FedAc-I (eq. 3.2) with eta = 1/L.

    >>> fedac_one(25, 1, 25)
    Momentum(eta=Decimal('0.04'), gamma=Decimal('0.04'))
    """
    _check(L, mu, local_steps)
    eta = 1 / Decimal(L)
    return Momentum(eta, max((eta / (Decimal(mu) * local_steps)).sqrt(), eta))


def unstable_objective(L: float, mu: float, K: int, method: Momentum | None = None) -> Bumps:
    """The objective of Lemma 3.25: along the method's 3K steps from 1 the curvature is mu, L, mu, mu, L, mu, ...

    method: AGD if None; any other gets an objective of its own.

    >>> len(unstable_objective(25, 1, K=4).intervals)
    4
    """
    _check(L, mu, K)
    method = method or standard_agd(L, mu)
    with decimal.localcontext() as context:
        context.prec = 50 + DIGITS * K
        made = Bumps(Decimal(L), Decimal(mu))
        points = _middles(method, made, K)
        for k in range(K):
            here = points[3 * k + 1]
            radius = min(abs(here - w) for t, w in enumerate(points) if t != 3 * k + 1) * SHRINK
            if not radius:
                raise FedaxError("two points of the path coincide, and the construction needs them apart")
            while True:
                tilde = dataclasses.replace(made, intervals=(*made.intervals, (here, radius)))
                centre = _middles(method, tilde, K)[3 * k + 1]
                new = dataclasses.replace(made, intervals=(*made.intervals, (centre, radius)))
                moved = _middles(method, new, K)
                if new.margin(moved) > radius / 2:
                    break
                radius *= SHRINK
            made, points = new, moved
    return made


def separation(F: Bumps, method: Momentum, K: int) -> list[tuple[float, float]]:
    """The difference of two runs, in x and in x_ag, in units of what they start with, after 0, 1, ... 3K steps.

    One starts at x = x_ag = 1, the other below it by so little that both see the same curvatures.

    >>> F = unstable_objective(25, 1, K=10)
    >>> x, x_ag = separation(F, standard_agd(25, 1), K=10)[-1]
    >>> round(x, 3), round(x_ag, 3)  # 1.024^10 times (sqrt(kappa) + 1) / 2 and (1 + 1 / sqrt(kappa)) / 2
    (3.803, 0.761)
    """
    with decimal.localcontext() as context:
        context.prec = 100 + 2 * DIGITS * K
        one = method.run(F, Decimal(1), Decimal(1), 3 * K)
        room = F.margin([x_md for _, _, x_md in one[:-1]])
        epsilon = abs(room) / (1 + F.L / F.mu) / Decimal(4) ** K
        start = 1 - epsilon
        other = method.run(F, start, start, 3 * K)
        return [
            (float((a[0] - b[0]) / epsilon), float((a[1] - b[1]) / epsilon)) for a, b in zip(one, other, strict=True)
        ]


def _middles(method: Momentum, F: Bumps, K: int) -> list[Decimal]:
    return [x_md for _, _, x_md in method.run(F, Decimal(1), Decimal(1), 3 * K)[:-1]]


def _check(L: float, mu: float, K: int) -> None:
    if not mu > 0:
        raise FedaxError(f"mu must be above 0, not {mu}: the theorem is for strongly convex problems")
    if mu > L:
        raise FedaxError(f"L must be at least mu = {mu}, not {L}")
    if K < 1:
        raise FedaxError(f"the number of steps must be a whole number from 1 on, not {K}")
