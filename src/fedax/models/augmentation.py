"""Random changes of training images, inside the compiled step: never of rows that are evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

PADDING = 4


def flip_crop(key: jax.Array, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Each image mirrored or not, padded by 4 zeros on each side and cut back at a random place.

    >>> batch = {"x": jnp.arange(2 * 8 * 8 * 3).reshape(2, 8, 8, 3), "y": jnp.array([0, 1])}
    >>> flip_crop(jax.random.key(0), batch)["x"].shape
    (2, 8, 8, 3)
    """
    x = batch["x"]
    rows, height, width = x.shape[:3]
    flips, places = jax.random.split(key)
    mirrored = jax.random.bernoulli(flips, 0.5, (rows,) + (1,) * (x.ndim - 1))
    x = jnp.where(mirrored, x[:, :, ::-1], x)
    around = [(0, 0), (PADDING, PADDING), (PADDING, PADDING)] + [(0, 0)] * (x.ndim - 3)
    corners = jax.random.randint(places, (rows, 2), 0, 2 * PADDING + 1)
    down = corners[:, :1] + jnp.arange(height)
    across = corners[:, 1:] + jnp.arange(width)
    cut = jnp.pad(x, around)[jnp.arange(rows)[:, None, None], down[:, :, None], across[:, None, :]]
    return {**batch, "x": cut}


AUGMENTATIONS = {"flip-crop": flip_crop}
