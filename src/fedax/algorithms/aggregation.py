"""How a cohort's uploads are combined, coordinate by coordinate or vector by vector, where a mean is not robust enough.

Each rule takes the uploads stacked along a first axis and their weights, and gives one upload. A place of weight 0
holds no client and counts for nothing. m is the number of clients that do.

    mean               sum_i w_i u_i / sum_i w_i
    median             the weighted median of each coordinate
    trimmed_mean       each coordinate's mean without its floor(trim m) least and largest values      Yin et al. 2018
    geometric_median   argmin over z of sum_i w_i ||u_i - z||, by Weiszfeld's iteration            Pillutla et al. 2022
    krum               the u_i with the least sum of squared distances to its m - attackers - 2    Blanchard et al. 2017
                       nearest others
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedax.errors import unknown
from fedax.outside import is_outside, load

ITERATIONS = 32  # of Weiszfeld's
NEAR = 1e-6  # a distance below which an upload counts as at the median

Rule = Callable[..., Any]


def mean(uploads: Any, weights: jax.Array) -> Any:
    """The weighted mean.

    >>> float(mean(jnp.array([1.0, 5.0, 9.0]), jnp.array([3.0, 1.0, 0.0])))
    2.0
    """
    total = weights.sum()
    return jax.tree.map(lambda u: _sum(weights, u) / total.astype(u.dtype), uploads)


def median(uploads: Any, weights: jax.Array) -> Any:
    """The weighted median of each coordinate, the middle of the two where it lies between two values.

    >>> float(median(jnp.array([1.0, 2.0, 100.0, 4.0]), jnp.array([1.0, 1.0, 1.0, 1.0])))
    3.0
    """

    def one(u: jax.Array) -> jax.Array:
        w = jnp.broadcast_to(_like(weights, u), u.shape)
        order = jnp.argsort(jnp.where(w > 0, u, jnp.inf), axis=0)
        values, mass = jnp.take_along_axis(u, order, 0), jnp.cumsum(jnp.take_along_axis(w, order, 0), 0)
        half = mass[-1] / 2
        low = jnp.argmax(mass >= half, axis=0)[None]
        high = jnp.argmax(mass > half, axis=0)[None]
        return (jnp.take_along_axis(values, low, 0)[0] + jnp.take_along_axis(values, high, 0)[0]) / 2

    return jax.tree.map(one, uploads)


def trimmed_mean(uploads: Any, weights: jax.Array, trim: Any = 0.1) -> Any:
    """The weighted mean of each coordinate without its floor(trim m) least and as many largest values.

    >>> float(trimmed_mean(jnp.array([1.0, 2.0, 3.0, 4.0, 100.0]), jnp.ones(5), trim=0.2))
    3.0
    """
    there = jnp.sum(weights > 0)
    cut = jnp.floor(trim * there + 1e-6).astype(there.dtype)

    def one(u: jax.Array) -> jax.Array:
        w = _like(weights, u)
        rank = jnp.argsort(jnp.argsort(jnp.where(w > 0, u, jnp.inf), axis=0), axis=0)
        kept = jnp.where((rank >= cut) & (rank < there - cut), w, 0)
        return jnp.sum(jnp.where(kept > 0, kept * u, 0), axis=0) / jnp.sum(kept, axis=0)

    return jax.tree.map(one, uploads)


def geometric_median(uploads: Any, weights: jax.Array) -> Any:
    """The point with the least weighted sum of distances to all uploads.

    >>> float(geometric_median(jnp.array([0.0, 1.0, 100.0]), jnp.ones(3)).round(2))
    1.0
    """

    def step(_: Any, z: Any) -> Any:
        away = jnp.sqrt(_squares(jax.tree.map(lambda u, c: u - c[None], uploads, z)))
        return mean(uploads, weights / jnp.maximum(away, NEAR))

    return jax.lax.fori_loop(0, ITERATIONS, step, median(uploads, weights))


def krum(uploads: Any, weights: jax.Array, attackers: int = 1) -> Any:
    """The upload that is nearest to its m - attackers - 2 nearest others; weights only say who is there.

    Two that are each other's nearest may be equally near: the one whose next nearest is nearer is taken, and of two
    that have all distances in common the mean, so that the order of the uploads does not matter.

    >>> float(krum(jnp.array([1.0, 1.1, 0.9, 50.0]), jnp.ones(4)))
    1.0
    """
    places, there = len(weights), weights > 0
    gram = jnp.stack([_squares(jax.tree.map(lambda u, i=i: u - u[i][None], uploads)) for i in range(places)])
    others = jnp.where(there[:, None] & there[None] & ~jnp.eye(places, dtype=bool), gram, jnp.inf)
    near = jnp.maximum(1, jnp.sum(there) - attackers - 2)
    by_distance = jnp.sort(others, axis=1)
    counted = jnp.where(jnp.arange(places)[None] < near, by_distance, 0)
    best = jax.lax.fori_loop(near, places, lambda k, b: _least(by_distance[:, k], b), _least(counted.sum(1), there))
    return mean(uploads, best.astype(weights.dtype))


def _least(scores: jax.Array, among: jax.Array) -> jax.Array:
    """Those of the places that have the least score."""
    scores = jnp.where(among, scores, jnp.inf)
    return among & (scores == scores.min())


def _like(weights: jax.Array, u: jax.Array) -> jax.Array:
    return weights.astype(u.dtype).reshape(-1, *(1,) * (u.ndim - 1))


def _sum(weights: jax.Array, u: jax.Array) -> jax.Array:
    """The weighted sum over places; a place of weight 0 counts for nothing, whatever is in it."""
    w = _like(weights, u)
    return jnp.sum(jnp.where(w > 0, w * u, 0), axis=0)


def _squares(uploads: Any) -> jax.Array:
    """The squared norm of each upload over all of its leaves."""
    parts = [jnp.sum(jnp.square(u.reshape(u.shape[0], -1)), axis=1) for u in jax.tree.leaves(uploads)]
    total: jax.Array = sum(parts[1:], parts[0])
    return total


def named(name: str) -> Rule:
    """A rule of `RULES`, or a function (uploads, weights) of your own by "mymodule:my_rule" or "file.py:my_rule".

    >>> named("fedax.algorithms.aggregation:mean") is mean
    True
    >>> named("meadian")
    Traceback (most recent call last):
    fedax.errors.FedaxError: unknown aggregation 'meadian': did you mean 'median'? ...
    """
    if is_outside(name):
        check = lambda found: callable(found) and not isinstance(found, type)  # noqa: E731
        found: Rule = load(name, "aggregation", check, "it must be a function of (uploads, weights)")
        return found
    if name not in RULES:
        raise unknown("aggregation", name, RULES)
    return RULES[name]


RULES: dict[str, Rule] = {
    "median": median,
    "trimmed_mean": trimmed_mean,
    "geometric_median": geometric_median,
    "krum": krum,
}
