"""FedDyn: a regularizer on each client that moves until local and global optima agree.

Objective:  min over x of  (1/n) sum_i f_i(x)

                                                              Acar et al. 2021, Algorithm 1, its statements counted:
    client, K times:  x_i <- x_i - lr (g_i(x_i) - h_i + alpha (x_i - x))    the device's first, its argmin
                      h_i <- h_i - alpha (x_i - x)                          the device's second
    server:           h   <- h - alpha (m/n) mean_i(x_i - x)                the round's last but one
                      x   <- mean_i(x_i) - h / alpha                        the round's last

The first is the argmin of f_i(z) - <h_i, z> + (alpha/2) ||z - x||^2, here by K gradient steps from x; h_i is what the
paper writes as the gradient of L_k at the device's last model. A device that sits out keeps its h_i.

If the inner problem is solved exactly, h_i is the gradient of f_i at x_i. The paper's analysis asks for that;
the fixed point does not: whatever K, at rest x_i = x, so h_i = grad f_i(x), and h = mean_i(h_i) = 0. That is
the minimiser, for any cohort. h is the mean of h_i over ALL clients, which is why the server scales by m/n.

The paper prints the server's first statement as h - (alpha/n) (sum_i x_i - x), which leaves open whether x is under
the sum. It is: else h would not be the mean of h_i, and the authors' code is as here.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import WEIGHT, Algorithm, Context, Rate, algorithm, number, rate
from fedax.algorithms.claims import Optimum
from fedax.vectors import Vector, zeros


@algorithm
class FedDyn(Algorithm):
    """min over x of (1/n) sum_i f_i(x), by local SGD on dynamically regularized losses.

    lr: client rate, above 0; below 1/(L + alpha) for smooth losses.
    alpha: weight of the regularizer, above 0; 0.1 or 0.01 are usual. The server steps by h / alpha, so a
        small alpha is fast with all clients and restless with few.

    Sends x down and x_i - x up (d floats each way); a client keeps h_i, the server h.

    >>> FedDyn(lr=0.1, alpha=0.1)
    FedDyn(lr=0.1, alpha=0.1)
    """

    lr: Rate = rate()
    alpha: float = number("(0, inf)", tune=WEIGHT, around=0.1)

    reference = "Acar et al. 2021, Algorithm 1"
    claims = (
        Optimum("full", when={"alpha": 1.0}),
        Optimum("partial", when={"alpha": 1.0}),
    )

    def init(self, x0: Vector) -> tuple[Vector, Vector]:
        return x0, zeros(x0)

    def client_init(self, x0: Vector) -> Vector:
        return zeros(x0)

    def broadcast(self, server: Any) -> Any:
        return server[0]

    def step(self, x_i: Vector, oracle: Any, x: Vector, h_i: Vector, ctx: Context) -> Any:
        return x_i - self.lr * (oracle.grad(x_i) - h_i + self.alpha * (x_i - x))

    def finish(self, x_i: Vector, oracle: Any, x: Vector, h_i: Vector, ctx: Context) -> Any:
        return x_i - x, h_i - self.alpha * (x_i - x)

    def update(self, server: Any, delta: Vector, ctx: Context) -> Any:
        x, h = server
        h = h - self.alpha * (ctx.cohort / ctx.clients) * delta
        return x + delta - h / self.alpha, h

    def model(self, server: Any) -> Vector:
        x: Vector = server[0]
        return x
