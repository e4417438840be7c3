"""Checks that a run's problem, method, data and options go together, and the model that the run starts from."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedax import randomness
from fedax.algorithms.base import Algorithm
from fedax.algorithms.with_model_state import WithModelState
from fedax.client.plan import Plan
from fedax.data.federation import Federation
from fedax.engine.config import RunConfig
from fedax.engine.executors import Executor
from fedax.errors import FedaxError
from fedax.memory import check_memory
from fedax.model_state import WithState, parted
from fedax.own_code import place, words
from fedax.privacy import accounting
from fedax.problem import Problem
from fedax.problem.check_data import check_data
from fedax.vectors import Vector

log = logging.getLogger("fedax")


def first_parameters(
    problem: Problem, algorithm: Algorithm, federation: Federation, seed: int, *, checked: bool = False
) -> Vector:
    """The model before the first round, after problem, method and data were checked against each other.

    checked: the problem and the data were checked before.
    """
    sample = {k: jnp.asarray(a[:2]) for k, a in federation.arrays.items()}
    key = randomness.key_for(seed, randomness.INIT)
    try:
        # the least that a round holds of it: the server's, a client's and the gradient
        check_memory("the model, with a client's copy and its gradient,", 3 * 4 * problem.parameters(key, sample))
        params = problem.init(key, sample)
    except FedaxError:
        raise
    except (TypeError, ValueError) as error:
        whose = place(error)
        said = words(error) if whose is None else f"{whose} raises {words(error)}"
        raise FedaxError(f"the model cannot be initialised on this federation: {said}") from error
    if not checked:
        check_data(problem, params, federation.arrays)
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
    # a site that prepares its method again has the state wrapped already
    inner = algorithm.base if isinstance(algorithm, WithModelState) else algorithm
    return WithModelState(inner, rule or "average")


def check_room(plan: Plan, executor: Executor, arrays: Mapping[str, Any]) -> None:
    """Raise if a round's minibatches take more memory than there is.

    Row numbers are drawn for the whole round; the rows themselves take memory for the clients that are batched.
    """
    if plan.batch is None:
        return
    row = sum(int(np.prod(array.shape[1:])) * array.dtype.itemsize for array in arrays.values())
    numbers, at_once = 4 * executor.places * plan.max_steps * plan.batch, executor.devices * executor.chunk
    asked = f"batch_size={plan.batch:,} with {plan.max_steps:,} local steps"
    check_memory(f"{asked}: a round's minibatches", numbers + at_once * plan.batch * row)


def check_private(config: RunConfig, algorithm: Algorithm) -> None:
    """Raise where noise on uploads would not cover what one client can do to the server, or cannot be counted."""
    asked = algorithm.privacy
    if asked is None or not asked.noise:
        return
    if config.weighted:
        raise FedaxError("weighted is true: with noise it must be false, so that every client counts the same")
    if config.model_state == "average":
        raise FedaxError("model_state is 'average': the model's state has no noise, so with noise it must be 'client'")
    if algorithm.aggregate != "mean":
        raise FedaxError(f"{algorithm!r} does not take the mean of uploads, and noise is made for one")
    accounting.load()


def check_evaluated(personal: bool, algorithm: Algorithm) -> None:
    """Raise if neither clients' own models are to be evaluated nor is there another."""
    if not personal and not algorithm.shared:
        raise FedaxError(f"personal is false: {algorithm!r} has no shared model to evaluate, so it must be true")
