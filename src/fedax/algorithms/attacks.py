"""Clients that attack: a share of them sends something else than what it computed, or trains on wrong labels.

    flip      -strength u          the upload turned round                              strength 1 unless given
    scale      strength u          the upload made larger                               strength 10
    noise      strength ||u|| z / sqrt(d),  z normal: no direction at all               strength 10
    relabel    u itself, of training rows with label C - 1 - y in place of y            no strength

Who attacks is a function of the seed. `Attacked` wraps what a client sends, so every method and every rule of
`fedax.algorithms.aggregation` can be tried against it.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Gt, Lt
from numpy.typing import NDArray

from fedax import randomness
from fedax.algorithms.base import Algorithm, Context, Oracle, algorithm, choice, integer, method, number
from fedax.algorithms.localised import OfBase
from fedax.errors import FedaxError
from fedax.options import check_float32, check_options

Kind = Literal["flip", "scale", "noise", "relabel"]
STRENGTH = {"flip": 1.0, "scale": 10.0, "noise": 10.0}


@dataclasses.dataclass(frozen=True)
class Attack:
    """What a share of the clients does instead of their part.

    kind: "flip", "scale", "noise" or "relabel".
    share: of the clients, in [0, 1); at least one client attacks if it is above 0.
    strength: of what they send, above 0.

    >>> Attack("flip", share=0.2)
    Attack(kind='flip', share=0.2, strength=1.0)
    >>> Attack("flp", share=0.2)
    Traceback (most recent call last):
    fedax.errors.FedaxError: unknown kind 'flp': did you mean 'flip'? Allowed: flip, scale, noise, relabel
    """

    kind: Kind
    share: Annotated[float, Ge(0), Lt(1)]
    strength: Annotated[float, Gt(0)] | None = None

    def __post_init__(self) -> None:
        check_options(self)
        check_float32("strength", self.strength or 0.0)
        if self.kind == "relabel" and self.strength is not None:
            raise FedaxError(f"strength is {self.strength}: relabel has none, so it must be left out")
        if self.strength is None and self.kind in STRENGTH:
            object.__setattr__(self, "strength", STRENGTH[self.kind])

    def count(self, clients: int) -> int:
        """How many of the clients attack.

        >>> Attack("flip", share=0.25).count(10), Attack("flip", share=0.01).count(10), Attack("flip", share=0).count(9)
        (2, 1, 0)
        """
        return max(1, int(self.share * clients + 1e-9)) if self.share else 0

    def who(self, seed: int, clients: int) -> NDArray[np.int32]:
        """The clients that attack.

        >>> len(Attack("flip", share=0.3).who(0, 10))
        3
        """
        return np.asarray(attackers(seed, clients, self.count(clients)))


def attackers(seed: Any, clients: int, count: int) -> jax.Array:
    """The first places of a permutation of the clients that depends on the seed."""
    key = randomness.key_for(seed, randomness.ATTACK)
    drawn: jax.Array = randomness.shuffled(key, jnp.arange(count), clients)
    return drawn


@algorithm
class Attacked(OfBase):
    """The base's objective, with clients whose uploads are not what they computed.

    base: any method.
    kind: "flip", "scale" or "noise".
    attackers: how many of the clients, from 0 on.
    strength: of what they send.
    """

    base: Any = method()
    kind: str = choice("flip", "scale", "noise", default="flip")
    attackers: int = integer("[0, inf)", default=1)
    strength: float = number("(0, inf)", default=1.0)

    def __repr__(self) -> str:
        return f"{self.base!r} with {self.attackers} attackers: {self.kind} {self.strength:g}"

    def finish(self, local: Any, oracle: Oracle, message: Any, client: Any, ctx: Context) -> Any:
        upload, kept = self.base.finish(local, oracle, message, client, ctx)
        attacks = jnp.any(attackers(ctx.seed, ctx.clients, self.attackers) == ctx.client)
        wrong = self._wrong(upload, ctx)
        return jax.tree.map(lambda u, w: jnp.where(attacks, w.astype(u.dtype), u), upload, wrong), kept

    def _wrong(self, upload: Any, ctx: Context) -> Any:
        if self.kind != "noise":
            factor = -self.strength if self.kind == "flip" else self.strength
            return jax.tree.map(lambda u: factor * u, upload)
        leaves, structure = jax.tree.flatten(upload)
        if not leaves:  # LocalOnly
            return upload
        d = sum(leaf.size for leaf in leaves)
        scale = self.strength * jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in leaves) / d)
        keys = jax.random.split(jax.random.fold_in(ctx.key, randomness.ATTACK), len(leaves))
        made = [scale * jax.random.normal(key, u.shape, u.dtype) for key, u in zip(keys, leaves, strict=True)]
        return jax.tree.unflatten(structure, made)


def attacked(algorithm: Algorithm, attack: Attack | None, clients: int) -> Algorithm:
    """The method under an attack on its uploads, if there is one.

    >>> from fedax.algorithms import FedAvg
    >>> attacked(FedAvg(lr=0.1), Attack("scale", share=0.5), clients=4)
    FedAvg(lr=0.1, server_lr=1.0) with 2 attackers: scale 10
    """
    if attack is None or attack.kind == "relabel" or not attack.share:
        return algorithm
    assert attack.strength is not None
    if isinstance(algorithm, OfBase) and algorithm.privacy is algorithm:  # Private, whose server clips what is sent
        return dataclasses.replace(algorithm, base=attacked(algorithm.base, attack, clients))  # type: ignore[type-var]
    return Attacked(algorithm, attack.kind, attack.count(clients), float(attack.strength))
