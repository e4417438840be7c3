"""FedAvgM: FedAvg with momentum at the server.

Objective:  min over x of  (1/n) sum_i f_i(x)

                                                             Hsu et al. 2019, section 4.2:
    client, K times:  x_i <- x_i - lr g_i(x_i)
    server:           m <- momentum m + mean_i(x_i - x)      its v, with the sign turned
                      x <- x + server_lr m                   server_lr = 1 there

The paper has these formulas and no listing. Its experiments take Nesterov's form of the momentum; here it is
the formulas' own, the heavy ball. The sum is not damped: a steady direction is taken 1 / (1 - momentum) times
over, so that server_lr wants to be as much smaller than FedAvg's.
"""

from __future__ import annotations

from typing import Any

import fedax.lazy_optax as optax
from fedax.algorithms.base import Context, Rate, algorithm, number, rate
from fedax.algorithms.claims import Reduction
from fedax.algorithms.fedavg import FedAvg
from fedax.vectors import Vector


@algorithm
class FedAvgM(FedAvg):
    """min over x of (1/n) sum_i f_i(x), by local SGD and heavy-ball momentum on the mean change.

    lr: client rate, above 0; below 1/L for smooth losses.
    server_lr: server rate, above 0; about 1 - momentum gives steps of FedAvg's length.
    momentum: weight of the past, in [0, 1); 0 is FedAvg.

    Sends x down and x_i - x up (d floats each way); a client keeps nothing, the server x and m.

    >>> FedAvgM(lr=0.1)
    FedAvgM(lr=0.1, server_lr=1.0, momentum=0.9)
    """

    lr: Rate = rate()
    server_lr: Rate = rate(default=1.0)
    momentum: float = number("[0, 1)", default=0.9, tune=(0.7, 0.9, 0.97))

    reference = "Hsu, Qi and Brown 2019, section 4.2"
    claims = (Reduction("FedAvg", when={"momentum": 0.0}),)

    def init(self, x0: Vector) -> Any:
        return x0, optax.trace(self.momentum).init(x0)

    def broadcast(self, server: Any) -> Any:
        return server[0]

    def update(self, server: Any, delta: Vector, ctx: Context) -> Any:
        x, trace = server
        m, trace = optax.trace(self.momentum).update(delta, trace)
        return x + self.server_lr * m, trace

    def model(self, server: Any) -> Vector:
        x: Vector = server[0]
        return x
