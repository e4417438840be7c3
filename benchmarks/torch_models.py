"""PyTorch modules in Fedax beside Fedax's own models: local steps of SGD, one core.

    taskset -c 1 python benchmarks/torch_models.py [--repeats 25]

Medians of the processor's time for ten steps; the two take turns. The MLP and the CNN are those of workloads A and C.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
import jax.numpy as jnp
import numpy as np
from torch import nn

from fedax.models import TorchModel, model

STEPS = 10


def mlp() -> nn.Module:
    """784-200-200-10."""
    return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))


def cnn() -> nn.Module:
    """Two convolutions with ReLU and pooling, then 1024 and 512 dense."""
    first = (nn.Conv2d(1, 32, 3, padding="same"), nn.ReLU(), nn.MaxPool2d(2))
    second = (nn.Conv2d(32, 64, 3, padding="same"), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    dense = (nn.Linear(3136, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10))
    return nn.Sequential(*first, *second, *dense)


def steps(apply: Callable[[Any, Any], Any], clients: int) -> Any:
    """A program of SGD's steps, for several clients at once."""

    def loss(params: Any, x: Any, y: Any) -> Any:
        logs = jax.nn.log_softmax(apply(params, x))
        return -jnp.take_along_axis(logs, y[:, None], 1).mean()

    def run(params: Any, xs: Any, ys: Any) -> Any:
        def step(k: Any, now: Any) -> Any:
            return jax.tree.map(lambda a, g: a - 0.1 * g, now, jax.grad(loss)(now, xs[k], ys[k]))

        return jax.lax.fori_loop(0, STEPS, step, params)

    return jax.jit(jax.vmap(run, in_axes=(0, None, None)) if clients > 1 else run)


def measure(net: nn.Module, own: Any, batch: int, shapes: tuple[Any, Any], clients: int, repeats: int) -> list[float]:
    """The median milliseconds of the module and of Fedax's own model."""
    rng = np.random.default_rng(0)
    x, y = rng.random((STEPS, batch, *shapes[1]), np.float32), rng.integers(0, 10, (STEPS, batch))
    torch_model, key = TorchModel(net), jax.random.key(0)
    theirs, state = torch_model.init(key, x[0].reshape(batch, *shapes[0]))
    programs = []
    for apply, params, rows in (
        (lambda p, x: torch_model.apply(p, state, x, None, True)[0], theirs, x.reshape(STEPS, batch, *shapes[0])),
        (own.apply, own.init(key, x[0]), x),
    ):
        stacked = jax.tree.map(lambda a: jnp.stack([a] * clients), params) if clients > 1 else params
        programs.append((steps(apply, clients), stacked, rows))
    seconds: list[list[float]] = [[], []]
    for repeat in range(repeats + 1):  # the first compiles, and is left out
        for took, (program, params, rows) in zip(seconds, programs, strict=True):
            began = time.process_time()
            jax.block_until_ready(program(params, rows, y))
            if repeat:
                took.append(time.process_time() - began)
    return [1e3 * float(np.median(took)) for took in seconds]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="PyTorch modules in Fedax beside Fedax's own models.")
    parser.add_argument("--repeats", type=int, default=25)
    repeats = parser.parse_args().repeats
    flat, image = ((784,), (784,)), ((1, 28, 28), (28, 28))
    for title, net, own, batch, shapes, clients in (
        ("MLP", mlp(), model("mlp", outputs=10, hidden=(200, 200)), 20, flat, 1),
        ("MLP", mlp(), model("mlp", outputs=10, hidden=(200, 200)), 20, flat, 5),
        ("CNN", cnn(), model("cnn", outputs=10), 50, image, 1),
        ("CNN", cnn(), model("cnn", outputs=10), 10, image, 2),
    ):
        theirs, ours = measure(net, own, batch, shapes, clients, repeats)
        line = f"{title}, batch {batch}, {clients} at once: module {theirs:.1f} ms, own {ours:.1f} ms"
        print(f"{line}, ratio {theirs / ours:.2f}", flush=True)


if __name__ == "__main__":
    main()
