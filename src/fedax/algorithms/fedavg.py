"""FedAvg: local SGD on each client, the mean of the changes at the server.

Objective:  min over x of  (1/n) sum_i f_i(x)

                                                                  Yuan's thesis, Algorithm 4:
    client, K times:  x_i <- x_i - lr g_i(x_i)                    lines 7 and 8
    server:           x   <- x + server_lr mean_i(x_i - x)        lines 9 and 10

server_lr = 1 is the classic method: lines 7 to 9 of Algorithm 1 there, and Algorithm 1 of McMahan et al. 2017,
where the client's step is line 11 and the mean, weighted by the clients' rows, line 7 (lines counted from the
algorithm's first statement, "initialize w_0", without the two headings). With K = 1 and server_lr = 1 a round
is one step of minibatch SGD. With K > 1 and clients that differ, the limit is not the minimiser.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import Algorithm, Context, Oracle, Rate, algorithm, rate
from fedax.bounds import Given, Theorem, proposition_2_1, theorem_2_22
from fedax.vectors import Vector


@algorithm
class FedAvg(Algorithm):
    """min over x of (1/n) sum_i f_i(x), by K local SGD steps a round and averaging.

    lr: client rate eta_c, above 0; below 1/L for smooth losses.
    server_lr: server rate eta_s, above 0; 1 takes the plain mean of the clients' models.

    Sends x down and x_i - x up (d floats each way); a client keeps nothing.

    >>> FedAvg(lr=0.1)
    FedAvg(lr=0.1, server_lr=1.0)
    """

    lr: Rate = rate()
    server_lr: Rate = rate(default=1.0)

    reference = "McMahan et al. 2017; Yuan's thesis, Algorithms 1 and 4"

    def step(self, x_i: Vector, oracle: Oracle, x: Vector, client: Any, ctx: Context) -> Vector:
        return x_i - self.lr * oracle.grad(x_i)

    def finish(self, x_i: Vector, oracle: Oracle, x: Vector, client: Any, ctx: Context) -> tuple[Vector, Any]:
        return x_i - x, client

    def update(self, x: Vector, delta: Vector, ctx: Context) -> Vector:
        return x + self.server_lr * delta

    @classmethod
    def theorem(cls, given: Given) -> Theorem:
        if given.convex:
            bound = given.into(proposition_2_1)
            return Theorem(bound, {"lr": bound.lr})
        bound = given.into(theorem_2_22)
        return Theorem(bound, {"lr": bound.lr}, "no gradient may be longer than G: G is the longest that was seen")
