"""FedMiD: proximal (mirror) steps on the clients, another at the server. FedMiD-OSP leaves out the clients'.

Objective:  min over x of  (1/n) sum_i f_i(x) + psi(x)

                                                                         Yuan's thesis, Algorithm 5 (OSP: 7):
    client, K times:  x_i <- grad(h + lr psi)*(grad h(x_i) - lr g_i(x_i))                     line 8
           OSP:       x_i <- grad h*(grad h(x_i) - lr g_i(x_i))                               line 8
    server:           x <- grad(h + server_lr lr K psi)*(grad h(x) + server_lr mean_i(x_i - x))   lines 9, 10

With h = ||x||^2 / 2 (the default) these are prox steps: grad(h + t psi)* is the prox of t psi.

As printed FedMiD shrinks twice, on the client and again at the server. With one client and K = 1 its limit is
exactly the solution for 2 psi; FedMiD-OSP's is that for psi. For a constraint the second projection changes
nothing. Averaging primal points undoes sparsity: the mean of sparse models is dense, which is what
FedDualAvg mends. lr K is the sum of the rates really taken, for a rate that changes within a round and for
clients with unequal K; it goes up as one more number.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import WEIGHT, Algorithm, Context, Rate, algorithm, choice, flag, number, rate
from fedax.algorithms.claims import Reduction
from fedax.algorithms.mirrored import Mirrored
from fedax.bounds import Given, Theorem, theorem_4_3
from fedax.vectors import Vector, scalar


@algorithm
class FedMiD(Mirrored, Algorithm):
    """min over x of (1/n) sum_i f_i(x) + psi(x), by local proximal SGD, averaging and a prox at the server.

    lr: client rate eta_c, above 0.
    server_lr: server rate eta_s, above 0.
    client_prox: False leaves out the clients' proximal steps (FedMiD-OSP).
    mirror: h; "euclidean", "entropy" (on the simplex) or "p-norm".
    p: of the p-norm, in (1, 2].

    Sends x down and x_i - x up (d floats each way, and one number up); a client keeps nothing.

    >>> FedMiD(lr=0.1)
    FedMiD(lr=0.1, server_lr=1.0, client_prox=True, mirror='euclidean', p=2.0)
    """

    lr: Rate = rate()
    server_lr: Rate = rate(default=1.0, tune=WEIGHT)
    client_prox: bool = flag(default=True)
    mirror: str = choice("euclidean", "entropy", "p-norm", default="euclidean")
    p: float = number("(1, 2]", default=2.0)

    composite = True
    reference = "Yuan's thesis, Algorithms 5 and 7"
    sends_way = True
    claims = (
        Reduction("FedAvg", when={"mirror": "euclidean"}),
        Reduction("FedAvg", when={"mirror": "euclidean", "client_prox": False}),
    )

    def begin(self, x: Vector, client: Any, ctx: Context) -> Any:
        return x, scalar(0, x)

    def step(self, local: Any, oracle: Any, x: Vector, client: Any, ctx: Context) -> Any:
        x_i, travelled = local
        y = self.dual(x_i) - self.lr * oracle.grad(x_i)
        return self.primal(y, self.lr if self.client_prox else None, ctx), travelled + self.lr

    def finish(self, local: Any, oracle: Any, x: Vector, client: Any, ctx: Context) -> Any:
        x_i, travelled = local
        return (x_i - x, travelled), client

    def update(self, x: Vector, upload: Any, ctx: Context) -> Any:
        delta, travelled = upload
        return self.primal(self.dual(x) + self.server_lr * delta, self.server_lr * travelled, ctx)

    @classmethod
    def theorem(cls, given: Given) -> Theorem:
        """Theorem 4.3, with h = ||x||^2 / 2: D_h is half the squared distance. It bounds the two rates' product."""
        cls.refuse_theorem(given.choices)
        bound = given.into(theorem_4_3, B=given.B / 2**0.5)
        remark = (
            "how small the client's rate must be is not said: a K-th of both rates' product is taken; it is the bound "
            "of the mean of the rounds' models, not of the last one"
        )
        return Theorem(bound, {"lr": bound.lr / given.K, "server_lr": float(given.K)}, remark)
