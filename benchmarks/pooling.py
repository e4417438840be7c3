"""A gradient step of networks with poolings: Fedax' pooling against other ways to write the same.

    taskset -c 0 python benchmarks/pooling.py

"slices" takes the entries of all windows by slices with a stride, "argmax" chooses by the place of the largest, "equal"
by the first place that equals the largest, and "its own" is XLA's window reduction (Flax's `max_pool`). All give the
same values; where entries of a window are equal the gradients may differ. Ten steps are one program, as in a run; the
ratio is the time over ours, medians of twelve, in turn.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from unittest import mock

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from fedax.models import max_pool, model

Pool = Callable[[jax.Array], jax.Array]
STEPS, REPEATS, ROWS = 10, 12, 50
NETWORKS = {
    "small_cnn_gn, 16-32-32": ("small_cnn_gn", {"channels": (16, 32, 32)}, (32, 32, 3)),
    "small_cnn_gn, 32-64-128": ("small_cnn_gn", {}, (32, 32, 3)),
    "cnn, 8-16, 64 units": ("cnn", {"channels": (8, 16), "kernel": 5, "dense": (64,)}, (32, 32, 3)),
    "cnn, 32-64, 512 units": ("cnn", {"channels": (32, 64), "kernel": 5, "dense": (512,)}, (28, 28, 1)),
}


def its_own(x: jax.Array) -> jax.Array:
    return nn.max_pool(x, (2, 2), (2, 2))


def slices(x: jax.Array) -> jax.Array:
    height, width = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
    top, bottom = (jnp.maximum(x[:, i:height:2, 0:width:2], x[:, i:height:2, 1:width:2]) for i in range(2))
    return jnp.maximum(top, bottom)


def windows(x: jax.Array) -> jax.Array:
    n, height, width, channels = x.shape
    return x[:, : height // 2 * 2, : width // 2 * 2].reshape(n, height // 2, 2, width // 2, 2, channels)


def chosen(entries: jax.Array, place: jax.Array) -> jax.Array:
    """A sum over the window of what is in that place and zeros: its gradient is a choice."""
    places = jnp.arange(4).reshape(2, 1, 2, 1)
    return jnp.where(place[:, :, None, :, None] == places, entries, 0).sum(axis=(2, 4))


def argmax(x: jax.Array) -> jax.Array:
    entries = windows(x)
    n, rows, _, columns, _, channels = entries.shape
    return chosen(entries, jnp.argmax(entries.swapaxes(3, 4).reshape(n, rows, 4, columns, channels), axis=2))


def equal(x: jax.Array) -> jax.Array:
    entries = windows(x)
    largest, place = entries.max(axis=(2, 4)), jnp.int32(3)
    for i, j in ((1, 0), (0, 1), (0, 0)):
        place = jnp.where(entries[:, :, i, :, j] == largest, 2 * i + j, place)
    return chosen(entries, place)


WAYS: dict[str, Pool] = {"ours": max_pool, "slices": slices, "argmax": argmax, "equal": equal, "its own": its_own}


def steps(name: str, options: dict[str, object], shape: tuple[int, ...], pool: Pool) -> Callable[[], object]:
    """Ten steps of gradient descent as one program."""
    network = model(name, outputs=10, **options)
    x, y = jax.random.normal(jax.random.key(0), (ROWS, *shape)), jnp.arange(ROWS) % 10
    start = network.init(jax.random.key(1), x)

    def loss(params: object) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(network.apply(params, x), y).mean()

    def step(params: object, _: None) -> tuple[object, None]:
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, jax.grad(loss)(params)), None

    with mock.patch("fedax.models.resnet.max_pool", pool), mock.patch("fedax.models.cnn.max_pool", pool):
        program = jax.jit(lambda params: jax.lax.scan(step, params, length=STEPS)[0]).lower(start).compile()
    return lambda: jax.block_until_ready(program(start))


def main() -> None:
    """A line for each network."""
    print(f"{'network':26}{'ours, ms a step':>16}" + "".join(f"{way:>10}" for way in list(WAYS)[1:]))
    for title, network in NETWORKS.items():
        programs = {way: steps(*network, pool) for way, pool in WAYS.items()}
        took: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(REPEATS):
            for way, run in programs.items():
                began = time.perf_counter()
                run()
                took[way].append((time.perf_counter() - began) / STEPS)
        ours, *others = (statistics.median(took[way]) for way in WAYS)
        print(f"{title:26}{1e3 * ours:16.1f}" + "".join(f"{other / ours:10.2f}" for other in others), flush=True)


if __name__ == "__main__":
    main()
