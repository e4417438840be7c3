"""Checks on how a cohort's uploads become one: any order, no places without a client, any scale of the weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedax.algorithms.base import Context
from fedax.client.round import cast_like
from fedax.testing.driven_run import TOLERANCE, DrivenRun, Subject, gap, shown
from fedax.testing.findings import Broken

Rule = Callable[[Any, Any], Any]
SPARE = 2  # places without a client
FAR = 1e3  # what stands in them
#: of a rule that iterates, and may stop at another point that is as good
CLOSE = 1e-6


def aggregation(subject: Subject) -> str:
    """The mean is the weighted one; a rule of the method's own depends on the uploads and their weights alone."""
    return _mean(subject) if subject.algorithm.aggregate == "mean" else _own_rule(subject)


def _uploads(trial: DrivenRun) -> tuple[Any, np.ndarray[Any, Any]]:
    """The first cohort's uploads, stacked, and their weights by rows."""
    run, algorithm, who = trial.prepared, trial.algorithm, trial.cohort(0)
    state = trial.state
    message = algorithm.broadcast(state.server)

    @jax.jit
    def upload(number: Any, state: Any) -> Any:
        return dataclasses.replace(trial.client(0), number=number).work(algorithm, message, state)[0]

    made = [upload(np.int32(i), jax.tree.map(lambda a, i=i: a[i], state.clients)) for i in who]
    data: Any = run.data
    weights = np.asarray(data.count)[np.asarray(who)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *made), weights.astype(np.float32)


def _mean(subject: Subject) -> str:
    """A round that weighs clients by their rows, against the weighted mean of its clients' uploads."""
    trial = subject.trial(_weighted(subject))
    run, algorithm, before = trial.prepared, subject.algorithm, trial.state
    uploads, weights = _uploads(trial)
    total = jax.tree.map(lambda u: jnp.tensordot(jnp.asarray(weights, u.dtype), u, 1) / weights.sum(), uploads)
    plan = run.plan
    ctx = Context(0, 0, plan.max_steps, plan.cohort, plan.clients, run.problem.regularizer, seed=run.engine.seed)
    expected = cast_like(algorithm.at(ctx).update(before.server, total, ctx), before.server)
    expected = jax.tree.map(np.asarray, expected)
    distance = gap(trial.advance().state.server, expected)
    if not distance <= TOLERANCE:
        raise Broken(
            f"{subject.name}: with clients weighed by their rows, the server is {distance:.1e} from what update makes "
            "of the weighted mean of the uploads"
        )
    return f"the mean by rows: difference {distance:.1e}"


def _weighted(subject: Subject) -> Any:
    case = subject.uneven
    return dataclasses.replace(case, options={**case.options, "weighted": True})


def _own_rule(subject: Subject) -> str:
    """The properties that every rule has, mean, median or one that picks: on uploads of a real round."""
    uploads, weights = _uploads(subject.trial(subject.uneven))
    rule, name = subject.algorithm.aggregate, subject.name
    made = _checked(name, rule, uploads, weights)
    far = jax.tree.map(lambda u: jnp.concatenate([u, jnp.full((SPARE, *u.shape[1:]), FAR, u.dtype)]), uploads)
    same = jax.tree.map(lambda u: jnp.broadcast_to(u[:1], u.shape), uploads)
    for what, fix, found, expected in (
        (
            "depends on the order of the clients",
            "no upload may count more for where it stands",
            rule(jax.tree.map(lambda u: u[::-1], uploads), jnp.asarray(weights[::-1])),
            made,
        ),
        (
            "counts places of weight 0, where there is no client",
            "leave out what has weight 0, as fedax.algorithms.aggregation does",
            rule(far, jnp.asarray(np.concatenate([weights, np.zeros(SPARE, weights.dtype)]))),
            made,
        ),
        (
            "depends on the scale of the weights",
            "divide by their sum",
            rule(uploads, jnp.asarray(3 * weights)),
            made,
        ),
        (
            "does not give the upload that all clients agree on",
            "of equal uploads it must give that one",
            rule(same, jnp.asarray(weights)),
            jax.tree.map(lambda u: u[0], same),
        ),
    ):
        distance = gap(found, expected)
        if not distance <= CLOSE:
            from_to = f"{shown(_first(expected))} becomes {shown(_first(found))}"
            raise Broken(f"{name}.aggregate {what}: {from_to}, apart by {distance:.1e}; {fix}")
    alone = gap(rule(uploads, jnp.ones(len(weights), jnp.float32)), made) <= CLOSE
    weighs = "weights only say who is there" if alone else "weighs clients"
    return f"any order, any scale, no place without a client; {weighs}"


def _checked(name: str, rule: Rule, uploads: Any, weights: Any) -> Any:
    """The outcome of a rule, which must have the structure and shapes of an upload."""
    made = rule(uploads, jnp.asarray(weights))
    one = jax.tree.map(lambda u: u[0], uploads)
    tree: Any = jax.tree.structure(made)
    wanted: Any = jax.tree.structure(one)
    if tree != wanted or [a.shape for a in jax.tree.leaves(made)] != [a.shape for a in jax.tree.leaves(one)]:
        raise Broken(f"{name}.aggregate gives {jax.tree.map(jnp.shape, made)}; it must give one upload, like {tree}")
    return made


def _first(tree: Any) -> Any:
    return np.ravel(np.asarray(jax.tree.leaves(tree)[0]))
