"""FedSpeed: a proximal term with its correction, and gradients taken at a perturbed point.

Objective:  min over x of  (1/n) sum_i f_i(x)

                                                                            Sun et al. 2023, Algorithm 1:
    client, K times:  g1 = g_i(x_i);  g2 = g_i(x_i + rho g1), the same minibatch    lines 7 to 9
                      g~ = (1 - alpha) g1 + alpha g2                                line 10
                      x_i <- x_i - lr (g~ - ghat_i + (x_i - x) / lam)               line 11
                      ghat_i <- ghat_i - (x_i - x) / lam                            line 13
    server:           x <- mean over the cohort of x_i - lam ghat                   lines 14 and 16

Line 16 as printed takes, for ghat, the mean of ghat_i over the cohort. With fewer than all clients that does
not converge: at the minimiser ghat_i = grad f_i(x), whose mean over a cohort is not 0, so x is thrown by
lam times it in every round, however small lr is. With the mean of ghat_i over ALL clients the minimiser is a
fixed point for any cohort; at full participation the two are equal. server="all-clients", the default, is
the latter (the server follows that mean, as ghat_i changes by -(x_i - x) / lam); server="cohort" is the line
as printed.

Without perturbation (rho = 0 or alpha = 0) the default is FedDyn with weight 1 / lam; with it, the fixed
point is that of the perturbed gradients. Lines 7 to 9 perturb by rho g1; the experiments by
rho g1 / ||g1||, which is normalize=True. The experiments' weight of the proximal term, 0.1 or 0.001, is
1 / lam. Theorem 4.4 asks for K >= lam / lr, lr <= 2 lam, lr <= 1 / (32 sqrt(3 K) L) (so that its kappa is
positive) and rho <= 1 / (sqrt(6) alpha L): sufficient only, the experiments themselves take fewer steps.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import WEIGHT, Algorithm, Context, Rate, algorithm, choice, flag, number, rate
from fedax.algorithms.claims import Optimum, Reduction
from fedax.bounds import Given, Theorem, fedspeed_theorem_4_4, positive
from fedax.vectors import Vector, maximum, norm, zeros

TINY = 1e-12  # below any gradient that matters: a zero gradient perturbs by zero


@algorithm
class FedSpeed(Algorithm):
    """min over x of (1/n) sum_i f_i(x), by local SGD with prox-correction and perturbed gradients.

    lr: client rate, above 0; below 1/(L + 1/lam) for smooth losses.
    lam: inverse weight of the proximal term, above 0; the paper's is 10 for 100 clients and 1000 for 500.
    rho: size of the perturbation, from 0 on; 0.1 is the paper's with normalize. 0 takes none.
    alpha: weight of the perturbed gradient, in [0, 1]; 1 takes it alone.
    normalize: perturb by a step of length rho; False for rho times the gradient, as in the paper's listing.
    server: "all-clients" subtracts lam times the mean of ghat_i over all clients, "cohort" over the cohort as
        printed, which does not converge when clients sit out.
    correction: False leaves ghat_i at 0, for the paper's ablation (Table 7): FedProx with perturbed gradients.
    perturb_by: "given" takes g1 as the problem gives it, "raw" before its gradient transformations: the published
        program perturbs by the gradient without weight decay.

    Sends x down and x_i - x up (d floats each way); a client keeps ghat_i.

    >>> FedSpeed(lr=0.1)  # doctest: +ELLIPSIS
    FedSpeed(lr=0.1, lam=10.0, rho=0.1, alpha=1.0, normalize=True, server='all-clients', correction=True, ...)
    """

    lr: Rate = rate()
    lam: float = number("(0, inf)", default=10.0, tune=WEIGHT)
    rho: float = number("[0, inf)", default=0.1)
    alpha: float = number("[0, 1]", default=1.0)
    normalize: bool = flag(default=True)
    server: str = choice("all-clients", "cohort", default="all-clients")
    correction: bool = flag(default=True)
    perturb_by: str = choice("given", "raw", default="given")

    reference = "Sun et al. 2023, Algorithm 1"
    claims = (
        Optimum("full", when={"rho": 0.0, "lam": 1.0, "server": "all-clients"}),
        Optimum("partial", when={"rho": 0.0, "lam": 1.0, "server": "all-clients"}),
        Optimum("full", when={"rho": 0.0, "lam": 1.0, "server": "cohort"}),
        Reduction("FedDyn", when={"rho": 0.0, "lam": 2.0, "server": "all-clients"}, other={"alpha": 0.5}),
        Reduction("FedDyn", when={"alpha": 0.0, "lam": 2.0, "server": "all-clients"}, other={"alpha": 0.5}),
        Reduction("FedADMM", when={"rho": 0.0, "lam": 2.0}, other={"eta": 2.0}, participation="full"),
        Reduction("FedProx", when={"rho": 0.0, "lam": 2.0, "correction": False}, other={"mu": 0.5}),
    )

    def advice(self, ctx: Context, smoothness: Any) -> str | None:
        if not isinstance(self.lr, int | float) or ctx.steps >= self.lam / self.lr:
            return None
        return (
            f"FedSpeed: {ctx.steps} local steps are fewer than lam / lr = {self.lam / self.lr:g}, for which Theorem "
            "4.4 is stated (a sufficient condition; the paper's own experiments do not meet it either)"
        )

    def init(self, x0: Vector) -> tuple[Vector, Vector]:
        return x0, zeros(x0)

    def client_init(self, x0: Vector) -> Vector:
        return zeros(x0)

    def broadcast(self, server: Any) -> Any:
        return server[0]

    def step(self, x_i: Vector, oracle: Any, x: Vector, ghat_i: Vector, ctx: Context) -> Any:
        g1 = (oracle if self.perturb_by == "given" else oracle.raw).grad(x_i)
        rho = self.rho / maximum(norm(g1), TINY) if self.normalize else self.rho
        g2 = oracle.grad(x_i + rho * g1)
        quasi = (1 - self.alpha) * g1 + self.alpha * g2
        return x_i - self.lr * (quasi - ghat_i + (x_i - x) / self.lam)

    def finish(self, x_i: Vector, oracle: Any, x: Vector, ghat_i: Vector, ctx: Context) -> Any:
        if not self.correction:
            return x_i - x, ghat_i
        ghat_i = ghat_i - (x_i - x) / self.lam
        if self.server == "cohort":
            return x_i - self.lam * ghat_i - x, ghat_i
        return x_i - x, ghat_i

    def update(self, server: Any, delta: Vector, ctx: Context) -> Any:
        x, ghat = server
        if self.server == "cohort" or not self.correction:
            return x + delta, ghat
        ghat = ghat - (ctx.cohort / ctx.clients) * delta / self.lam
        return x + delta - self.lam * ghat, ghat

    def model(self, server: Any) -> Vector:
        x: Vector = server[0]
        return x

    @classmethod
    def theorem(cls, given: Given) -> Theorem:
        """Theorem 4.4 at half of the longest lr and the largest lam, lr K, with Corollary 4.5's rho ~ 1/sqrt(R)."""
        positive(L=given.L)
        lr, rho = 1 / (64 * (3 * given.K) ** 0.5 * given.L), 1 / (4 * given.L * given.R**0.5)
        settings = {"lr": lr, "lam": lr * given.K, "rho": rho}
        return Theorem(given.into(fedspeed_theorem_4_4, **settings), {**settings, "normalize": False})
