"""How sparse, low-rank and feasible a model is, how near to the truth, and how near to stationary.

Only the leaves that the regularizer acts on count. An entry counts as zero below a threshold, and so does a singular
value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from fedax.client.device_data import Data, Disk
from fedax.client.plan import Plan
from fedax.client.round import Client
from fedax.model_state import parted, running
from fedax.problem import Problem
from fedax.vectors import Vector, norm, zeros

Array = np.ndarray[Any, Any]


def regularised(psi: Any, params: Any) -> list[Array]:
    """The leaves that psi acts on."""
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    return [np.asarray(leaf, np.float64) for path, leaf in leaves if psi.selects(_name(path))]


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def structure(psi: Any, params: Any, truth: Array | None, zero: float) -> dict[str, float]:
    """Density, rank, violation and, where the truth is known, precision, recall, F1 and the recovery error.

    >>> from fedax.regularizers import L1
    >>> found = structure(L1(0.1), np.array([1.0, 0.0, 0.5, 0.0]), np.array([1.0, 1.0, 0.0, 0.0]), zero=0.01)
    >>> found["density"], found["precision"], found["recall"], found["f1"]
    (0.5, 0.5, 0.5, 0.5)
    """
    row = _support(regularised(psi, params), truth, zero)
    if getattr(psi, "constraint", False):
        row["violation"] = float(psi.violation(Vector(params)))
    return row


def _support(leaves: list[Array], truth: Array | None, zero: float) -> dict[str, float]:
    """The numbers of `structure` that do not depend on psi."""
    flat = np.concatenate([leaf.ravel() for leaf in leaves])
    found = np.abs(flat) > zero
    row = {"density": float(found.mean())}
    if len(leaves) == 1 and leaves[0].ndim == 2 and min(leaves[0].shape) > 1:
        row["rank"] = float(np.sum(np.linalg.svd(leaves[0], compute_uv=False) > zero))
    if truth is not None and truth.size != flat.size and truth.size == len(truth) * flat.size:
        return _means([_support(leaves, own, zero) for own in truth])  # a truth for each client: the mean over them
    if truth is not None and truth.size == flat.size:
        real = np.abs(truth.ravel()) > zero
        hits = float(np.sum(found & real))
        ours, theirs = float(found.sum()), float(real.sum())
        row["precision"] = hits / ours if ours else 0.0
        row["recall"] = hits / theirs if theirs else 1.0
        row["f1"] = 2 * hits / (ours + theirs) if ours + theirs else 1.0
        row["recovery_error"] = float(np.linalg.norm(flat - truth.ravel()))
    return row


def _means(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}


def personal_structure(problem: Problem, models: Any, truth: Array | None, zero: float) -> dict[str, float]:
    """The means over clients of `structure`; models are stacked, the truth is common, or one for each client.

    >>> from fedax.regularizers import L2Ball
    >>> psi = L2Ball(1.0)
    >>> problem = Problem(loss=lambda w, b: w.sum(), init=lambda key: np.zeros(2), regularizer=psi)
    >>> personal_structure(problem, np.array([[3.0, 0.0], [0.0, 0.5]]), None, zero=0.01)
    {'density': 0.5, 'violation': 1.0}
    """
    psi: Any = problem.regularizer
    leaves = regularised(psi, models)
    clients, size = len(leaves[0]), sum(leaf[0].size for leaf in leaves)
    each = truth is not None and truth.size == clients * size and clients > 1
    truths = truth if each and truth is not None else [truth] * clients
    row = _means([_support([leaf[i] for leaf in leaves], truths[i], zero) for i in range(clients)])
    if getattr(psi, "constraint", False):
        row["violation"] = _over_clients(problem, psi.violation, models)
    return row


def value_at(problem: Problem, model: Any) -> float:
    """psi at a model, in one program for all of its leaves.

    >>> from fedax.regularizers import L1
    >>> problem = Problem(loss=lambda w, b: w.sum(), init=lambda key: np.zeros(2), regularizer=L1(0.5))
    >>> value_at(problem, np.array([1.0, -2.0]))
    1.5
    """
    psi: Any = problem.regularizer
    return float(problem.program("psi", lambda: jax.jit(lambda tree: psi.value(Vector(tree))))(model))


def mean_value(problem: Problem, models: Any) -> float:
    """The mean over clients of psi at their models, which are stacked.

    >>> from fedax.regularizers import L1
    >>> problem = Problem(loss=lambda w, b: w.sum(), init=lambda key: np.zeros(2), regularizer=L1(0.5))
    >>> mean_value(problem, np.array([[1.0, -1.0], [2.0, 0.0]]))
    1.0
    """
    psi: Any = problem.regularizer
    return _over_clients(problem, psi.value, models)


def _over_clients(problem: Problem, f: Callable[[Vector], Any], models: Any) -> float:
    """The mean over clients of a function of their models, of all of them at once."""
    program = problem.program(("over clients", f.__name__), lambda: jax.jit(jax.vmap(lambda tree: f(Vector(tree)))))
    return float(np.mean(np.asarray(program(models), np.float64)))


def truth_of(info: Mapping[str, Any]) -> Array | None:
    """The weights behind generated data, if the federation knows them."""
    known = info.get("truth")
    return None if known is None else np.asarray(known["weights"])


def prox_gradient(problem: Problem, plan: Plan, data: Data | Disk, x: Vector) -> float:
    """||x - prox_psi(x - grad f(x))||, f the mean of the clients' losses: 0 exactly at stationary points."""

    psi = problem.regularizer

    def build() -> Any:
        def some(x: Vector, data: Data, total: Vector, first: Any, end: Any) -> Vector:
            def add(i: Any, total: Vector) -> Vector:
                return total + full_gradient(Client(problem, plan, data, i, 0, 0, True), x)

            summed: Vector = jax.lax.fori_loop(first, end, add, total)
            return summed

        return jax.jit(some)

    at = Vector(parted(x.tree)[0])
    total, each = zeros(at), min(plan.clients, data.at_once)
    program = problem.program(("prox-gradient", plan), build)
    for first in range(0, plan.clients, each):
        end = min(first + each, plan.clients)
        # ready before the next rows come, so that rows from disk are given up
        total = jax.block_until_ready(program(x, data.some(np.arange(first, end), each)[0], total, first, end))
    residual = problem.program("prox residual", lambda: jax.jit(lambda x, g: norm(x - psi.prox(x - g, 1.0))))
    return float(residual(at, total / plan.clients))


