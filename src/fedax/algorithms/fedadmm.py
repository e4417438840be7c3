"""FedADMM and FedPD: the alternating direction method of multipliers, a dual variable on each client.

Objective:  min over x of  (1/n) sum_i f_i(x) + psi(x),  as  min (1/n) sum_i f_i(x_i) + psi(x),  x_i = x

                                                            Wang et al. 2022, Algorithm 2, its statements by name:
    client, K times:  x_i <- x_i - lr (g_i(x_i) + z_i + (x_i - x) / eta)    the client's argmin of its Lagrangian
                      z_i <- z_i + (x_i - x) / eta                          the client's dual step
                      xhat_i <- x_i + eta z_i, whose change goes up         the client's xhat, and what it sends
    server:           the mean of ALL clients' latest xhat_i                the server's first
                      x <- prox of eta psi at that mean                     the server's second

The argmin is of f_i(u) + <z_i, u - x> + ||u - x||^2 / (2 eta), here by K gradient steps from x. The server's two
together minimise psi(u) + (1/n) sum_i (||x_i - u||^2 / (2 eta) - <z_i, u>)
= psi(u) + ||u - (1/n) sum_i xhat_i||^2 / (2 eta) + constant, hence the prox with eta itself: psi is added to
the MEAN of the f_i. (Added to their sum, it would be eta / n.)

The server keeps the mean of all xhat_i (x0 at first) and clients send the change of theirs. At rest x_i = x,
z_i = -grad f_i(x) and x = prox_{eta psi}(x - eta mean_i grad f_i(x)): the minimiser, for any K and cohort.
Where the inner solver starts is not said; here it is x.

FedPD is the same for all clients, psi = 0 in the paper, except how a round ends:

                                                            Zhang et al. 2021, Algorithm 1, its statements by name:
    client:  x_i, z_i and xhat_i as above                         the local updates: oracle, dual, and own copy of x
    with probability 1 - skip:  x <- mean_i(xhat_i), for all      the global communication
    with probability skip:      x <- xhat_i, each its own         the local end of the round

The oracle is any solver that is exact enough; the authors' program goes on from the client's last x_i, here it starts
at x. The minimiser is no fixed point of a round that skips (xhat_i = x - eta grad f_i(x) there), so with skip > 0
clients that differ keep a distance.
"""

from __future__ import annotations

from typing import Any, ClassVar

from fedax.algorithms.base import WEIGHT, Algorithm, Context, Rate, algorithm, number, rate
from fedax.algorithms.claims import Claim, Optimum, Reduction
from fedax.vectors import Vector, uniform, where, zeros


@algorithm
class FedADMM(Algorithm):
    """min over x of (1/n) sum_i f_i(x) + psi(x), by local SGD on augmented Lagrangians, prox at the server.

    lr: client rate, above 0; below 1/(L + 1/eta) for smooth losses.
    eta: penalty parameter, above 0; the weight of the proximal term is 1/eta. 1/L is a safe start.

    Sends x down and the change of xhat_i up (d floats each way); a client keeps z_i and xhat_i.

    >>> FedADMM(lr=0.1, eta=1.0)
    FedADMM(lr=0.1, eta=1.0)
    """

    lr: Rate = rate()
    eta: float = number("(0, inf)", tune=WEIGHT, around=1.0)

    composite = True
    reference = "Wang, Marella and Anderson 2022, Algorithm 2"
    claims: ClassVar[tuple[Claim, ...]] = (
        Optimum("full", when={"eta": 1.0}),
        Optimum("partial", when={"eta": 1.0}),
        Reduction("FedDyn", when={"eta": 2.0}, other={"alpha": 0.5}, participation="full"),
    )

    def init(self, x0: Vector) -> tuple[Vector, Vector]:
        return x0, x0

    def client_init(self, x0: Vector) -> tuple[Vector, Vector]:
        return zeros(x0), x0

    def broadcast(self, server: Any) -> Any:
        return server[0]

    def centre(self, x: Vector, client: Any, ctx: Context) -> Vector:
        """The x that the client's round is about: here the server's."""
        return x

    def begin(self, x: Vector, client: Any, ctx: Context) -> Vector:
        return self.centre(x, client, ctx)

    def step(self, x_i: Vector, oracle: Any, x: Vector, client: Any, ctx: Context) -> Any:
        (z_i, _), centre = client, self.centre(x, client, ctx)
        return x_i - self.lr * (oracle.grad(x_i) + z_i + (x_i - centre) / self.eta)

    def finish(self, x_i: Vector, oracle: Any, x: Vector, client: Any, ctx: Context) -> Any:
        (z_i, sent), centre = client, self.centre(x, client, ctx)
        z_i = z_i + (x_i - centre) / self.eta
        xhat = x_i + self.eta * z_i
        return xhat - sent, (z_i, xhat)

    def update(self, server: Any, change: Vector, ctx: Context) -> Any:
        _, mean = server
        mean = mean + (ctx.cohort / ctx.clients) * change
        return ctx.prox(mean, self.eta), mean

    def model(self, server: Any) -> Vector:
        x: Vector = server[0]
        return x


@algorithm
class FedPD(FedADMM):
    """min over x of (1/n) sum_i f_i(x) + psi(x), by FedADMM with rounds that end without communication.

    lr: client rate, above 0; below 1/(L + 1/eta) for smooth losses.
    eta: penalty parameter, above 0; the weight of the proximal term is 1/eta. 1/L is a safe start.
    skip: probability that a round ends without communication, in [0, 1); 0 reaches the minimiser, more trades
        a distance from it, larger the more clients differ, for fewer messages.

    The method is made for all clients in every round. The rounds that skip are a function of the
    seed and the round, the same for every client. Sends x down and the change of xhat_i up (d
    floats each way), in rounds that communicate and only there. A client keeps z_i and xhat_i.

    >>> FedPD(lr=0.1, eta=1.0, skip=0.5)
    FedPD(lr=0.1, eta=1.0, skip=0.5)
    """

    lr: Rate = rate()
    eta: float = number("(0, inf)", tune=WEIGHT, around=1.0)
    skip: float = number("[0, 1)", default=0.0)

    needs_all = True  # its duals are those of every client
    reference = "Zhang et al. 2021, Algorithm 1"
    claims = (
        Optimum("full", when={"eta": 1.0, "skip": 0.0}),
        Reduction("FedADMM", when={"skip": 0.0}),
    )

    def centre(self, x: Vector, client: Any, ctx: Context) -> Vector:
        """The server's x, or the client's own xhat_i if the round before ended without communication."""
        own: Vector = client[1]
        return where(self._met(ctx, ctx.round), x, own)

    def update(self, server: Any, change: Vector, ctx: Context) -> Any:
        x, mean = super().update(server, change, ctx)
        return where(self._met(ctx, ctx.round + 1), x, server[0]), mean

    def traffic(self, ctx: Context) -> tuple[Any, Any]:
        return self._met(ctx, ctx.round), self._met(ctx, ctx.round + 1)

    def _met(self, ctx: Context, round: Any) -> Any:
        """Whether clients and server spoke before this round: one coin for all."""
        return uniform(ctx.common_key(round)) >= self.skip
