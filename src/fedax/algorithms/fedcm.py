"""FedCM: every local step leans on the last round's mean direction.

Objective:  min over x of  (1/n) sum_i f_i(x)

                                                             Xu et al. 2021, the listing of FedCM, by statement:
    client, K times:  v = alpha g_i(x_i) + (1 - alpha) D              the local step's direction v
                      x_i <- x_i - lr v                               the local step
                      x_i - x goes up                                 the client's last, its change
    server:           D <- mean_i(x - x_i) / (K lr)                   the server's first, on a gradient's scale
                      x <- x + server_lr mean_i(x_i - x)              the server's second

D starts at 0, so the first round's steps are alpha times FedAvg's. The paper writes the server's second as
x - eta_g D, whose rate is K lr times server_lr here; server_lr = 1 is the plain mean. Where lr changes from
step to step, or clients work unequally, K lr is the mean over the cohort of the sum of the rates taken: one
number that goes up beside the change. At rest D = 0 and the clients take FedAvg's steps with the rate
alpha lr, so with K > 1 and clients that differ the limit is FedAvg's for that rate, not the minimiser.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import Algorithm, Context, Rate, algorithm, number, rate
from fedax.algorithms.claims import Reduction
from fedax.vectors import Vector, scalar, zeros


@algorithm
class FedCM(Algorithm):
    """min over x of (1/n) sum_i f_i(x), by local SGD with the global momentum in every step.

    lr: client rate, above 0; below 1/L for smooth losses.
    alpha: weight of the fresh gradient, in (0, 1]; 1 is FedAvg, 0.1 is usual.
    server_lr: server rate, above 0; 1 takes the plain mean of the clients' models.

    Sends x and D down (2 d floats), x_i - x and one number up (d + 1 floats); a client keeps nothing.

    >>> FedCM(lr=0.1)
    FedCM(lr=0.1, alpha=0.1, server_lr=1.0)
    """

    lr: Rate = rate()
    alpha: float = number("(0, 1]", default=0.1, tune=(0.05, 0.1, 0.5))
    server_lr: Rate = rate(default=1.0)

    reference = "Xu et al. 2021 (FedCM)"
    sends_way = True
    claims = (Reduction("FedAvg", when={"alpha": 1.0}),)

    def init(self, x0: Vector) -> tuple[Vector, Vector]:
        return x0, zeros(x0)

    def begin(self, message: tuple[Vector, Vector], client: Any, ctx: Context) -> Any:
        x, _ = message
        return x, scalar(0, x)

    def step(self, local: Any, oracle: Any, message: Any, client: Any, ctx: Context) -> Any:
        (x_i, travelled), (_, direction) = local, message
        blend = self.alpha * oracle.grad(x_i) + (1 - self.alpha) * direction
        return x_i - self.lr * blend, travelled + self.lr

    def finish(self, local: Any, oracle: Any, message: Any, client: Any, ctx: Context) -> Any:
        (x_i, travelled), (x, _) = local, message
        return (x_i - x, travelled), client

    def update(self, server: Any, upload: Any, ctx: Context) -> Any:
        (x, _), (delta, travelled) = server, upload
        return x + self.server_lr * delta, -delta / travelled

    def model(self, server: Any) -> Vector:
        x: Vector = server[0]
        return x
