"""FedDualAvg: clients and server average in the dual, so that sparsity, rank and feasibility survive averaging.

Objective:  min over x of  (1/n) sum_i f_i(x) + psi(x)

                                                                         Yuan's thesis, Algorithm 6 (OSP: 8):
    start:            y = grad h(x0), weight = 0                                              line 2
    client, K times:  x_i = grad(h + (weight + lr k) psi)*(y_i)                               lines 8, 9
           OSP:       x_i = grad h*(y_i)                                                      line 8
                      y_i <- y_i - lr g_i(x_i)                                                lines 10, 11
    server:           y <- y + server_lr mean_i(y_i - y)                                      lines 12, 13
                      weight <- weight + server_lr lr K, so weight = server_lr lr r K
                      x = grad(h + weight psi)*(y), the model                                 line 14

With h = ||x||^2 / 2 (the default) grad(h + t psi)* is the prox of t psi. Without psi it is FedAvg. The weight of
psi grows in step with the gradients in y: lr K is the sum of the rates really taken, for a rate that changes
within a round and for clients with unequal K; it goes up and down as one more number.

The output of eq. 4.9, with `average`, is the mean over the rounds r and the local steps k = 1 .. K of the point at the
clients' mean dual after step k, of which the K-th is what the next round starts from:

    x = mean over r, k of grad(h + (weight + lr k) psi)*(mean_i y_i after step k)

A prox of a mean is not the mean of proxes (but without psi and with h = ||x||^2 / 2, where the sum of a client's duals
would do), so a client sends its dual after every step, and the clients' K must be equal.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import WEIGHT, Algorithm, Context, Rate, algorithm, choice, flag, number, rate
from fedax.algorithms.claims import Reduction
from fedax.algorithms.mirrored import Mirrored
from fedax.bounds import Given, Theorem, theorem_4_4, theorem_4_7
from fedax.vectors import Vector, each, repeat, scalar, zeros


@algorithm
class FedDualAvg(Mirrored, Algorithm):
    """min over x of (1/n) sum_i f_i(x) + psi(x), by local dual averaging, averaged in the dual.

    lr: client rate eta_c, above 0.
    server_lr: server rate eta_s, above 0.
    client_prox: False retrieves the clients' points without psi (FedDualAvg-OSP).
    average: the model is the mean of all points so far (eq. 4.9) instead of the last; clients take equally many steps.
    mirror: h; "euclidean", "entropy" (on the simplex) or "p-norm".
    p: of the p-norm, in (1, 2].

    Sends y down and y_i - y up (d floats and one number each way; with average K times as much up); a client keeps
    nothing.

    >>> FedDualAvg(lr=0.1)
    FedDualAvg(lr=0.1, server_lr=1.0, client_prox=True, average=False, mirror='euclidean', p=2.0)
    """

    lr: Rate = rate()
    server_lr: Rate = rate(default=1.0, tune=WEIGHT)
    client_prox: bool = flag(default=True)
    average: bool = flag(default=False)
    mirror: str = choice("euclidean", "entropy", "p-norm", default="euclidean")
    p: float = number("(1, 2]", default=2.0)

    composite = True
    reference = "Yuan's thesis, Algorithms 6 and 8"
    sends_way = True
    claims = (
        Reduction("FedAvg", when={"mirror": "euclidean", "average": False}),
        Reduction("FedAvg", when={"mirror": "euclidean", "average": False, "client_prox": False}),
    )

    @property
    def lockstep(self) -> bool:  # type: ignore[override]
        return self.average

    def init(self, x0: Vector) -> Any:
        return self.dual(x0), scalar(0, x0), x0

    def broadcast(self, server: Any) -> Any:
        y, weight, _ = server
        return y, weight

    def begin(self, message: Any, client: Any, ctx: Context) -> Any:
        y, weight = message
        start = Vector((y.tree, 0 * weight))  # the dual and the sum of the rates taken go together
        return (start, each(lambda a: a[None].repeat(ctx.steps, axis=0), start)) if self.average else (start, ())

    def step(self, local: Any, oracle: Any, message: Any, client: Any, ctx: Context) -> Any:
        (now, trail), (_, weight) = local, message
        tree, travelled = now.tree
        y_i = Vector(tree)
        x_i = self.primal(y_i, weight + travelled if self.client_prox else None, ctx)
        now = Vector(((y_i - self.lr * oracle.grad(x_i)).tree, travelled + self.lr))
        return now, each(lambda t, a: t.at[ctx.step].set(a.astype(t.dtype)), trail, now) if self.average else ()

    def finish(self, local: Any, oracle: Any, message: Any, client: Any, ctx: Context) -> Any:
        (now, trail), (y, weight) = local, message
        start = Vector((y.tree, 0 * weight))
        return each(lambda a, b: a - b, trail if self.average else now, start), client

    def update(self, server: Any, upload: Any, ctx: Context) -> Any:
        y, weight, x = server
        last = each(lambda a: a[-1], upload) if self.average else upload
        new_y, new_weight = y + self.server_lr * Vector(last.tree[0]), weight + self.server_lr * last.tree[1]
        if not self.average:
            return new_y, new_weight, self.primal(new_y, new_weight, ctx)

        def add(k: Any, total: Vector) -> Vector:
            delta, travelled = each(lambda a: a[k], upload).tree
            return total + self.primal(y + Vector(delta), weight + travelled, ctx)

        points = repeat(ctx.steps, add, zeros(x)) / ctx.steps
        return new_y, new_weight, x + (points - x) / (ctx.round + 1)

    def model(self, server: Any) -> Vector:
        x: Vector = server[2]
        return x

    @classmethod
    def theorem(cls, given: Given) -> Theorem:
        """Theorem 4.7 for quadratics, else Theorem 4.4, with h = ||x||^2 / 2: D_h is half the squared distance.

        Both bound the mean of all steps' models, eq. 4.9, which is the method's output with `average` alone.
        """
        cls.refuse_theorem(given.choices)
        if given.quadratic:
            bound = given.into(theorem_4_7, B=given.B / 2**0.5)
            remark = "sigma and zeta are Euclidean lengths: the theorem's are in the norm of the Hessian"
        else:
            bound = given.into(theorem_4_4, B=given.B / 2**0.5)
            remark = "no gradient may be longer than G: G is the longest that was seen"
        if not given.choices.get("average", False):
            remark += "; the bound is that of the mean of all steps' models (average = true), not of the last one"
        return Theorem(bound, {"lr": bound.lr, "server_lr": 1.0}, remark)
