"""SCAFFOLD: control variates take the clients' disagreement out of the local steps.

Objective:  min over x of  (1/n) sum_i f_i(x)

                                                           Karimireddy et al. 2020, Algorithm 1:
    client, K times:  y <- y - lr (g_i(y) - c_i + c)                                lines 9 and 10
    then, option I:   c_i+ = grad f_i(x), of all its rows, at the server's model    line 12 (i)
       or option II:  c_i+ = c_i - c + (x - y) / (K lr)                             line 12 (ii)
                      c_i <- c_i+, and y - x and c_i+ - c_i go up                   lines 13 and 14
    server:           x <- x + server_lr mean_i(y_i - x)                            lines 16 and 17
                      c <- c + (m/n) mean_i(c_i+ - c_i)                             lines 16 and 17

K is the client's own number of steps, so with unequal work each client divides by its own. Where lr changes
from step to step, K lr is the sum of the rates that were taken, which is what makes
(x - y) / (K lr) the mean of the client's corrected gradients.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import Algorithm, Context, Oracle, Rate, algorithm, choice, rate
from fedax.algorithms.claims import Optimum, Reduction
from fedax.vectors import Vector, scalar, zeros


@algorithm
class SCAFFOLD(Algorithm):
    """min over x of (1/n) sum_i f_i(x), by local SGD corrected with control variates.

    lr: client rate, above 0; of the order of 1/(L K).
    server_lr: server rate, above 0.
    option: "II" reuses the round's gradients, "I" spends one pass over the client's rows on an exact c_i.

    Sends x and c down, y - x and c_i+ - c_i up (2 d floats each way); a client keeps c_i.

    >>> SCAFFOLD(lr=0.1)
    SCAFFOLD(lr=0.1, server_lr=1.0, option='II')
    """

    lr: Rate = rate()
    server_lr: Rate = rate(default=1.0)
    option: str = choice("II", "I", default="II")

    reference = "Karimireddy et al. 2020, Algorithm 1"
    claims = (
        Optimum("full"),
        Optimum("partial"),
        Reduction("FedAvg", local_steps=1, participation="full"),
    )

    def init(self, x0: Vector) -> tuple[Vector, Vector]:
        return x0, zeros(x0)

    def client_init(self, x0: Vector) -> Vector:
        return zeros(x0)

    def begin(self, message: tuple[Vector, Vector], c_i: Vector, ctx: Context) -> Any:
        x, _ = message
        return x, scalar(0, x)

    def step(self, local: Any, oracle: Oracle, message: Any, c_i: Vector, ctx: Context) -> Any:
        (y, travelled), (_, c) = local, message
        # c - c_i is the same in every step, and in brackets XLA computes it once.
        return y - self.lr * (oracle.grad(y) + (c - c_i)), travelled + self.lr

    def finish(self, local: Any, oracle: Oracle, message: Any, c_i: Vector, ctx: Context) -> Any:
        (y, travelled), (x, c) = local, message
        new = oracle.full.grad(x) if self.option == "I" else c_i - c + (x - y) / travelled
        return (y - x, new - c_i), new

    def update(self, server: Any, upload: Any, ctx: Context) -> Any:
        (x, c), (delta, delta_c) = server, upload
        return x + self.server_lr * delta, c + (ctx.cohort / ctx.clients) * delta_c

    def model(self, server: Any) -> Vector:
        x: Vector = server[0]
        return x
