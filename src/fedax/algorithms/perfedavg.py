"""Per-FedAvg: a shared start from which one gradient step on each client's data gives its own model.

Objective:  min over w of  (1/n) sum_i f_i(w - alpha grad f_i(w))

                                                             Fallah et al. 2020, Algorithm 1, its statements counted:
    client, K times, three independent minibatches D, D' and D'':
        a = w - alpha grad f_D(w)                                a local step's first two: gradient, adapted point
        w <- w - lr (I - alpha H_D''(w)) grad f_D'(a)            a local step's third
    server:  w <- mean_i(w_i)                                    the round's last

order: "exact" takes the Hessian-vector product by automatic differentiation; "hessian-free" takes the paper's
(grad f(w + delta g) - grad f(w - delta g)) / (2 delta) for it, g = grad f_D'(a), both on D''; "first" leaves the
Hessian out. D' is the step's own minibatch, which makes alpha = 0 FedAvg step for step. The client's own model is one
step of length alpha from the server's w with its full local gradient, on training rows alone.

order = "two-steps" is what the published program of Deng et al. 2020 compares with under this name. It takes no
gradient of an adapted loss, but two plain steps, and reports the client's model before the server averages:
        w <- w - alpha grad f_D(w);  w <- w - lr grad f_D'(w)
The client's own model is then its last w_i, which it keeps; one that joins late takes the personal step instead.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import WEIGHT, Algorithm, Context, Oracle, Rate, algorithm, choice, number, rate
from fedax.algorithms.claims import Reduction
from fedax.vectors import Vector


@algorithm
class PerFedAvg(Algorithm):
    """min over w of (1/n) sum_i f_i(w - alpha grad f_i(w)).

    lr: rate, above 0.
    alpha: length of the personal step, from 0 on; 0 is FedAvg. At most 1/L.
    order: "exact", "first" or "hessian-free"; "two-steps" for plain steps of alpha and lr in place of the formula.
    delta: of the Hessian-free difference, above 0.

    Sends w down and w_i - w up (d floats each way); a client keeps nothing and finds its model from w, but for
    "two-steps", where it keeps w_i (d floats).

    >>> PerFedAvg(lr=0.1, alpha=0.05)
    PerFedAvg(lr=0.1, alpha=0.05, order='exact', delta=0.001)
    """

    lr: Rate = rate()
    alpha: float = number("[0, inf)", tune=WEIGHT, around=0.03)
    order: str = choice("exact", "first", "hessian-free", "two-steps", default="exact")
    delta: float = number("(0, inf)", default=1e-3)

    personalised = True
    reference = "Fallah, Mokhtari and Ozdaglar 2020, Algorithm 1"
    claims = (Reduction("FedAvg", when={"alpha": 0.0}),)

    def adapted(self, w: Vector, oracle: Oracle) -> Vector:
        """One gradient step of length alpha."""
        return w - self.alpha * oracle.grad(w)

    @property
    def keeps(self) -> bool:
        """Whether a client keeps its own model."""
        return self.order == "two-steps"

    def client_init(self, x0: Vector) -> Any:
        return x0 if self.keeps else ()

    def step(self, w: Vector, oracle: Oracle, message: Vector, client: Any, ctx: Context) -> Vector:
        a = self.adapted(w, oracle.fresh(1))
        g = oracle.grad(a)
        if self.keeps:
            return a - self.lr * g
        if self.order == "first":
            return w - self.lr * g
        return w - self.lr * (g - self.alpha * self._curvature(w, g, oracle.fresh(2)))

    def _curvature(self, w: Vector, g: Vector, oracle: Oracle) -> Vector:
        """H(w) g."""
        if self.order == "exact":
            return oracle.hvp(w, g)
        shift = self.delta * g
        return (oracle.grad(w + shift) - oracle.grad(w - shift)) / (2 * self.delta)

    def finish(self, w: Vector, oracle: Oracle, message: Vector, client: Any, ctx: Context) -> Any:
        return w - message, w if self.keeps else client

    def update(self, w: Vector, delta: Vector, ctx: Context) -> Vector:
        return w + delta

    def personal(self, w: Vector, client: Any, oracle: Oracle) -> Vector:
        own: Vector = client if self.keeps else self.adapted(w, oracle.full)
        return own

    def join(self, w: Vector, client: Any, oracle: Oracle, steps: Any) -> Any:
        return self.adapted(w, oracle.full) if self.keeps else client
