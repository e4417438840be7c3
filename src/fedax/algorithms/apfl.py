"""APFL: each client mixes a model of its own with the shared one, and may learn the weight.

Objective:  shared  w* = argmin over w of (1/n) sum_i f_i(w)                               eq. 3
            own     min over v of f_i(alpha v + (1 - alpha) w*)                            eq. 4

    client, K times, one minibatch, all at the old point, vbar = alpha v + (1 - alpha) w:  Algorithm 1, eq. 5
        w <- P(w - lr grad f_i(w))
        v <- P(v - lr alpha grad f_i(vbar))          the factor alpha is the chain rule's
    once a round, at its first step:                                                       eq. 6
        alpha <- clip(alpha - lr <v - w, grad f_i(vbar)>, 0, 1)
    server:  w <- mean_i(w_i)
    a client that comes after training, from v = w, with that w fixed:                     eq. 7
        v <- P(v - lr alpha grad f_i(vbar))

P projects onto the ball of `radius` (the paper asks for a bounded domain; None leaves it out). The personal
model is vbar with the server's w. alpha = 0 is FedAvg, alpha = 1 is training without federation.

The authors' program departs from the paper in two ways, each an option here:
  mix = "outputs"  f_i sees alpha outputs(v) + (1 - alpha) outputs(w), the outputs of two models, in place of the
                   outputs of vbar; v, w and alpha then follow the derivatives of that loss. The personal model is
                   the pair with its weight, a `Mixture`. For a linear model the two are the same.
  pull = 0.02      adds pull alpha to alpha's derivative, as if pull alpha^2 / 2 were in the loss.

The paper does not say how a newcomer learns alpha. At its first step v = w, where eq. 6 is 0, so that with
`adaptive` it takes eq. 6 in every step.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import Algorithm, Context, Oracle, Rate, algorithm, choice, flag, number, rate
from fedax.algorithms.claims import Reduction
from fedax.bounds import Given, Theorem, apfl_theorem_2, apfl_theorem_3, least_alpha
from fedax.errors import FedaxError
from fedax.vectors import Mixture, Vector, ball, clip, repeat, scalar, where

MIXED = 0.5  # alpha, where nothing says otherwise


@algorithm
class APFL(Algorithm):
    """min over v of f_i(alpha v + (1 - alpha) w*) on each client, w* the shared minimiser.

    lr: rate of both models and of alpha, above 0.
    alpha: mixing weight in [0, 1]; 0 is the shared model, 1 the client's own.
    adaptive: learn alpha on each client, from `alpha` on.
    radius: of the ball that w and v are projected onto, above 0; None for no projection.
    mix: "parameters", the paper's, or "outputs", the authors' program's, for problems with a model.
    pull: of an adaptive alpha towards 0, from 0 on; the authors' program has 0.02.

    Sends w down and w_i - w up (d floats each way); a client keeps v and its alpha.

    >>> APFL(lr=0.1, alpha=0.25)
    APFL(lr=0.1, alpha=0.25, adaptive=False, radius=None, mix='parameters', pull=0.0)
    """

    lr: Rate = rate()
    alpha: float = number("[0, 1]", default=MIXED, tune=(0.25, 0.5, 0.75))
    adaptive: bool = flag(default=False)
    radius: float | None = number("(0, inf)", default=None, optional=True)
    mix: str = choice("parameters", "outputs", default="parameters")
    pull: float = number("[0, inf)", default=0.0)

    personalised = True
    reference = "Deng, Kamani and Mahdavi 2020, Algorithm 1, eq. 5 to 7"
    claims = (
        Reduction("FedAvg"),
        Reduction("FedAvg", when={"alpha": 0.0}, model="personal"),
        Reduction("LocalOnly", when={"alpha": 1.0}, model="personal"),
    )

    def client_init(self, x0: Vector) -> Any:
        return x0, scalar(self.alpha, x0)

    def begin(self, w: Vector, client: Any, ctx: Context) -> Any:
        return w, client

    def step(self, local: Any, oracle: Oracle, message: Vector, client: Any, ctx: Context) -> Any:
        w, own = local
        new = self._personalise(own, w, oracle, learn=ctx.step == 0)
        return self._project(w - self.lr * oracle.grad(w)), new

    def finish(self, local: Any, oracle: Oracle, message: Vector, client: Any, ctx: Context) -> Any:
        w, own = local
        return w - message, own

    def update(self, w: Vector, delta: Vector, ctx: Context) -> Vector:
        return w + delta

    def personal(self, w: Vector, client: Any, oracle: Oracle) -> Vector:
        v, alpha = client
        return self._mixed(v, w, alpha)

    def join(self, w: Vector, client: Any, oracle: Oracle, steps: Any) -> Any:
        return self.new_participant(w, oracle, steps)

    def new_participant(self, w: Vector, oracle: Oracle, steps: Any) -> Any:
        """Eq. 7: the v and alpha of a client that comes after training, by `steps` steps from the trained w.

        >>> import jax.numpy as jnp, fedax
        >>> square = fedax.Problem(loss=lambda x, b: jnp.mean((x - b["b"]) ** 2) / 2, init=lambda key: jnp.zeros(()))
        >>> rows = fedax.Oracle(square, {"b": jnp.array([4.0])}, fresh=lambda n: rows)
        >>> v, alpha = APFL(lr=1.0, alpha=0.5).new_participant(fedax.Vector(jnp.array(0.0)), rows, steps=2)
        >>> v.tree.item(), alpha.item()  # f(v / 2) has the derivative (v / 2 - 4) / 2: v is 2, then 3.5
        (3.5, 0.5)
        """

        def step(n: Any, own: Any) -> Any:
            return self._personalise(own, w, oracle.fresh(n + 1), learn=True)

        return repeat(steps, step, (w, scalar(self.alpha, w)))

    def refuse(self, regularizer: Any) -> None:
        if regularizer is not None and self.mix == "outputs":
            raise FedaxError("APFL: mix must be 'parameters' on a problem with a regularizer, not 'outputs'")

    def _personalise(self, own: Any, w: Vector, oracle: Oracle, *, learn: Any) -> Any:
        """The steps of v (eq. 5) and, where `learn` holds, of alpha (eq. 6), both at the old point."""
        v, alpha = own
        along_v, along_alpha = self._derivatives(v, w, alpha, oracle)
        new = self._project(v - self.lr * along_v)
        if not self.adaptive:
            return new, alpha
        learnt = clip(alpha - self.lr * (along_alpha + self.pull * alpha), 0.0, 1.0)
        return new, where(learn, scalar(learnt, w), alpha)

    def _derivatives(self, v: Vector, w: Vector, alpha: Any, oracle: Oracle) -> Any:
        """Those of the mixed model's loss with respect to v and alpha."""
        if self.mix == "outputs":
            g = oracle.grad(self._mixed(v, w, alpha))
            return Vector(g.tree.own), g.tree.weight
        return oracle.mixed(v, w, alpha)

    def _mixed(self, v: Vector, w: Vector, alpha: Any) -> Vector:
        if self.mix == "outputs":
            return Vector(Mixture(v.tree, w.tree, alpha))
        vbar: Vector = alpha * v + (1 - alpha) * w
        return vbar

    def _project(self, x: Vector) -> Vector:
        return x if self.radius is None else ball(x, self.radius)

    @classmethod
    def theorem(cls, given: Given) -> Theorem:
        """Theorem 2 where the loss is strongly convex, at the least alpha that it is for; else Theorem 3."""
        L, mu, squared = given.L, given.mu, given.zeta**2
        common = {"T": given.K * given.R, "zeta_i": squared, "zeta": given.n * squared}
        if mu > 0:
            alpha = least_alpha(mu, L)
            apart = squared / mu**2  # mu ||v_i* - w*|| <= ||grad f_i(w*)|| <= zeta
            bound = given.into(apfl_theorem_2, alpha, **common, optima_apart=apart)
            later = 1 / max(128 * L / mu, given.K)
            lr = {"kind": "inverse-time", "initial": bound.lr, "decay": later, "per": "step"}
            remark = "that every client's loss is mu-strongly convex is not checked"
            return Theorem(bound, {"lr": lr, "alpha": alpha}, remark)
        ball = {"own_height": given.highest, "height": given.Delta, "diameter": (2 * given.B) ** 2}
        bound = given.into(apfl_theorem_3, MIXED, **common, **ball)
        remark = f"the domain is taken as a ball of diameter 2 B, alpha as {MIXED}"
        return Theorem(bound, {"lr": bound.lr}, remark)
