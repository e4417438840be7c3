"""Private: any method with its clients' uploads clipped and Gaussian noise on their mean.

Objective:  the base's

    the base's rounds, unchanged but for                                    McMahan et al. 2018, Algorithm 1
    client:  u_i <- u_i min(1, S / ||u_i||)
    server:  mean_i u_i + (z S / m) N(0, I)  in place of  mean_i u_i        m clients a round

Here the noise is drawn from the run's seed, as everything is: a simulation tells what accuracy a guarantee costs. Over
a network the server draws it from a cryptographic generator (`fedax.privacy.secure_noise`). A model that is to be
handed out must come from there, for who knows the seed can take this noise off again.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import Context, algorithm, choice, method, number
from fedax.algorithms.localised import OfBase
from fedax.errors import FedaxError
from fedax.vectors import Vector, ball, normal


@algorithm
class Private(OfBase):
    """The base's objective, with differential privacy for whole clients.

    base: a method that uploads changes and takes their mean.
    clip: S, the L2 norm that an upload is scaled down to, above 0.
    noise: z, the noise multiplier, from 0 on; 0 for none, and no guarantee.
    delta: of (epsilon, delta), in (0, 1); below one over the number of clients.
    cohorts: "known" for an epsilon that holds where everybody knows who takes part, which the seed tells; "secret" for
        that of a server that draws cohorts from randomness of its own, smaller where a round takes few of the clients.

    Sends and keeps what the base does. Every evaluated round has the epsilon so far.

    >>> from fedax.algorithms import FedAvg
    >>> Private(FedAvg(lr=0.1), clip=1.0, noise=4.0)
    Private(base=FedAvg(lr=0.1, server_lr=1.0), clip=1.0, noise=4.0, delta=1e-05, cohorts='known')
    """

    base: Any = method()
    clip: float = number("(0, inf)", example=1e6)
    noise: float = number("[0, inf)", default=0.0)
    delta: float = number("(0, 1)", default=1e-5)
    cohorts: str = choice("known", "secret", default="known")

    reference = "McMahan, Ramage, Talwar and Zhang 2018; Wang, Balle and Kasiviswanathan 2019"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.base.shared:
            raise FedaxError(f"Private: {self.base!r} sends nothing, so there is nothing to clip")
        if self.base.privacy is not None:
            raise FedaxError(f"Private: {self.base!r} is private already: clip and noise must be given once")
        if self.base.aggregate != "mean":
            raise FedaxError(f"Private: {self.base!r} does not take the mean of uploads, and noise is made for one")

    @property
    def privacy(self) -> Any:
        return self

    def _parts(self, upload: Any) -> tuple[Vector, Any]:
        """What depends on rows, and how to put it back."""
        if not self.base.sends_way:
            return Vector(upload), lambda new: new.tree
        if isinstance(upload, Vector):
            change, way = upload.tree
            return Vector(change), lambda new: Vector((new.tree, way))
        change, way = upload
        return Vector(change), lambda new: (new.tree, way)

    def finish(self, local: Any, oracle: Any, message: Any, client: Any, ctx: Context) -> Any:
        upload, new = self.base.finish(local, oracle, message, client, ctx)
        change, whole = self._parts(upload)
        return whole(ball(change, self.clip)), new

    def update(self, server: Any, upload: Any, ctx: Context) -> Any:
        change, whole = self._parts(upload)
        scale = self.noise * self.clip / ctx.cohort
        return self.base.update(server, whole(change + scale * normal(ctx.key, change)), ctx)
