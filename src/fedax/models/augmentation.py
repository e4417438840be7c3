"""Random changes of training images, inside the compiled step: never of rows that are evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

PADDING = 4  # for images of up to 32 rows; above, an eighth: 8 for 64x64, as in FedSpeed (appendix B.1)


def flip_crop(key: jax.Array, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Each image mirrored or not, padded with zeros and cut back at a random place.

    On each side there are 4 zeros, or an eighth of the image's height if that is more.

    >>> batch = {"x": jnp.arange(2 * 8 * 8 * 3).reshape(2, 8, 8, 3), "y": jnp.array([0, 1])}
    >>> flip_crop(jax.random.key(0), batch)["x"].shape
    (2, 8, 8, 3)
    """
    x = batch["x"]
    rows, height, width = x.shape[:3]
    flips, places = jax.random.split(key)
    mirrored = jax.random.bernoulli(flips, 0.5, (rows,) + (1,) * (x.ndim - 1))
    x = jnp.where(mirrored, x[:, :, ::-1], x)
    padding = max(PADDING, height // 8)
    around = [(0, 0), (padding, padding), (padding, padding)] + [(0, 0)] * (x.ndim - 3)
    corners = jax.random.randint(places, (rows, 2), 0, 2 * padding + 1)
    down = corners[:, :1] + jnp.arange(height)
    across = corners[:, 1:] + jnp.arange(width)
    cut = jnp.pad(x, around)[jnp.arange(rows)[:, None, None], down[:, :, None], across[:, None, :]]
    return {**batch, "x": cut}


AUGMENTATIONS = {"flip-crop": flip_crop}
