"""APFL: each client mixes a model of its own with the shared one, and may learn the weight.

Objective:  shared  w* = argmin over w of (1/n) sum_i f_i(w)                               eq. 3
            own     min over v of f_i(alpha v + (1 - alpha) w*)                            eq. 4

    client, K times, one minibatch, all at the old point, vbar = alpha v + (1 - alpha) w:  Algorithm 1, eq. 5
        w <- P(w - lr grad f_i(w))
        v <- P(v - lr alpha grad f_i(vbar))          the factor alpha is the chain rule's
    once a round, at its first step:                                                       eq. 6
        alpha <- clip(alpha - lr <v - w, grad f_i(vbar)>, 0, 1)
    server:  w <- mean_i(w_i)

P projects onto the ball of `radius` (the paper asks for a bounded domain; None leaves it out). The personal
model is vbar with the server's w. alpha = 0 is FedAvg, alpha = 1 is training without federation.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import Algorithm, Context, Oracle, Rate, algorithm, flag, number, rate
from fedax.algorithms.claims import Reduction
from fedax.vectors import Vector, ball, clip, scalar, where


@algorithm
class APFL(Algorithm):
    """min over v of f_i(alpha v + (1 - alpha) w*) on each client, w* the shared minimiser.

    lr: rate of both models and of alpha, above 0.
    alpha: mixing weight in [0, 1]; 0 is the shared model, 1 the client's own.
    adaptive: learn alpha on each client, from `alpha` on.
    radius: of the ball that w and v are projected onto, above 0; None for no projection.

    Sends w down and w_i - w up (d floats each way); a client keeps v and its alpha.

    >>> APFL(lr=0.1, alpha=0.25)
    APFL(lr=0.1, alpha=0.25, adaptive=False, radius=None)
    """

    lr: Rate = rate()
    alpha: float = number("[0, 1]", default=0.5)
    adaptive: bool = flag(default=False)
    radius: float | None = number("(0, inf)", default=None, optional=True)

    personalised = True
    reference = "Deng, Kamani and Mahdavi 2020, Algorithm 1, eq. 5 and 6"
    keeps = "its own model v and its weight alpha"
    gradients = 2
    claims = (
        Reduction("FedAvg"),
        Reduction("FedAvg", when={"alpha": 0.0}, model="personal"),
        Reduction("LocalOnly", when={"alpha": 1.0}, model="personal"),
    )

    def client_init(self, x0: Vector) -> Any:
        return x0, scalar(self.alpha, x0)

    def begin(self, w: Vector, client: Any, ctx: Context) -> Any:
        return w, client

    def step(self, local: Any, oracle: Oracle, message: Vector, client: Any, ctx: Context) -> Any:
        w, (v, alpha) = local
        g = oracle.grad(alpha * v + (1 - alpha) * w)
        new = self._project(v - self.lr * alpha * g)
        if self.adaptive:
            learnt = clip(alpha - self.lr * ((v - w) @ g), 0.0, 1.0)
            alpha = where(ctx.step == 0, learnt, alpha)
        return self._project(w - self.lr * oracle.grad(w)), (new, alpha)

    def finish(self, local: Any, oracle: Oracle, message: Vector, client: Any, ctx: Context) -> Any:
        w, own = local
        return w - message, own

    def update(self, w: Vector, delta: Vector, ctx: Context) -> Vector:
        return w + delta

    def personal(self, w: Vector, client: Any, oracle: Oracle) -> Vector:
        v, alpha = client
        mixed: Vector = alpha * v + (1 - alpha) * w
        return mixed

    def _project(self, x: Vector) -> Vector:
        return x if self.radius is None else ball(x, self.radius)
