"""Minibatch SGD, plain and accelerated: one step a round on all of the round's gradients.

Objective:  min over x of  (1/n) sum_i f_i(x),  for the accelerated one mu-strongly convex

                                                                        Yuan's thesis, section 3.7.1:
    client:           g_i = the mean of K minibatch gradients, all at the same point
    MinibatchSGD:     x <- x - lr mean_i(g_i)                                      Algorithm 1, line 8
    MinibatchAccSGD:  x_md = x / beta + (1 - 1/beta) x_ag, where g_i is taken      Algorithm 2, line 7
                      x_ag <- x_md - lr mean_i(g_i)                                line 9
                      x <- (1 - 1/alpha) x + x_md / alpha - gamma mean_i(g_i)      line 10
                      gamma = sqrt(lr / mu), alpha = 1 / (gamma mu), beta = alpha + 1

Section 3.7.1 has no listing of its own: it runs SGD and accelerated SGD with the minibatches of a round as
one, that is FedAvg (Algorithm 1) and FedAc (Algorithm 2) with K = 1 and that mean for the gradient.

As many gradients and messages as the local methods with K steps, but one step where they take K. The thesis
says only that mu fixes the accelerated method's parameters; these are those of its published table, and of
vanilla FedAc with K = 1. A rate that changes is that of the round; beta, which prepares the next round's
x_md, is that of the round before.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import WEIGHT, Algorithm, Context, Rate, algorithm, number, rate
from fedax.algorithms.claims import Optimum, Reduction
from fedax.vectors import Vector, sqrt, zeros


@algorithm
class MinibatchSGD(Algorithm):
    """min over x of (1/n) sum_i f_i(x), by one SGD step a round on all the cohort's minibatches.

    lr: rate, above 0; below 1/L for smooth losses.

    Sends x down and the mean gradient up (d floats each way); a client keeps nothing.

    >>> MinibatchSGD(lr=0.1)
    MinibatchSGD(lr=0.1)
    """

    lr: Rate = rate()

    reference = "Yuan's thesis, section 3.7.1"
    claims = (
        Optimum("full"),
        Reduction("FedAvg", local_steps=1),
    )

    def begin(self, x: Vector, client: Any, ctx: Context) -> Vector:
        return zeros(x)

    def step(self, total: Vector, oracle: Any, x: Vector, client: Any, ctx: Context) -> Any:
        return total + oracle.grad(x)

    def finish(self, total: Vector, oracle: Any, x: Vector, client: Any, ctx: Context) -> tuple[Vector, Any]:
        return total / ctx.steps, client

    def update(self, x: Any, g: Vector, ctx: Context) -> Any:
        return x - self.lr * g


@algorithm
class MinibatchAccSGD(MinibatchSGD):
    """min over x of (1/n) sum_i f_i(x), mu-strongly convex, by one accelerated SGD step a round.

    lr: rate eta, above 0; at most 1/L.
    mu: strong convexity, above 0: the weight of an l2 regularizer, if there is one.

    Sends x_md down and the mean gradient up (d floats each way); a client keeps nothing, the server x, x_ag
    and x_md. The model is x_ag.

    >>> MinibatchAccSGD(lr=0.1, mu=0.001)
    MinibatchAccSGD(lr=0.1, mu=0.001)
    """

    lr: Rate = rate()
    mu: float = number("(0, inf)", tune=WEIGHT, around=0.01)

    claims = (
        Optimum("full", when={"mu": 0.1}),
        Reduction("FedAc", other={"variant": "vanilla"}, local_steps=1),
    )

    def init(self, x0: Vector) -> tuple[Vector, Vector, Vector]:
        return x0, x0, x0

    def broadcast(self, server: Any) -> Any:
        return server[2]

    def update(self, server: Any, g: Vector, ctx: Context) -> Any:
        x, _, x_md = server
        lr: Any = self.lr
        gamma = sqrt(lr / self.mu)
        by_alpha = gamma * self.mu
        by_beta = by_alpha / (1 + by_alpha)
        x_ag = x_md - lr * g
        x = (1 - by_alpha) * x + by_alpha * x_md - gamma * g
        return x, x_ag, by_beta * x + (1 - by_beta) * x_ag

    def model(self, server: Any) -> Vector:
        x_ag: Vector = server[1]
        return x_ag
