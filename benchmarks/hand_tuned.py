"""The workloads as JAX programs written for them alone, without the library: the practical limit on this machine.

One compiled call runs all rounds that are asked for. In each, the cohort is spread over the devices, a client's steps
are a compiled loop, and the means are one collective. Small models are batched over a device's clients, large ones take
their clients in turn. Rows are drawn by NumPy, for all rounds of a call at once. Convolution and pooling are Fedax's,
for XLA's own are ten times slower on a CPU; everything else is here.

Parameters have the names that Fedax's models give them, so that `check` can compare the two.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.workloads import Workload
from fedax.models import convolve, max_pool

LARGE = 1_000_000  # parameters from which two steps an iteration save a copy of the weights
SMALL = 50_000  # parameters up to which clients are batched
ALPHA = 0.5  # APFL's weight
IMAGES = ("NHWC", "HWIO", "NHWC")


# Models: outputs(parameters, inputs)


def dense(layer: Any, x: jax.Array) -> jax.Array:
    return x @ layer["kernel"] + layer["bias"]


def perceptron(p: Any, x: jax.Array) -> jax.Array:
    for name in sorted(p)[:-1]:
        x = jax.nn.relu(dense(p[name], x))
    return dense(p[max(p)], x)


def cnn(p: Any, x: jax.Array) -> jax.Array:
    for name in sorted(name for name in p if name.startswith("Conv")):
        x = convolve(x, p[name]["kernel"], (1, 1), "SAME", dimension_numbers=IMAGES) + p[name]["bias"]
        x = jax.nn.relu(max_pool(x))
    return perceptron({k: v for k, v in p.items() if k.startswith("Dense")}, x.reshape(len(x), -1))


def resnet(p: Any, x: jax.Array) -> jax.Array:
    def convolution(p: Any, which: int, x: jax.Array, stride: int = 1) -> jax.Array:
        kernel, norm = p[f"Conv_{which}"]["kernel"], p[f"GroupNorm_{which}"]
        pad = kernel.shape[0] // 2
        z = convolve(x, kernel, (stride, stride), [(pad, pad)] * 2, dimension_numbers=IMAGES)
        # Moments of each channel, then of each group of them: the large array is read once and written once.
        moments = jnp.stack([z.mean(axis=(1, 2)), jnp.square(z).mean(axis=(1, 2))])
        grouped = moments.reshape(2, len(z), 2, -1).mean(axis=-1)
        mean, square = jnp.repeat(grouped, z.shape[-1] // 2, axis=-1)
        factor = norm["scale"] * lax.rsqrt(square - mean**2 + 1e-5)
        return z * factor[:, None, None] + (norm["bias"] - mean * factor)[:, None, None]

    x = jax.nn.relu(convolution(p, 0, x))
    for b in range(8):
        block, stride = p[f"BasicBlock_{b}"], 2 if b in (2, 4, 6) else 1
        y = jax.nn.relu(convolution(block, 0, x, stride))
        shortcut = convolution(block, 2, x, stride) if "Conv_2" in block else x
        x = jax.nn.relu(convolution(block, 1, y) + shortcut)
    return dense(p["Dense_0"], x.mean(axis=(1, 2)))


MODELS = {"logistic": perceptron, "mlp": perceptron, "cnn": cnn, "resnet18": resnet}


def loss(task: Workload, params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    z = MODELS[task.model](params["params"], x)
    if task.loss == "logistic":
        return jax.nn.softplus(jnp.where(y > 0, -z[:, 0], z[:, 0])).mean()
    return (jax.nn.logsumexp(z, axis=-1) - jnp.take_along_axis(z, y[:, None], axis=-1)[:, 0]).mean()


# Methods: client(task, grad, loop, server, state) -> upload, new state, and update(task, server, mean upload) -> server


def each(f: Callable[..., Any], *trees: Any) -> Any:
    return jax.tree.map(f, *trees)


def fedavg(task: Workload, grad: Any, loop: Any, x: Any, state: Any) -> Any:
    return loop(lambda k, y: each(lambda y, g: y - task.lr * g, y, grad(k, y)), x), state


def scaffold(task: Workload, grad: Any, loop: Any, server: Any, own: Any) -> Any:
    x, c = server
    shift = each(lambda c, o: task.lr * (c - o), c, own)
    y = loop(lambda k, y: each(lambda y, g, s: y - task.lr * g - s, y, grad(k, y), shift), x)
    change = each(lambda c, x, y: (x - y) / (task.steps * task.lr) - c, c, x, y)
    return (y, change), each(jnp.add, own, change)


def apfl(task: Workload, grad: Any, loop: Any, w: Any, own: Any) -> Any:
    def step(k: Any, both: Any) -> Any:
        w, v = both
        mixed = grad(k, each(lambda v, w: ALPHA * v + (1 - ALPHA) * w, v, w))
        new = each(lambda w, g: w - task.lr * g, w, grad(k, w))
        return new, each(lambda v, g: v - task.lr * ALPHA * g, v, mixed)

    return loop(step, (w, own))


def replace(task: Workload, server: Any, mean: Any) -> Any:
    return mean


def scaffold_update(task: Workload, server: Any, mean: Any) -> Any:
    x, change = mean
    return x, each(lambda c, d: c + task.cohort / task.clients * d, server[1], change)


METHODS = {"FedAvg": (fedavg, replace), "SCAFFOLD": (scaffold, scaffold_update), "APFL": (apfl, replace)}


class Program:
    """One workload, compiled; `server` and `states` are where it stands."""

    def __init__(self, task: Workload, params: Any, length: int, seed: int = 0) -> None:
        self.task, self.length, self.rng = task, length, np.random.default_rng(seed)
        spread = max(d for d in range(1, len(jax.devices()) + 1) if task.cohort % d == 0)
        mesh = Mesh(np.array(jax.devices()[:spread]), ("clients",))
        everywhere = NamedSharding(mesh, P())
        params = each(jnp.asarray, params)
        zero = each(jnp.zeros_like, params)
        first = {"FedAvg": (params, ()), "SCAFFOLD": ((params, zero), zero), "APFL": (params, params)}
        server, state = first[task.method]
        states = each(lambda a: jnp.broadcast_to(a, (task.clients, *a.shape)), state)
        self.server, self.states = each(jnp.copy, jax.device_put((server, states), everywhere))
        self.data = jax.device_put((task.x, task.y.astype(np.int32)), everywhere)
        self.compiled = _rounds(task, mesh, sum(leaf.size for leaf in jax.tree.leaves(params)))

    def advance(self, count: int, drawn: tuple[np.ndarray, np.ndarray] | None = None) -> None:
        """`count` more rounds, with clients and rows of one's own or those given."""
        who, rows = draw(self.task, self.rng, count) if drawn is None else drawn
        spare = self.length - len(who)
        who, rows = (np.pad(a, [(0, spare)] + [(0, 0)] * (a.ndim - 1)) for a in (who, rows))
        self.server, self.states = self.compiled(self.server, self.states, who, rows, count, *self.data)
        jax.block_until_ready(self.server)


