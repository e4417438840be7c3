"""A step of dense weights, the gradient as a matrix product and as outer products within the step.

    taskset -c 0 python benchmarks/dense.py

The ratio of the two times for several shapes, medians of twelve: above 1 outer products are the quicker. The borders in
`fedax.models.dense` are those of this table, which is for one core.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedax.models import dense

ROWS = (8, 12, 16, 20, 24, 28, 32, 50)
SHAPES = ((256, 128), (784, 100), (784, 128), (784, 200), (784, 256), (512, 256), (784, 400), (3136, 1024))
STEPS, REPEATS = 10, 12


def seconds(product: Any, x: jax.Array, d: jax.Array, w: jax.Array) -> float:
    """Of a step along the gradient of <d, x w>, with a d that depends on w."""

    def step(_: Any, w: jax.Array) -> jax.Array:
        _, back = jax.vjp(lambda w: product(x, w), w)
        return w - 1e-3 * back(d + w[0])[0]

    run, took = jax.jit(lambda w: lax.fori_loop(0, STEPS, step, w)), []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        run(w).block_until_ready()
        took.append(time.perf_counter() - began)
    return statistics.median(took[1:]) / STEPS


def main() -> None:
    """A line for each shape."""
    rng = np.random.default_rng(0)
    print("inputs x outputs".ljust(18) + "".join(f"{f'{rows} rows':>10}" for rows in ROWS))
    for shape in SHAPES:
        line = f"{shape[0]} x {shape[1]}".ljust(18)
        for rows in ROWS:
            x, d, w = (
                jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((rows, shape[0]), (rows, shape[1]), shape)
            )
            ratio = seconds(jnp.dot, x, d, w) / seconds(dense._product, x, d, w)
            line += f"{f'{ratio:.2f}' + '*' * dense.serves(x, w):>10}"
        print(line, flush=True)
    print("* where Fedax takes outer products")


if __name__ == "__main__":
    main()
