"""Projections onto an l1 ball: Newton's method for the threshold against the sort of `optax.projections`.

    taskset -c 0 python benchmarks/projection.py

Ten points at once, as of the clients of a cohort, some far outside their ball and some within. The ratio is the sort's
time over ours, medians of twelve.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedax import Vector
from fedax.regularizers import L1Ball

SIZES = (100, 1_000, 7_840, 100_000)
SHARES = {"a tenth of its norm": 0.1, "nine tenths": 0.9, "within": 1.1}
REPEATS = 12


def seconds(project: Callable[[jax.Array], jax.Array], x: jax.Array) -> float:
    """Of ten projections side by side."""
    run, took = jax.jit(jax.vmap(project)), []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        run(x).block_until_ready()
        took.append(time.perf_counter() - began)
    return statistics.median(took[1:])


def main() -> None:
    """A line for each size and radius."""
    print(f"{'entries':>8}  {'radius':20}{'ours, us':>10}{'sorted, us':>12}{'ratio':>8}")
    for size in SIZES:
        x = jnp.asarray(np.random.default_rng(size).normal(size=(10, size)), jnp.float32)
        for name, share in SHARES.items():
            radius = float(share * jnp.abs(x).sum(1).min())
            ball = L1Ball(radius)
            ours = seconds(lambda a, ball=ball: ball.prox(Vector(a), 1.0).tree, x)
            theirs = seconds(lambda a, radius=radius: optax.projections.projection_l1_ball(a, radius), x)
            print(f"{size:8}  {name:20}{1e6 * ours:10.0f}{1e6 * theirs:12.0f}{theirs / ours:8.1f}", flush=True)


if __name__ == "__main__":
    main()