def draw(task: Workload, rng: np.random.Generator, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Cohorts [rounds, cohort], and the rows of each client's steps: shuffled, and shuffled again when they run out."""
    who = np.stack([rng.choice(task.clients, task.cohort, replace=False) for _ in range(rounds)]).astype(np.int32)
    start, need = task.offsets[who.ravel()], task.steps * task.batch
    count = task.offsets[who.ravel() + 1] - start
    rows = np.empty((who.size, need), np.int32)
    for n in np.unique(count):
        those, passes = np.flatnonzero(count == n), -(-need // n)
        shuffled = rng.permuted(np.broadcast_to(np.arange(n, dtype=np.int32), (len(those) * passes, n)), axis=1)
        rows[those] = shuffled.reshape(len(those), -1)[:, :need] + start[those, None]
    return who, rows.reshape(rounds, task.cohort, task.steps, task.batch)


def _rounds(task: Workload, mesh: Mesh, size: int) -> Any:
    method, update = METHODS[task.method]
    slope = jax.grad(partial(loss, task))

    def loop(step: Any, start: Any) -> Any:
        if size >= LARGE:
            return lax.fori_loop(1, task.steps, step, step(0, start), unroll=2)
        return lax.fori_loop(0, task.steps, step, start)

    def device(server: Any, states: Any, rows: Any, x: Any, y: Any) -> Any:
        def client(state: Any, rows: Any) -> Any:
            return method(task, lambda k, at: slope(at, x[rows[k]], y[rows[k]]), loop, server, state)

        if size <= SMALL:
            uploads, new = jax.vmap(client)(states, rows)
            total = each(lambda u: u.sum(0), uploads)
        else:
            shape = jax.eval_shape(client, *each(lambda a: a[0], (states, rows)))[0]
            zero = each(lambda s: jnp.zeros(s.shape, s.dtype), shape)

            def one(total: Any, here: Any) -> Any:
                upload, new = client(*here)
                return each(jnp.add, total, upload), new

            total, new = lax.scan(one, zero, (states, rows))
        total = lax.psum(total, "clients") if mesh.size > 1 else total
        return each(lambda t: t / task.cohort, total), new

    shared, split = P(), P("clients")
    cohort = jax.shard_map(
        device, mesh=mesh, in_specs=(shared, split, split, shared, shared), out_specs=(shared, split), check_vma=False
    )

    @partial(jax.jit, donate_argnums=(0, 1))
    def run(server: Any, states: Any, who: Any, rows: Any, count: Any, x: Any, y: Any) -> Any:
        def a_round(r: Any, carry: Any) -> Any:
            server, states = carry
            here = who[r]
            mean, new = cohort(server, each(lambda s: s[here], states), rows[r], x, y)
            states = each(lambda s, n: s.at[here].set(n), states, new)
            return update(task, server, mean), states

        return lax.fori_loop(0, count, a_round, (server, states))

    return run


def check(program: Program, simulation: Any, tolerance: float = 1e-4, share: float = 0.01) -> float:
    """One round of both from the start, on Fedax's own cohort and rows: how far apart models and states end.

    Asserted is that this is below the tolerance, and far below what the round moved.
    """
    from fedax import randomness

    task, engine = program.task, simulation.prepared.engine
    who, rows = engine.draws.cohorts(0, 1), []
    for client in who[0]:
        key = randomness.key_for(engine.seed, randomness.ROWS, 0, int(client))
        first, last = (int(end) for end in task.offsets[client : client + 2])
        rows.append(first + np.asarray(randomness.draw_rows(key, task.steps, task.batch, last - first, "epochs")))
    program.advance(1, (who, np.stack(rows).astype(np.int32)[None]))
    good = simulation.advance(1)
    assert good
    model = simulation.prepared.algorithm.model(simulation.state.server)
    shared = program.server[0] if task.method == "SCAFFOLD" else program.server
    moved = _distance(model, simulation.prepared.x0)
    # APFL's state ends with its weight, which is fixed.
    apart = max(_distance(shared, model), _distance(program.states, simulation.state.clients))
    assert apart <= tolerance, f"{task.name}: {apart:.1e} apart after a round that moved {moved:.1e}"
    assert apart <= share * moved, f"{task.name}: {apart:.1e} apart, and the round moved only {moved:.1e}"
    return apart


def _distance(a: Any, b: Any) -> float:
    """The largest difference between two trees with the same leaves, of which the second may have more."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=False)
    return max((float(np.abs(np.asarray(x) - np.asarray(y)).max()) for x, y in pairs), default=0.0)
