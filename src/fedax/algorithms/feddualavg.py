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

The output of eq. 4.9 is the mean, over the rounds r and the local steps k = 1 .. K, of
grad(h + (weight + lr k) psi)* at the clients' mean dual after step k. A prox of a mean is not the mean of proxes, so
the server would need that mean dual after every step: K times the upload. `average` takes the mean of the server's
own points instead, one a round: the terms of eq. 4.9 with k = K, and with K = 1 and server_lr = 1 all of them.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import Algorithm, Context, Rate, algorithm, choice, flag, number, rate
from fedax.algorithms.claims import Reduction
from fedax.algorithms.mirrored import Mirrored
from fedax.vectors import Vector, scalar


@algorithm
class FedDualAvg(Mirrored, Algorithm):
    """min over x of (1/n) sum_i f_i(x) + psi(x), by local dual averaging, averaged in the dual.

    lr: client rate eta_c, above 0.
    server_lr: server rate eta_s, above 0.
    client_prox: False retrieves the clients' points without psi (FedDualAvg-OSP).
    average: the model is the mean of the server's points, one a round, instead of the last (eq. 4.9 for K = 1).
    mirror: h; "euclidean", "entropy" (on the simplex) or "p-norm".
    p: of the p-norm, in (1, 2].

    Sends y down and y_i - y up (d floats and one number each way); a client keeps nothing.

    >>> FedDualAvg(lr=0.1)
    FedDualAvg(lr=0.1, server_lr=1.0, client_prox=True, average=False, mirror='euclidean', p=2.0)
    """

    lr: Rate = rate()
    server_lr: Rate = rate(default=1.0)
    client_prox: bool = flag(default=True)
    average: bool = flag(default=False)
    mirror: str = choice("euclidean", "entropy", "p-norm", default="euclidean")
    p: float = number("(1, 2]", default=2.0)

    composite = True
    reference = "Yuan's thesis, Algorithms 6 and 8"
    claims = (
        Reduction("FedAvg", when={"mirror": "euclidean", "average": False}),
        Reduction("FedAvg", when={"mirror": "euclidean", "average": False, "client_prox": False}),
    )

    def init(self, x0: Vector) -> Any:
        return self.dual(x0), scalar(0, x0), x0

    def broadcast(self, server: Any) -> Any:
        y, weight, _ = server
        return y, weight

    def begin(self, message: Any, client: Any, ctx: Context) -> Any:
        y, weight = message
        return y, 0 * weight

    def step(self, local: Any, oracle: Any, message: Any, client: Any, ctx: Context) -> Any:
        (y_i, travelled), (_, weight) = local, message
        x_i = self.primal(y_i, weight + travelled if self.client_prox else None, ctx)
        return y_i - self.lr * oracle.grad(x_i), travelled + self.lr

    def finish(self, local: Any, oracle: Any, message: Any, client: Any, ctx: Context) -> Any:
        (y_i, travelled), (y, _) = local, message
        return (y_i - y, travelled), client

    def update(self, server: Any, upload: Any, ctx: Context) -> Any:
        (y, weight, x), (delta, travelled) = server, upload
        y, weight = y + self.server_lr * delta, weight + self.server_lr * travelled
        new = self.primal(y, weight, ctx)
        return y, weight, x + (new - x) / (ctx.round + 1) if self.average else new

    def model(self, server: Any) -> Vector:
        x: Vector = server[2]
        return x