def full_gradient(client: Client, x: Vector) -> Vector:
    """The gradient of a client's loss with respect to a model's parameters, its state as it is."""
    params, state = parted(x.tree)
    with running(state):
        return client.full().grad(Vector(params))


def personal_prox_gradient(problem: Problem, plan: Plan, data: Data | Disk, models: Any) -> float:
    """The mean over clients of ||x_i - prox_psi(x_i - grad f_i(x_i))|| at their own models, which are stacked."""
    psi = problem.regularizer

    def build() -> Any:
        def some(models: Any, data: Data, who: Any) -> Any:
            def one(here: Any) -> Any:
                i, tree = here
                x, g = Vector(parted(tree)[0]), full_gradient(Client(problem, plan, data, i, 0, 0, True), Vector(tree))
                return norm(x - psi.prox(x - g, 1.0))

            return jax.lax.map(one, (who, models))

        return jax.jit(some)

    each = min(plan.clients, data.at_once)
    program, found = problem.program(("personal prox-gradient", plan), build), []
    for first in range(0, plan.clients, each):
        who = np.arange(first, min(first + each, plan.clients))
        theirs = jax.tree.map(lambda a, who=who: a[who], models)
        found.append(np.asarray(program(theirs, data.some(who, each)[0], who)))
    return float(np.mean(np.concatenate(found)))
