"""Three ways to run a cohort: batched, looped, and one client at a time for debugging.

Each gives the cohort's (weighted) mean upload and the new client states. The cohort is spread over all JAX
devices (on a CPU: one for each core) and, within a device, either batched with `vmap` in chunks or looped over.
Places left over when the cohort does not divide evenly are filled by clients of weight 0 who write nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from fedax import platforms
from fedax.algorithms.base import Algorithm
from fedax.client import shares
from fedax.client.device_data import Data
from fedax.client.plan import Plan
from fedax.client.round import Client
from fedax.kernels.loops import local_loop
from fedax.platforms import Platform
from fedax.problem import Problem
from fedax.vectors import Vector, size, zeros

Name = Literal["auto", "batched", "looped", "debug"]


@dataclasses.dataclass(frozen=True)
class Executor:
    """How a cohort is run: chosen by `choose`, and recorded with the run."""

    name: str
    devices: int
    chunk: int  #: clients batched together on one device (1 when looped)
    places: int  #: the cohort, rounded up to fill devices and chunks
    peeled: bool = False  #: the first local step is outside the loop


def choose(name: str, cohort: int, size: int, work: float, devices: int, chunk: int | None, on: Platform) -> Executor:
    """The executor for a cohort of models of `size` parameters, a step of which takes `work` floats, on a platform.

    >>> from fedax.platforms import ACCELERATOR, CPU
    >>> choose("auto", 10, 200_000, 240_000, 2, None, CPU)
    Executor(name='looped', devices=2, chunk=1, places=10, peeled=False)
    >>> choose("auto", 9, 100, 2_000, 2, None, CPU)
    Executor(name='batched', devices=2, chunk=5, places=10, peeled=False)
    >>> choose("auto", 5, 3_000_000, 3_500_000, 2, None, CPU)
    Executor(name='looped', devices=1, chunk=1, places=5, peeled=True)
    >>> choose("auto", 5, 3_000_000, 3_500_000, 2, None, ACCELERATOR)
    Executor(name='batched', devices=2, chunk=3, places=6, peeled=False)
    """
    if name == "auto":
        name = "batched" if work <= on.near else "looped"
    devices = 1 if name == "debug" else min(devices, cohort)
    if name == "looped" and size >= on.threaded:  # an idle core costs more than batching clients gains
        devices = max(d for d in range(1, devices + 1) if cohort % d == 0)
    share = -(-cohort // devices)
    if name != "batched":
        chunk = 1
    elif chunk is None:
        chunk = max(1, on.near // max(1, int(work)))
    chunk = min(chunk, share)
    chunks = -(-share // chunk)
    chunk = -(-share // chunks)
    peels = name == "looped" and size >= on.large and work < on.heavy * size
    return Executor(name, devices, chunk, devices * chunks * chunk, peels)


def step_floats(problem: Problem, params: Any, arrays: Mapping[str, Any], plan: Plan, steps: Any) -> float:
    """The floats that one local step computes: the parameters, and everything between them and the loss.

    Batched clients wait for the busiest among them, so the floats are multiplied by its steps over the mean of steps.

    >>> import numpy as np
    >>> mean = Problem(loss=lambda w, batch: jnp.mean((batch["x"] - w) ** 2), init=lambda key: jnp.zeros(3))
    >>> plan = Plan(2, 2, 4, 6, False, 8, 8, "epochs", False)
    >>> # 3 parameters, w in a row of its own 3, the differences 12, their squares 12, sum and mean; times 6 / 4
    >>> step_floats(mean, jnp.zeros(3), {"x": np.zeros((16, 3), np.float32)}, plan, np.array([2, 6]))
    48.0
    """
    rows = min(plan.max_rows if plan.batch is None else plan.batch, platforms.current().gradient_rows)
    batch = {
        name: jax.ShapeDtypeStruct((rows, *array.shape[1:]), jax.dtypes.canonicalize_dtype(array.dtype))
        for name, array in arrays.items()
    }
    between = _floats(jax.make_jaxpr(problem.loss)(params, batch).jaxpr)
    return (size(Vector(params)) + between) * float(plan.max_steps / np.mean(steps))


def _floats(jaxpr: Any) -> int:
    """The sizes of all results in a program."""
    total = 0
    for equation in jaxpr.eqns:
        inner = [part for part in jax.tree.leaves(list(equation.params.values())) if hasattr(part, "jaxpr")]
        total += sum(_floats(part.jaxpr) for part in inner) or sum(
            math.prod(out.aval.shape) for out in equation.outvars
        )
    return total


def cohort_program(
    problem: Problem,
    plan: Plan,
    executor: Executor,
    mesh: Mesh,
    work: Callable[..., Any] | None = None,
    *,
    table: bool = False,
    lanes: bool = False,
) -> Callable[..., Any]:
    """run(algorithm, message, states, who, weights, rows, seed, round, data) -> mean upload, new states, mean squares.

    rows are the row numbers [places, steps, batch] of the minibatches, or () where none are drawn beforehand.
    states are the cohort's or, with `table`, all clients', from which a device reads those that it needs when it needs
    them. The mean squares are the clients' ||upload||^2 and ||change of state||^2, averaged like the uploads.

    work(client, algorithm, message, state) -> upload, new state is what each client does: a round, unless given.
    lanes: the program is to be batched over settings.
    """

    rounds = work is None  # the work of newcomers sends nothing
    if work is None:
        peels = executor.peeled and plan.equal_steps and plan.max_steps > 1
        work = functools.partial(Client.work, loop=local_loop(lanes=lanes, peels=peels))

    def device(
        algorithm: Algorithm,
        message: Any,
        states: Any,
        who: Any,
        weights: Any,
        rows: Any,
        seed: Any,
        round: Any,
        data: Data,
    ) -> Any:
        def one(state: Any, number: Any, rows: Any) -> Any:
            drawn = None if isinstance(rows, tuple) else rows
            client = Client(problem, plan, data, number, seed, round, algorithm.composite, drawn)
            upload, new = work(client, algorithm, message, state)
            return (upload, squares(upload, new, state)), new

        stacked = rounds and algorithm.aggregate != "mean"
        if divided or plan.sometimes:
            who = shares.client_at(who)

        def chunk(total: Any, part: Any) -> Any:
            at, number, weight, rows = part
            if executor.chunk == 1:
                upload, new = one(take(at[0]), *jax.tree.map(lambda a: a[0], (number, rows)))
                added = jax.tree.map(lambda t, u: t + _weigh(weight[0], u), total, upload)
                made = (new, upload[0]) if stacked else (new, ())
                return added, jax.tree.map(lambda a: a[None], made)
            upload, new = jax.vmap(one)(take(at), number, rows)
            added = jax.tree.map(lambda t, u: t + jax.vmap(_weigh)(weight, u).sum(0), total, upload)
            return added, (new, upload[0]) if stacked else (new, ())

        def take(at: Any) -> Any:
            return jax.tree.map(lambda a: a.at[at].get(mode="promise_in_bounds"), states)

        at = who // shares.processes(mesh) if table and divided else who if table else jnp.arange(len(who))
        parts = jax.tree.map(lambda a: a.reshape(-1, executor.chunk, *a.shape[1:]), (at, who, weights, rows))
        total = zeros(jax.eval_shape(lambda: one(take(at[0]), who[0], jax.tree.map(lambda a: a[0], rows))[0]))
        run = functools.partial(_unless_empty, chunk) if divided else chunk
        if len(parts[0]) == 1:
            total, (new, uploads) = run(total, jax.tree.map(lambda a: a[0], parts))
        else:
            total, made = jax.lax.scan(run, total, parts)
            new, uploads = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), made)
        weight = weights.sum()
        if divided:
            total, weight = _sum_over(mesh, (total, weight))
        elif executor.devices > 1:
            total, weight = jax.lax.psum((total, weight), "clients")
        if plan.sometimes:  # without clients the mean is zero: the round is passed over
            weight = jnp.where(weight > 0, weight, 1)
        mean, measured = jax.tree.map(lambda t: t / weight.astype(t.dtype), total)
        if not stacked:
            return mean, new, measured
        if executor.devices > 1:  # in the order of the cohort
            uploads, weights = jax.tree.map(
                lambda a: jax.lax.all_gather(a, mesh.axis_names, tiled=True), (uploads, weights)
            )
        return algorithm.aggregate(uploads, weights), new, measured

    divided, spread, same = shares.is_divided(mesh), shares.over_devices(mesh), P()

    def run(*given: Any) -> Any:
        states = shares.over_processes(mesh) if table else spread
        return jax.shard_map(
            device,
            mesh=mesh,
            in_specs=(same, same, states, spread, spread, spread, same, same, given[-1].specs(mesh)),
            out_specs=(same, spread, same),
            check_vma=False,
        )(*given)

    return run


def _sum_over(mesh: Mesh, tree: Any) -> Any:
    """The sum over all devices, of all leaves at once, so that processes send one message instead of one a leaf."""
    leaves, structure = jax.tree.flatten(tree)
    kinds = list(dict.fromkeys(leaf.dtype for leaf in leaves))
    flat = {kind: jnp.concatenate([leaf.ravel() for leaf in leaves if leaf.dtype == kind]) for kind in kinds}
    sums = {kind: jax.lax.psum(array, mesh.axis_names) for kind, array in flat.items()}
    made, at = [], dict.fromkeys(kinds, 0)
    for leaf in leaves:
        first, at[leaf.dtype] = at[leaf.dtype], at[leaf.dtype] + leaf.size
        made.append(sums[leaf.dtype][first : at[leaf.dtype]].reshape(leaf.shape))
    return jax.tree.unflatten(structure, made)


def _unless_empty(chunk: Callable[..., Any], total: Any, part: Any) -> Any:
    """A chunk of clients, if any of them takes part: a process has fewer in some rounds than in others."""

    def none(total: Any, part: Any) -> Any:
        return total, zeros(jax.eval_shape(chunk, total, part)[1])

    return jax.lax.cond(jnp.any(part[2] > 0), chunk, none, total, part)


def squares(upload: Any, new: Any, old: Any) -> jax.Array:
    """One client's ||upload||^2 and ||change of state||^2."""
    change = jax.tree.map(lambda a, b: a - b, new, old)
    return jnp.stack([_square(upload), _square(change)])


def _square(tree: Any) -> jax.Array:
    parts = [jnp.sum(jnp.square(leaf), dtype=jnp.float32) for leaf in jax.tree.leaves(tree)]
    return sum(parts, jnp.zeros((), jnp.float32))


def diagnostics(mean: Any, measured: jax.Array) -> jax.Array:
    """How a round went: drift, diversity and residual, from the mean upload and the clients' mean squares.

    drift      sqrt(mean_i ||u_i||^2): how far clients go in a round, u_i being what they send
    diversity  mean_i ||u_i||^2 / ||mean_i u_i||^2: 1 where all agree, larger the more they differ
    residual   sqrt(mean_i ||change of client i's state||^2): of control variates, duals, or own models
    """
    together = _square(mean)
    diversity = jnp.where(together > 0, measured[0] / jnp.where(together > 0, together, 1), 1.0)
    return jnp.stack([jnp.sqrt(measured[0]), diversity, jnp.sqrt(measured[1])])


def _weigh(weight: jax.Array, upload: jax.Array) -> jax.Array:
    """weight * upload, and 0 for a place without a client, whatever its upload."""
    return jnp.where(weight > 0, weight.astype(upload.dtype) * upload, jnp.zeros((), upload.dtype))
