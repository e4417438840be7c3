"""FedDeper: a personal model on each client, used in reverse to keep the uploaded one global.

Objective:  shared  min over x of (1/n) sum_i f_i(x)
            own     min over v of f_i(v), from a start that the shared model keeps pulling back

    client, K times, one minibatch:                                 Zhou et al. 2022, Algorithm 1
        y <- y - lr g_i(y) - rho (v + y - 2x)      with the v before its own step     line 7
        v <- v - lr g_i(v)                                                            line 8
    then:  v <- (1 - lam) v + lam y                                                   line 10
    server:  x <- x + mean_i(y_i - x)                                                 line 14

y starts at x in each round, v where line 10 left it (at x0 at first); a client that sits out keeps v (line
13). Line 7 is a step of rate lr on f_i(y) + rho / (2 lr) ||v + y - 2x||^2, so that rho is a share of the
distance: a schedule of lr leaves it as it is. The paper does not say whether both gradients of a step see
the same minibatch; here they do. The personal model is the kept v, after line 10; a client that joins after
training has no y to mix with, so that it takes line 8 alone, from the shared model.

FedDeper* is the same method with half the local steps, hence as many gradients as FedAvg: set local_steps to
half.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import WEIGHT, Algorithm, Context, Rate, algorithm, number, rate, within
from fedax.algorithms.claims import Reduction
from fedax.algorithms.local_only import train
from fedax.bounds import Given, Theorem, feddeper_theorem_1
from fedax.errors import FedaxError
from fedax.vectors import Vector

PROVEN = "[0.5, 1]"
STEADY = 1.5  # K rho n / (m lam): 1.2 was seen to converge, 2 to blow up


@algorithm
class FedDeper(Algorithm):
    """min over x of (1/n) sum_i f_i(x), by local SGD pushed away from each client's own model v.

    lr: rate of both models, above 0; below 1/L for smooth losses.
    rho: weight of the depersonalizing term, from 0 on; 0 is FedAvg. Of the order of lr, at most lr L: the
        paper's 0.03 (10 clients) and 0.005 (100 clients) go with lr 0.01. With m of n clients a round it blows up
        where K rho n / (m lam) is well above 1 (docs/findings.md).
    lam: how much of y the next v takes over, in [1/2, 1]; 1 forgets v. 0.5 is the paper's.

    Sends x down and y - x up (d floats each way); a client keeps v. Takes two gradients a step: FedDeper* is
    this method with half the local steps.

    >>> FedDeper(lr=0.01, rho=0.005)
    FedDeper(lr=0.01, rho=0.005, lam=0.5)
    >>> FedDeper(lr=0.01, rho=0.005, lam=0.2)
    Traceback (most recent call last):
    fedax.errors.FedaxError: FedDeper: lam must be in [0.5, 1], not 0.2: the paper proves convergence there
    """

    lr: Rate = rate()
    rho: float = number("[0, inf)", tune=WEIGHT, around=0.01)
    lam: float = number(PROVEN, default=0.5)

    personalised = True
    reference = "Zhou et al. 2022, Algorithm 1"
    claims = (
        Reduction("FedAvg", when={"rho": 0.0}),
        Reduction("FedAvg", when={"lam": 1.0}, local_steps=1, participation="full"),
    )

    def __post_init__(self) -> None:
        if type(self.lam) in (int, float) and not within(self.lam, PROVEN):
            given = f"must be in {PROVEN}, not {self.lam}"
            raise FedaxError(f"FedDeper: lam {given}: the paper proves convergence there")
        super().__post_init__()

    def advice(self, ctx: Context, smoothness: Any) -> str | None:
        growth = ctx.steps * self.rho * ctx.clients / (ctx.cohort * self.lam)
        if growth < STEADY:
            return None
        return (
            f"FedDeper: steps * rho * clients / (cohort * lam) is {growth:.3g}, and well above 1 the method is likely "
            f"to blow up: rho below {self.rho / growth:.2g}, fewer steps or more clients a round help"
        )

    def client_init(self, x0: Vector) -> Vector:
        return x0

    def begin(self, x: Vector, v: Vector, ctx: Context) -> tuple[Vector, Vector]:
        return x, v

    def step(self, local: Any, oracle: Any, x: Vector, client: Vector, ctx: Context) -> Any:
        y, v = local
        pushed = y - self.lr * oracle.grad(y) - self.rho * (v + y - 2 * x)
        return pushed, v - self.lr * oracle.grad(v)

    def finish(self, local: Any, oracle: Any, x: Vector, client: Vector, ctx: Context) -> Any:
        y, v = local
        return y - x, (1 - self.lam) * v + self.lam * y

    def update(self, x: Vector, delta: Vector, ctx: Context) -> Vector:
        return x + delta

    def personal(self, x: Vector, v: Vector, oracle: Any) -> Vector:
        return v

    def join(self, x: Vector, v: Vector, oracle: Any, steps: Any) -> Vector:
        return train(x, self.lr, oracle, steps)

    @classmethod
    def theorem(cls, given: Given) -> Theorem:
        bound = given.into(feddeper_theorem_1, spread=given.zeta)
        return Theorem(bound, {"lr": bound.lr, "rho": bound.lr * given.L})
