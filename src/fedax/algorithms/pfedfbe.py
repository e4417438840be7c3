"""pFedFBE: a shared start from which one proximal gradient step on each client's data gives its own model.

Objective:  min over w of  (1/n) sum_i F_i(w),  F_i the forward-backward envelope of f_i + psi:        eq. 4, 7
            F_i(w) = min over u of  f_i(w) + <grad f_i(w), u - w> + psi(u) + (lam/2) ||u - w||^2

                                                                                            Algorithm 1:
    client, K times, two independent minibatches D and D':
        theta = prox of psi/lam at  w - grad f_D(w) / lam                                   eq. 8
        w <- w - lr lam (I - H_D'(w) / lam) (w - theta)                                     eq. 9
    server:  w <- mean_i(w_i)

The client's own model is exactly sparse or low-rank either way: own="server", the default, is eq. 8's, theta at the
server's w with the full local gradient, so that a client keeps nothing; own="rounds" is the last theta that Algorithm 1
computed in the client's own rounds, at its own w_i, which it keeps. The paper does not say which one it reports. (Eq. 8
prints the gradient without its 1/lam; eq. 5, 6 and 9 have it.) lam must exceed the smoothness L of f_i for a smooth
envelope; 1/lam is the personal step's length, so a larger lam means less personalisation. With one client the
stationary points are those of f + psi.

hessian: "exact" takes a Hessian-vector product by automatic differentiation, "finite-difference" the paper's
(grad f(w + t u) - grad f(w)) / t, "none" leaves the Hessian out, which the paper suggests for lam > L.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import WEIGHT, Algorithm, Context, Rate, algorithm, choice, number, rate
from fedax.bounds import Given, Theorem, pfedfbe_theorem_1, positive
from fedax.vectors import Vector


@algorithm
class PFedFBE(Algorithm):
    """min over w of (1/n) sum_i F_i(w), F_i the forward-backward envelope of f_i + psi.

    lr: rate, above 0; about 1/lam, for the envelope's gradient has a factor lam.
    lam: inverse of the personal step's length, above 0; above the smoothness L of the clients' losses.
    hessian: "exact", "finite-difference" or "none".
    spacing: t of the finite difference, above 0.
    own: a client's own model is found from the "server"'s w, or is the last theta of its local "rounds".

    Sends w down and w_i - w up (d floats each way); a client keeps nothing, or with own="rounds" its theta.

    >>> PFedFBE(lr=5e-4, lam=2000.0)
    PFedFBE(lr=0.0005, lam=2000.0, hessian='exact', spacing=0.001, own='server')
    """

    lr: Rate = rate()
    lam: float = number("(0, inf)", example=5.0, tune=WEIGHT, around=20.0)
    hessian: str = choice("exact", "finite-difference", "none", default="exact")
    spacing: float = number("(0, inf)", default=1e-3)
    own: str = choice("server", "rounds", default="server")

    composite = True
    personalised = True
    reference = "pFedFBE, Algorithm 1, eq. 6, 8 and 9"

    def theta(self, w: Vector, oracle: Any) -> Vector:
        """The proximal gradient step from w."""
        step: Vector = oracle.prox(w - oracle.grad(w) / self.lam, 1 / self.lam)
        return step

    def client_init(self, w: Vector) -> Any:
        return w if self.own == "rounds" else ()

    def begin(self, w: Vector, client: Any, ctx: Context) -> tuple[Vector, Any]:
        return w, client

    def step(self, local: Any, oracle: Any, message: Vector, client: Any, ctx: Context) -> tuple[Vector, Any]:
        w, _ = local
        theta = self.theta(w, oracle)
        u = w - theta
        g: Vector = self.lam * u - self._curvature(w, u, oracle)
        return w - self.lr * g, theta if self.own == "rounds" else ()

    def _curvature(self, w: Vector, u: Vector, oracle: Any) -> Any:
        """H(w) u on the second minibatch."""
        if self.hessian == "none":
            return 0 * u
        other = oracle.fresh(1)
        if self.hessian == "exact":
            return other.hvp(w, u)
        return (other.grad(w + self.spacing * u) - other.grad(w)) / self.spacing

    def finish(self, local: Any, oracle: Any, message: Vector, client: Any, ctx: Context) -> Any:
        w, theta = local
        return w - message, theta

    def update(self, w: Vector, delta: Vector, ctx: Context) -> Vector:
        return w + delta

    def personal(self, w: Vector, client: Any, oracle: Any) -> Vector:
        return client if self.own == "rounds" else self.theta(w, oracle.full)

    def join(self, w: Vector, client: Any, oracle: Any, steps: Any) -> Any:
        return self.theta(w, oracle.full) if self.own == "rounds" else client

    def advice(self, ctx: Context, smoothness: Any) -> str | None:
        if self.lam > (estimate := smoothness()):
            return None
        return (
            f"PFedFBE: lam = {self.lam:g} is not above the clients' smoothness, estimated as L = {estimate:.4g}: "
            "the envelope is then not smooth"
        )

    @classmethod
    def theorem(cls, given: Given) -> Theorem:
        """Theorem 1 at lam = 2 L."""
        positive(L=given.L)
        run = {"N": given.n, "S": given.m, "lam": 2 * given.L}
        seen = {"gradient": given.G, "sigma_G": given.sigma, "gamma_G": given.zeta}
        bound = given.into(pfedfbe_theorem_1, **run, **seen)
        remark = "how Hessians differ between points, rows and clients is not estimated, and taken as 0"
        return Theorem(bound, {"lr": bound.lr, "lam": run["lam"]}, remark)
