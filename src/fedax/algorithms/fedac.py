"""FedAc: accelerated SGD on each client, with a momentum that averaging does not upset.

Objective:  min over x of  (1/n) sum_i f_i(x),  mu-strongly convex

                                                                              Yuan's thesis, Algorithm 2:
    client, K times:  x_md = x / beta + (1 - 1/beta) x_ag                     line 7
                      x_ag <- x_md - lr g_i(x_md)                             lines 8 and 9
                      x <- (1 - 1/alpha) x + x_md / alpha - gamma g_i(x_md)   line 10
    server:           the means of x and of x_ag; the model is x_ag           line 11

    variant I:        gamma = max(sqrt(lr / (mu K)), lr)                      eq. 3.2
                      alpha = 1 / (gamma mu), beta = alpha + 1
    variant II:       gamma as in I                                           eq. 3.3
                      alpha = 3 / (2 gamma mu) - 1/2, beta = (2 alpha^2 - 1) / (alpha - 1)
    vanilla:          gamma = sqrt(lr / mu), alpha and beta as in I           section 3.7.3

Vanilla is plain accelerated SGD, which parts from itself between two communications: two starts a hair apart
separate exponentially in K. The smaller gamma of I and II trades speed for stability. With mu lr K >= 1,
gamma is lr and variant I is FedAvg. The published code has beta = 2 alpha^2 / (alpha - 1) in variant II;
the proof (the step after eq. B.10) needs the -1.

For an objective that is convex only, `augment` runs the method on F(x) + (mu/2) ||x - x0||^2 (section 3.3.3),
which is mu-strongly convex; it moves the minimiser towards x0 by an amount that shrinks with mu.

The theory is for clients with the same distribution. With K > 1 and clients that differ the limit is, as
FedAvg's, not the minimiser. K is a client's own number of steps; with unequal work so is its gamma.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import WEIGHT, Algorithm, Context, Rate, algorithm, choice, flag, number, rate
from fedax.algorithms.claims import Reduction
from fedax.bounds import Given, Theorem, theorem_3_1, theorem_b_21, theorem_b_22
from fedax.errors import FedaxError
from fedax.vectors import Vector, maximum, sqrt


@algorithm
class FedAc(Algorithm):
    """min over x of (1/n) sum_i f_i(x), mu-strongly convex, by local accelerated SGD and averaging.

    lr: rate eta, above 0; at most 1/L.
    mu: strong convexity, above 0: the weight of an l2 regularizer, if there is one.
    variant: "I" is the default, "II" communicates less on problems near to quadratics, "vanilla" is
        accelerated SGD without the trade-off, for comparison.
    augment: minimise F + (mu/2) ||. - x0||^2 instead, for an F that is convex only; mu is then free, about
        the error that may remain divided by the squared distance from x0.

    Sends x and x_ag down, their changes up (2 d floats each way); a client keeps nothing, or x0 with augment.

    >>> FedAc(lr=0.1, mu=0.001)
    FedAc(lr=0.1, mu=0.001, variant='I', augment=False)
    """

    lr: Rate = rate()
    mu: float = number("(0, inf)", tune=WEIGHT, around=0.01)
    variant: str = choice("I", "II", "vanilla", default="I")
    augment: bool = flag(default=False)

    reference = "Yuan's thesis, Algorithm 2, eq. 3.2 and 3.3"
    claims = (
        Reduction("FedAvg", when={"mu": 100.0, "variant": "I", "augment": False}),
        Reduction("MinibatchAccSGD", when={"variant": "vanilla", "augment": False}, local_steps=1),
    )

    def init(self, x0: Vector) -> tuple[Vector, Vector]:
        return x0, x0

    def client_init(self, x0: Vector) -> Any:
        return x0 if self.augment else ()

    def coefficients(self, steps: Any) -> tuple[Any, Any, Any]:
        """gamma, 1/alpha and 1/beta."""
        lr: Any = self.lr
        gamma = sqrt(lr / self.mu) if self.variant == "vanilla" else maximum(sqrt(lr / (self.mu * steps)), lr)
        share = gamma * self.mu
        if self.variant == "II":
            alpha = 1.5 / share - 0.5
            return gamma, 1 / alpha, (alpha - 1) / (2 * alpha**2 - 1)
        return gamma, share, share / (1 + share)

    def step(self, local: Any, oracle: Any, message: Any, x0: Any, ctx: Context) -> Any:
        x, x_ag = local
        gamma, by_alpha, by_beta = self.coefficients(ctx.steps)
        x_md = by_beta * x + (1 - by_beta) * x_ag
        g = oracle.grad(x_md)
        if self.augment:
            g = g + self.mu * (x_md - x0)
        return (1 - by_alpha) * x + by_alpha * x_md - gamma * g, x_md - self.lr * g

    def finish(self, local: Any, oracle: Any, message: Any, x0: Any, ctx: Context) -> Any:
        return (local[0] - message[0], local[1] - message[1]), x0

    def update(self, server: Any, upload: Any, ctx: Context) -> Any:
        return server[0] + upload[0], server[1] + upload[1]

    def model(self, server: Any) -> Vector:
        x_ag: Vector = server[1]
        return x_ag

    @classmethod
    def theorem(cls, given: Given) -> Theorem:
        """Theorem 3.1 for a strongly convex loss, else B.21 or B.22, whose weight of the anchor is taken for mu.

        Part (a) and B.21 are about variant I, part (b) and B.22 about variant II; the vanilla one has no theorem.
        """
        variant = given.choices.get("variant", "I")
        if variant == "vanilla":
            raise FedaxError("the thesis has no theorem on the vanilla variant: its acceleration is not stable")
        if given.mu > 0:
            distance = given.mu / (2 if variant == "I" else 6) * given.B**2
            bound = given.into(theorem_3_1, potential=given.Delta + distance, variant=variant)
            return Theorem(bound, {"lr": bound.lr, "mu": given.mu})
        bound, weight = given.into(theorem_b_21 if variant == "I" else theorem_b_22)
        return Theorem(bound, {"lr": bound.lr, "mu": weight, "augment": True})
