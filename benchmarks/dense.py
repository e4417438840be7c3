"""Dense layers: the form of the gradient, and rows that are filled up.

    taskset -c 0 python benchmarks/dense.py

First a step of dense weights, the gradient as a matrix product and as outer products within the step, then the product
of nearly 64 rows with wide kernels, as it is and with rows of zeros up to 64. The ratio of the two times for several
shapes, medians of twelve: above 1 the second form is the quicker. The borders in `fedax.kernels.dense` are those of
these tables, which are for one core.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedax.kernels import dense

ROWS = (8, 12, 16, 20, 24, 28, 32, 50)
SHAPES = ((256, 128), (784, 100), (784, 128), (784, 200), (784, 256), (512, 256), (784, 400), (3136, 1024))
NEARLY = (32, 40, 48, 50, 56, 60)
WIDE = ((784, 1024), (2048, 1024), (3136, 1024), (8192, 1024), (4096, 4096), (3136, 512), (3136, 1000))
STEPS, REPEATS = 10, 12


def seconds(product: Any, x: jax.Array, d: jax.Array, w: jax.Array) -> float:
    """Of a step along the gradient of <d, x w>, with a d that depends on w."""

    def step(_: Any, w: jax.Array) -> jax.Array:
        _, back = jax.vjp(lambda w: product(x, w), w)
        return w - 1e-3 * back(d + w[0])[0]

    return median(jax.jit(lambda w: lax.fori_loop(0, STEPS, step, w)), w) / STEPS


def median(run: Any, *args: jax.Array) -> float:
    """Seconds of a call."""
    took = []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        run(*args).block_until_ready()
        took.append(time.perf_counter() - began)
    return statistics.median(took[1:])


def gradients(rng: np.random.Generator) -> None:
    """Outer products against a matrix product."""
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


def fillings(rng: np.random.Generator) -> None:
    """64 rows against fewer."""
    print("inputs x outputs".ljust(18) + "".join(f"{f'{rows} rows':>10}" for rows in NEARLY))
    for shape in WIDE:
        line = f"{shape[0]} x {shape[1]}".ljust(18)
        for rows in NEARLY:
            x, w = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((rows, shape[0]), shape))
            ratio = median(jax.jit(jnp.dot), x, w) / median(jax.jit(dense._filled), x, w)
            line += f"{f'{ratio:.2f}' + '*' * dense.filling_serves(x, w):>10}"
        print(line, flush=True)
    print("* where Fedax fills up")


def main() -> None:
    """A table for each."""
    rng = np.random.default_rng(0)
    gradients(rng)
    fillings(rng)


if __name__ == "__main__":
    main()
