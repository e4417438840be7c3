"""What a run begins with: devices, first parameters that fit the data, what it is measured on."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from numpy.typing import NDArray

from fedax import randomness
from fedax.algorithms.base import Algorithm
from fedax.algorithms.with_model_state import KEEP, WithModelState, bare
from fedax.client.plan import Plan
from fedax.data.federation import Federation
from fedax.engine.executors import Executor, choose, step_floats
from fedax.engine.rounds import Engine
from fedax.errors import FedaxError, unknown
from fedax.evaluation import Meter
from fedax.model_state import WithState, parted
from fedax.problem import Problem
from fedax.runtime import cores
from fedax.vectors import Vector, size

log = logging.getLogger("fedax")
_SAID: set[str] = set()


def choose_devices(
    name: str,
    problem: Problem,
    x0: Vector,
    arrays: Mapping[str, Any],
    plan: Plan,
    steps: NDArray[np.int64],
    devices: int | None = None,
    chunk: int | None = None,
) -> tuple[Executor, Mesh]:
    """The executor for a cohort, and the mesh of devices that it is spread over.

    Several processes share out the cohort evenly, and each has as many devices in the mesh as every other.
    """
    available, processes = len(jax.devices()), jax.process_count()
    if devices is not None and not processes <= devices <= available:
        fewer = devices > available and jax.default_backend() == "cpu" and processes == 1
        more = f"; FEDAX_DEVICES={devices} makes so many" if fewer else ""
        raise FedaxError(f"devices must be in [{processes}, {available}], not {devices}{more}")
    if name == "debug" and processes > 1:
        raise FedaxError(f"executor is 'debug': it runs in one process, not in {processes}")
    work = step_floats(problem, x0.tree, arrays, plan, steps)
    each = choose(name, -(-plan.cohort // processes), size(x0), work, (devices or available) // processes, chunk)
    if each.devices > cores() and jax.default_backend() == "cpu":
        say_once(f"{each.devices} devices share {cores()} cores: more devices than cores make a run slower")
    of_each = [[d for d in jax.devices() if d.process_index == p][: each.devices] for p in range(processes)]
    mesh = Mesh(np.concatenate(of_each), ("clients",))
    return dataclasses.replace(each, devices=mesh.devices.size, places=each.places * processes), mesh


def say_once(advice: str) -> None:
    """Warn, but not of the same twice."""
    if advice not in _SAID:
        _SAID.add(advice)
        log.warning(advice)


def first_parameters(problem: Problem, algorithm: Algorithm, federation: Federation, seed: int) -> Vector:
    """The model before the first round, after problem, method and data were checked against each other."""
    sample = {k: jnp.asarray(a[:2]) for k, a in federation.arrays.items()}
    key = randomness.key_for(seed, randomness.INIT)
    try:
        params = problem.init(key, sample)
    except (TypeError, ValueError) as error:
        if isinstance(error, FedaxError):
            raise
        raise FedaxError(f"the model cannot be initialised on this federation: {error}") from error
    problem.check(params, federation.arrays)
    psi = problem.regularizer
    algorithm.refuse(psi)
    if psi is not None and not psi.feasible(parted(params)[0]):
        raise FedaxError(f"the first parameters lie outside {psi}: start the model inside the constraint")
    if psi is not None and not psi.smooth and not algorithm.composite:
        name = type(algorithm).__name__
        log.info("%s has no proximal step: it takes subgradients of %s", name, type(psi).__name__)
    return Vector(params)


def with_model_state(
    problem: Problem, algorithm: Algorithm, x0: Vector, rule: str | None, batch_size: int | None
) -> Algorithm:
    """The method as a run takes it: on a model that draws or keeps state, with what clients do about that.

    rule: "average", "client" or None, as a run's `model_state` says.
    """
    stateful = isinstance(x0.tree, WithState)
    if rule is not None and rule not in KEEP:
        raise unknown("model_state", rule, KEEP)
    if stateful and rule is None:
        state = x0.tree.state
        named = f" ({', '.join(map(str, state))})" if isinstance(state, Mapping) else ""
        raise FedaxError(
            f"the model has state{named}: model_state must say what clients do with it, 'average' it with their "
            "uploads or keep it by the 'client'"
        )
    if rule is not None and not stateful:
        raise FedaxError(f"model_state is {rule!r}: the model has no state, so it must be left out")
    if not stateful and not problem.draws:
        return algorithm
    if batch_size is None:
        what = "has state" if stateful else "draws random numbers"
        raise FedaxError(f"batch_size is missing: the model {what}, which goes with minibatches, so it must be given")
    return WithModelState(bare(algorithm), rule or "average")


def check_evaluated(personal: bool, algorithm: Algorithm) -> None:
    """Raise if neither clients' own models are to be evaluated nor is there another."""
    if not personal and not algorithm.shared:
        raise FedaxError(f"personal is false: {algorithm!r} has no shared model to evaluate, so it must be true")


def make_meters(engine: Engine, federation: Federation, shown: Plan, eval_on: Sequence[str] | None) -> dict[str, Meter]:
    """One meter for each part that is evaluated: those named, else held-out rows where there are any."""
    if eval_on is None:
        eval_on = [part for part in ("validation", "test") if federation.part(part).count.sum()] or ["train"]
    batched = 1 if engine.executor.name == "looped" else max(1, min(64, shown.clients // engine.mesh.devices.size))
    meters = {}
    for name in eval_on:
        rows = federation.part(name)
        if not rows.count.sum():
            raise FedaxError(f"eval_on names {name!r}, but no client has {name} rows")
        meters[name] = Meter(engine.problem, shown, engine.mesh, rows.start, rows.count, batched, engine.seed)
    return meters
