"""Ditto: FedAvg, and beside it a model on each client that is held near the shared one.

Objective:  shared  x* = argmin over x of (1/n) sum_i f_i(x)
            own     min over v of f_i(v) + (lam/2) ||v - x*||^2

                                                             Li et al. 2021, Algorithm 1, its statements counted:
    client, K times:               x_i <- x_i - lr g_i(x_i)       the device's first, UPDATE_GLOBAL from the server's x
    client, personal_steps times:
            v <- v - personal_lr (g_i(v) + lam (v - x))           the device's second, its s local iterations
                                   x_i - x goes up                the device's third
    server:                        x <- x + mean_i(x_i - x)       the round's last, AGGREGATE

The paper leaves UPDATE_GLOBAL and AGGREGATE open; here they are FedAvg's. v is pulled towards the x that the round
began with. With personal_steps = None v takes one step with each step of x_i and on the same minibatch, as the
authors' program does; a number makes that many after the K steps, on minibatches of their own. A client
that joins after training starts its v at the shared model. lam = 0 is training without federation; as lam grows v
stays at x.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import WEIGHT, Algorithm, Context, Oracle, Rate, algorithm, integer, number, rate
from fedax.algorithms.claims import Reduction
from fedax.vectors import Vector, repeat


@algorithm
class Ditto(Algorithm):
    """min over v of f_i(v) + (lam/2) ||v - x*||^2 on each client, x* the shared minimiser.

    lr: rate of the shared model, above 0.
    lam: pull of v towards the shared model, from 0 on; 0 is LocalOnly. The authors' program tries 0.1, 1 and 2.
    personal_lr: rate of v, above 0 and below 2/(L + lam); None for lr.
    personal_steps: steps of v a round, at least 1; None for one beside each local step.

    Sends x down and x_i - x up (d floats each way); a client keeps v.

    >>> Ditto(lr=0.1, lam=1.0)
    Ditto(lr=0.1, lam=1.0, personal_lr=None, personal_steps=None)
    """

    lr: Rate = rate()
    lam: float = number("[0, inf)", example=1.0, tune=WEIGHT, around=0.3)
    personal_lr: Rate | None = rate(default=None, optional=True)
    personal_steps: int | None = integer("[1, inf)", default=None, optional=True)

    personalised = True
    reference = "Li et al. 2021, Algorithm 1"
    claims = (
        Reduction("FedAvg"),
        Reduction("LocalOnly", when={"lam": 0.0, "personal_lr": None}, model="personal"),
    )

    def client_init(self, x0: Vector) -> Vector:
        return x0

    def begin(self, x: Vector, v: Vector, ctx: Context) -> tuple[Vector, Vector]:
        return x, v

    def step(self, local: Any, oracle: Oracle, x: Vector, client: Vector, ctx: Context) -> Any:
        x_i, v = local
        return x_i - self.lr * oracle.grad(x_i), self.pulled(v, x, oracle) if self.personal_steps is None else v

    def finish(self, local: Any, oracle: Oracle, x: Vector, client: Vector, ctx: Context) -> Any:
        x_i, v = local
        return x_i - x, v if self.personal_steps is None else self._train(v, x, oracle, self.personal_steps)

    def update(self, x: Vector, delta: Vector, ctx: Context) -> Vector:
        return x + delta

    def personal(self, x: Vector, v: Vector, oracle: Oracle) -> Vector:
        return v

    def join(self, x: Vector, v: Vector, oracle: Oracle, steps: Any) -> Vector:
        return self._train(x, x, oracle, steps)

    def pulled(self, v: Vector, x: Vector, oracle: Oracle) -> Vector:
        """One step of the client's own model."""
        lr = self.lr if self.personal_lr is None else self.personal_lr
        return v - lr * (oracle.grad(v) + self.lam * (v - x))

    def _train(self, v: Vector, x: Vector, oracle: Oracle, steps: Any) -> Vector:
        return repeat(steps, lambda n, v: self.pulled(v, x, oracle.fresh(n + 1)), v)
