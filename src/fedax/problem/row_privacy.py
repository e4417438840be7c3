"""Per-example clipping and noise (DP-SGD), in place of the gradient of a mean of losses.

    g  =  (1/b) ( sum_j g_j min(1, C / ||g_j||)  +  z C N(0, I) )        g_j: of row j's loss       Abadi et al. 2016

C bounds the effect of one row on a gradient, and z is the noise in multiples of C. A client computes all that it sends
from such gradients, so it reveals no more about a row than they do. psi's subgradient depends on no row and is added
after.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from annotated_types import Ge, Gt, Lt

from fedax.errors import FedaxError, unknown
from fedax.options import check_float32, check_options
from fedax.vectors import Vector, ball, normal, size, zeros

NAME = "dp"
FLOATS = 1 << 22  # of rows' gradients that are in memory at a time


class Keys:
    """The keys of the noise of one local step: each is given once, so no two gradients have the same noise."""

    def __init__(self, key: jax.Array) -> None:
        self._key, self._numbers = key, itertools.count()

    def next(self) -> jax.Array:
        """The key of one more gradient."""
        return jax.random.fold_in(self._key, next(self._numbers))


@dataclasses.dataclass(frozen=True)
class RowPrivacy:
    """The clipping and noise of `{ name = "dp", clip = 1.0, noise = 1.1 }`.

    clip: C, the L2 norm that a row's gradient is scaled down to, above 0.
    noise: z, the noise multiplier, from 0 on; 0 for none, and no guarantee.
    delta: of (epsilon, delta), in (0, 1); below one over the rows of a client.

    >>> RowPrivacy.of(clip=1.0, noise=1.1)
    RowPrivacy(clip=1.0, noise=1.1, delta=1e-05)
    >>> RowPrivacy.of(clip=0)
    Traceback (most recent call last):
    fedax.errors.FedaxError: gradients: dp: clip must be a number above 0, not 0
    """

    clip: Annotated[float, Gt(0)]
    noise: Annotated[float, Ge(0)] = 0.0
    delta: Annotated[float, Gt(0), Lt(1)] = 1e-5

    @classmethod
    def of(cls, **options: Any) -> RowPrivacy:
        """From a table of an experiment file, without its name."""
        allowed = [field.name for field in dataclasses.fields(cls)]
        for given in options:
            if given not in allowed:
                raise unknown(f"field of {NAME}", given, allowed)
        if "clip" not in options:
            raise FedaxError(f"gradients: {NAME}: clip is missing: the norm that each row's gradient is clipped to")
        made = cls(**options)
        try:
            check_options(made)
            check_float32("clip", made.clip)
            check_float32("noise", made.noise)
        except FedaxError as error:
            raise FedaxError(f"gradients: {NAME}: {error}") from None
        return made

    def clipped(
        self, gradient: Callable[[Any], Vector], batch: Mapping[str, Any], weights: jax.Array | None, like: Vector
    ) -> Vector:
        """The (weighted) mean of rows' clipped gradients; `gradient` takes one row, as a batch of one."""
        rows = len(next(iter(jax.tree.leaves(batch))))
        weights = jnp.ones(rows) if weights is None else weights
        chunk = max(1, min(rows, FLOATS // max(1, size(like))))
        padded = -(-rows // chunk) * chunk

        def chunks(array: Any) -> Any:
            full = jnp.pad(array, ((0, padded - rows), *((0, 0) for _ in array.shape[1:])))
            return full.reshape(-1, chunk, *array.shape[1:])

        def of_row(row: Any, weight: Any) -> Vector:
            one = gradient(jax.tree.map(lambda a: a[None], row))
            clipped = ball(one, self.clip)
            weighted: Vector = jax.tree.map(lambda g: jnp.where(weight > 0, weight.astype(g.dtype) * g, 0), clipped)
            return weighted

        def add(total: Vector, some: Any) -> tuple[Vector, None]:
            each = jax.vmap(of_row)(*some)
            return jax.tree.map(lambda t, e: t + jnp.sum(e, 0), total, each), None

        first = zeros(like)
        total, _ = jax.lax.scan(add, first, (jax.tree.map(chunks, dict(batch)), chunks(weights)))
        mean: Vector = jax.tree.map(lambda t: t / jnp.sum(weights).astype(t.dtype), total)
        return mean

    def noisy(self, mean: Vector, rows: Any, key: jax.Array) -> Vector:
        """The mean over some rows with its noise."""
        if not self.noise:
            return mean
        scale, drawn = self.noise * self.clip / rows, normal(key, mean)
        moved: Vector = jax.tree.map(lambda m, n: m + jnp.asarray(scale, m.dtype) * n, mean, drawn)
        return moved
