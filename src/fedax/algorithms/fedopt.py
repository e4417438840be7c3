"""FedAdam, FedYogi and FedAdagrad: an adaptive optimiser at the server, fed with the mean change.

Objective:  min over x of  (1/n) sum_i f_i(x)

                                                                            Reddi et al. 2021, Algorithm 2:
    client, K times:  x_i <- x_i - lr g_i(x_i)
    server:           Delta = mean_i(x_i - x)                               line 10
                      m <- beta1 m + (1 - beta1) Delta                      line 11
          FedAdagrad  v <- beta2 v + Delta^2                                line 12, where beta2 = 1
          FedYogi     v <- v - (1 - beta2) Delta^2 sign(v - Delta^2)        line 13
          FedAdam     v <- beta2 v + (1 - beta2) Delta^2                    line 14
                      x <- x + server_lr m / (sqrt(v) + floor)              line 15

All entry by entry; m starts at 0 and v at floor^2, the least that the paper allows. There is NO bias
correction, so the first steps are short: after one round m = (1 - beta1) Delta. That is why optax does not
serve here: its scale_by_adam and scale_by_yogi divide both moments by 1 - beta^t, scale_by_yogi starts m at its
accumulator's value, and scale_by_rss puts the floor under the root and has no m.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import WEIGHT, Context, Rate, algorithm, number, rate
from fedax.algorithms.claims import Reduction
from fedax.algorithms.fedavg import FedAvg
from fedax.vectors import Vector, each, sign, zeros


class _Adaptive(FedAvg):
    """What the three share; they differ in `second_moment`."""

    beta1: float
    floor: float

    reference = "Reddi et al. 2021, Algorithm 2"

    def init(self, x0: Vector) -> tuple[Vector, Vector, Vector]:
        return x0, zeros(x0), each(lambda a: a + self.floor**2, zeros(x0))

    def broadcast(self, server: Any) -> Any:
        return server[0]

    def second_moment(self, v: Vector, delta: Vector) -> Vector:
        raise NotImplementedError

    def update(self, server: Any, delta: Vector, ctx: Context) -> Any:
        x, m, v = server
        m = self.beta1 * m + (1 - self.beta1) * delta
        v = self.second_moment(v, delta)
        return x + self.server_lr * each(lambda a, b: a / (b**0.5 + self.floor), m, v), m, v

    def model(self, server: Any) -> Vector:
        x: Vector = server[0]
        return x


@algorithm
class FedAdam(_Adaptive):
    """min over x of (1/n) sum_i f_i(x), by local SGD and Adam (without bias correction) at the server.

    lr: client rate, above 0; below 1/L for smooth losses.
    server_lr: server rate, above 0: about the change of one entry in one round; 0.1 or 0.01 are usual.
    beta1: weight of the past in the mean m, in [0, 1).
    beta2: weight of the past in the mean square v, in [0, 1]; 1 leaves v at floor^2.
    floor: least scale of a change, above 0; larger is less adaptive. 1e-3 is usual.

    Sends x down and x_i - x up (d floats each way); a client keeps nothing, the server x, m and v.

    >>> FedAdam(lr=0.1, server_lr=0.1)
    FedAdam(lr=0.1, server_lr=0.1, beta1=0.9, beta2=0.99, floor=0.001)
    """

    lr: Rate = rate()
    server_lr: Rate = rate(tune=WEIGHT, around=0.03)
    beta1: float = number("[0, 1)", default=0.9)
    beta2: float = number("[0, 1]", default=0.99)
    floor: float = number("(0, inf)", default=1e-3)

    claims = (Reduction("FedAvg", when={"beta1": 0.0, "beta2": 1.0, "floor": 0.5}),)

    def second_moment(self, v: Vector, delta: Vector) -> Vector:
        return each(lambda a, d: self.beta2 * a + (1 - self.beta2) * d**2, v, delta)


@algorithm
class FedYogi(_Adaptive):
    """min over x of (1/n) sum_i f_i(x), by local SGD and Yogi (without bias correction) at the server.

    lr: client rate, above 0; below 1/L for smooth losses.
    server_lr: server rate, above 0: about the change of one entry in one round; 0.1 or 0.01 are usual.
    beta1: weight of the past in the mean m, in [0, 1).
    beta2: 1 - beta2 is how fast v moves towards Delta^2, in [0, 1]; 1 leaves v at floor^2.
    floor: least scale of a change, above 0; larger is less adaptive. 1e-3 is usual.

    Where Adam forgets a large v geometrically, Yogi lowers it by at most (1 - beta2) Delta^2 a round.
    Sends x down and x_i - x up (d floats each way); a client keeps nothing, the server x, m and v.

    >>> FedYogi(lr=0.1, server_lr=0.1)
    FedYogi(lr=0.1, server_lr=0.1, beta1=0.9, beta2=0.99, floor=0.001)
    """

    lr: Rate = rate()
    server_lr: Rate = rate(tune=WEIGHT, around=0.03)
    beta1: float = number("[0, 1)", default=0.9)
    beta2: float = number("[0, 1]", default=0.99)
    floor: float = number("(0, inf)", default=1e-3)

    claims = (Reduction("FedAvg", when={"beta1": 0.0, "beta2": 1.0, "floor": 0.5}),)

    def second_moment(self, v: Vector, delta: Vector) -> Vector:
        return each(lambda a, d: a - (1 - self.beta2) * d**2 * sign(a - d**2), v, delta)


@algorithm
class FedAdagrad(_Adaptive):
    """min over x of (1/n) sum_i f_i(x), by local SGD and Adagrad at the server.

    lr: client rate, above 0; below 1/L for smooth losses.
    server_lr: server rate, above 0: the change of one entry in the first round, which later ones never exceed
        by much; 0.1 or more are usual.
    beta1: weight of the past in the mean m, in [0, 1); 0, the original's, is Adagrad proper.
    beta2: weight of the past in the sum v, in (0, 1]; 1 is the paper's sum of all squares. Below 1 old
        squares fade, so that the steps need not shrink for ever: a departure from the paper.
    floor: least scale of a change, above 0; larger is less adaptive. 1e-3 is usual.

    v is a sum, not a mean as FedAdam's: the new Delta^2 has weight 1 whatever beta2.
    Sends x down and x_i - x up (d floats each way); a client keeps nothing, the server x, m and v.

    >>> FedAdagrad(lr=0.1, server_lr=0.1)
    FedAdagrad(lr=0.1, server_lr=0.1, beta1=0.0, beta2=1.0, floor=0.001)
    """

    lr: Rate = rate()
    server_lr: Rate = rate(tune=WEIGHT, around=0.03)
    beta1: float = number("[0, 1)", default=0.0)
    beta2: float = number("(0, 1]", default=1.0)
    floor: float = number("(0, inf)", default=1e-3)

    def second_moment(self, v: Vector, delta: Vector) -> Vector:
        return each(lambda a, d: self.beta2 * a + d**2, v, delta)
