"""Settings side by side: narrow kernels carried by columns through the local steps, against carried as they are.

    taskset -c 0 python benchmarks/lanes.py

SGD on a softmax regression for several settings at once, as the lanes of a sweep take it, rows gathered from a table:
the median ratio of twelve pairs of times, above 1 where `fedax.client.round.by_columns` is the quicker.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedax.kernels.loops import by_columns
from fedax.problem.losses import cross_entropy

SHAPES = ((64, 10), (784, 2), (784, 10), (784, 62), (3072, 10), (200, 199))  # inputs, outputs
LANES, ROWS = (4, 25), (10, 50)
STEPS, REPEATS = 50, 12

Loop = Callable[[int, int, Callable[[Any, Any], Any], Any], Any]


def program(loop: Loop, table: jax.Array, rows: jax.Array, labels: jax.Array) -> Any:
    """Some local steps of every setting, from rates and kernels."""

    def one(rate: jax.Array, kernel: jax.Array) -> Any:
        def step(k: Any, w: jax.Array) -> jax.Array:
            x, y = table[rows[k]], labels[k]
            return w - rate * jax.grad(lambda w: jnp.mean(cross_entropy(x @ w, y)))(w)

        return loop(0, STEPS, step, kernel)

    return jax.jit(jax.vmap(one))


def seconds(run: Any, *args: jax.Array) -> float:
    """Of a call."""
    began = time.perf_counter()
    run(*args).block_until_ready()
    return time.perf_counter() - began


def ratio(inputs: int, outputs: int, lanes: int, rows: int) -> float:
    """The usual loop's time over that by columns."""
    keys = jax.random.split(jax.random.key(0), 3)
    table = jax.random.normal(keys[0], (5_000, inputs)) / inputs
    drawn = jax.random.randint(keys[1], (STEPS, rows), 0, len(table))
    labels = jax.random.randint(keys[2], (STEPS, rows), 0, outputs)
    args = jnp.linspace(0.01, 0.1, lanes), jnp.zeros((lanes, inputs, outputs))
    plain, turned = (program(loop, table, drawn, labels) for loop in (jax.lax.fori_loop, by_columns))
    pairs = [(seconds(plain, *args), seconds(turned, *args)) for _ in range(REPEATS + 1)]
    return statistics.median(a / b for a, b in pairs[1:])


def main() -> None:
    """A line for each shape."""
    columns = [(lanes, rows) for lanes in LANES for rows in ROWS]
    print("inputs x outputs".ljust(18) + "".join(f"{f'{lanes} lanes, {rows} rows':>20}" for lanes, rows in columns))
    for shape in SHAPES:
        found = [ratio(*shape, *column) for column in columns]
        print(f"{shape[0]} x {shape[1]}".ljust(18) + "".join(f"{one:20.2f}" for one in found), flush=True)


if __name__ == "__main__":
    main()
