"""Who takes part in a round: the simulation's own draw, without the clients that are not connected."""

from __future__ import annotations

from collections.abc import Collection

import jax.numpy as jnp

from fedax import randomness


def draw(seed: int, round: int, clients: int, cohort: int, present: Collection[int]) -> list[int]:
    """The first `cohort` of those present, in a random order of all clients that depends on the seed and the round.

    With everybody present these are the simulation's clients; without, each of those present is as likely as another.

    >>> everybody = range(10)
    >>> draw(0, 3, 10, 4, everybody) == randomness.draw_cohort(0, 3, 10, 4).tolist()
    True
    >>> gone = draw(0, 3, 10, 4, everybody)[0]
    >>> draw(0, 3, 10, 3, set(everybody) - {gone}) == draw(0, 3, 10, 4, everybody)[1:]
    True
    """
    if cohort == clients:
        return [number for number in range(clients) if number in present]
    key = randomness.key_for(seed, randomness.COHORT, round)
    order: list[int] = randomness.shuffled(key, jnp.arange(clients), clients).tolist()
    return [number for number in order if number in present][:cohort]
