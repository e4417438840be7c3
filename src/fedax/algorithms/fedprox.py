"""FedProx: local SGD held near the server's model by a quadratic.

Objective:  min over x of  (1/n) sum_i f_i(x)

                                                                   Li et al. 2020, Algorithm 2:
    client, K times:  x_i <- x_i - lr (g_i(x_i) + mu (x_i - x))    line 4
                      K gradient steps on f_i(z) + (mu/2) ||z - x||^2, started at x
    server:           x   <- x + server_lr mean_i(x_i - x)         line 6, with a rate of its own

(The listing has no numbers: lines counted from its first statement, the loop over rounds.) Line 4 asks for any
inexact minimiser and names no solver; here it is K steps of SGD. Line 6 is the plain mean of x_i, over clients
that line 2 draws with probabilities in proportion to their rows. The norm is squared: without the square the
pull would not fade near x. A larger mu shortens the clients' drift but does not remove it: with K > 1 and
clients that differ the limit is not the minimiser.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import WEIGHT, Algorithm, Context, Rate, algorithm, choice, number, rate
from fedax.algorithms.claims import Reduction
from fedax.vectors import Vector, maximum, norm

TINY = 1e-12  # where the norm has no gradient the pull is zero


@algorithm
class FedProx(Algorithm):
    """min over x of (1/n) sum_i f_i(x), by local SGD on f_i + (mu/2) ||. - x||^2 and averaging.

    lr: client rate, above 0; below 1/(L + mu) for smooth losses.
    mu: weight of the proximal term, from 0 on; 0 is FedAvg. Try 0.001 to 1, larger the more clients differ.
    server_lr: server rate, above 0; 1 takes the plain mean of the clients' models.
    norm: "squared", or "plain" for mu ||. - x||, which is not FedProx but what some listings print.

    Sends x down and x_i - x up (d floats each way); a client keeps nothing.

    >>> FedProx(lr=0.1, mu=0.01)
    FedProx(lr=0.1, mu=0.01, server_lr=1.0, norm='squared')
    """

    lr: Rate = rate()
    mu: float = number("[0, inf)", tune=WEIGHT, around=0.1)
    server_lr: Rate = rate(default=1.0)
    norm: str = choice("squared", "plain", default="squared")

    reference = "Li et al. 2020, Algorithm 2"
    claims = (
        Reduction("FedAvg", when={"mu": 0.0}),
        Reduction("FedAvg", local_steps=1),
    )

    def step(self, x_i: Vector, oracle: Any, x: Vector, client: Any, ctx: Context) -> Any:
        if self.norm == "plain":
            return x_i - self.lr * (oracle.grad(x_i) + self.mu / maximum(norm(x_i - x), TINY) * (x_i - x))
        return x_i - self.lr * (oracle.grad(x_i) + self.mu * (x_i - x))

    def finish(self, x_i: Vector, oracle: Any, x: Vector, client: Any, ctx: Context) -> tuple[Vector, Any]:
        return x_i - x, client

    def update(self, x: Vector, delta: Vector, ctx: Context) -> Vector:
        return x + self.server_lr * delta
