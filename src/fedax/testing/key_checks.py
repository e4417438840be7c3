"""Checks on what a method draws: draws depend on the run's seed, and a coin that clients share is the same for all."""

from __future__ import annotations

import collections
from typing import Any

import jax
import numpy as np

from fedax.algorithms.base import Algorithm, Context
from fedax.client.round import Client
from fedax.testing.contract_checks import start, walk
from fedax.testing.driven_run import Subject
from fedax.testing.findings import Broken, Skipped
from fedax.testing.problems import quadratics, smooth
from fedax.vectors import Vector

DRAW = "random_bits"  # the operation that every draw of jax.random comes down to
LOOPS = ("while", "scan")
ROUNDS, SEEDS = 16, 4  # where a coin is looked at
FUNCTIONS = ("init", "client_init", "broadcast", "begin", "step", "finish", "update", "model", "personal", "join")
SEED, CLIENT = "seed", "client"

Marks = frozenset[str]
Found = dict[str, list[Marks]]


def keys(subject: Subject) -> str:
    """Every draw depends on the run's seed; whether a round communicates is the same for all clients."""
    found = draws(subject)
    flips = type(subject.algorithm).traffic is not Algorithm.traffic
    if not found and not flips:
        raise Skipped("it draws nothing")
    for function, marks in found.items():
        if any(SEED not in mark for mark in marks):
            raise Broken(
                f"{subject.name}.{function} draws numbers that do not depend on the run's seed: take the key from "
                "ctx.key, or from ctx.common_key() for what all clients of a round share"
            )
    if flips:
        _common(subject)
    said = [f"{function} {_whose(marks)}" for function, marks in found.items()]
    return ", ".join([*said, *(["one answer of traffic for all clients"] if flips else [])])


def _whose(marks: list[Marks]) -> str:
    own = sum(CLIENT in mark for mark in marks)
    parts = ((own, "of each client's own"), (len(marks) - own, "common to all"))
    return " and ".join(f"{count} {whose}" for count, whose in parts if count)


def _common(subject: Subject) -> None:
    for seed in range(SEEDS):
        for round in range(ROUNDS):
            server, *clients = (
                tuple(bool(way) for way in subject.algorithm.traffic(Context(round=round, seed=seed, client=i, step=k)))
                for i, k in ((None, 0), (0, 0), (1, 0), (1, 2))
            )
            if any(one != server for one in clients):
                raise Broken(
                    f"{subject.name}.traffic gives {server} at the server and {clients} at clients in round {round}: "
                    "whether a round communicates must be the same for all, so draw it from ctx.common_key()"
                )


def draws(subject: Subject) -> Found:
    """The draws of each of the method's functions, with what each depends on: the seed, the client's number.

    Found by tracing a round with full gradients, in which nobody else draws.
    """
    algorithm = subject.algorithm
    trial = subject.trial(smooth(quadratics(subject.seed)[0], local_steps=2))
    run = trial.prepared
    data: Any = run.data

    def call(function: str, body: Any, *arguments: Any) -> Any:
        body.__name__ = function
        return jax.jit(body)(*arguments)

    def one_round(seed: Any, number: Any, x0: Any) -> Any:
        client = Client(run.problem, run.plan, data, number, seed, 0, algorithm.composite)
        return [made for _, made, _ in walk(algorithm, client, x0, 1, call)]

    traced = jax.make_jaxpr(one_round)(run.engine.seed, np.int32(0), Vector(start(trial)))
    marks = [frozenset({SEED}), frozenset({CLIENT})]
    inputs: list[Marks] = [*marks, *[frozenset[str]()] * (len(traced.jaxpr.invars) - 2)]
    found: Found = collections.defaultdict(list)
    _follow(traced.jaxpr, inputs, "", found)
    return dict(found)


def _follow(jaxpr: Any, inputs: list[Marks], function: str, found: Found) -> list[Marks]:
    """Carry marks from a program's inputs to its outputs, noting the marks of each draw on the way."""
    known: dict[Any, Marks] = dict(zip(jaxpr.invars, inputs, strict=True))

    def of(atom: Any) -> Marks:
        return frozenset() if hasattr(atom, "val") else known.get(atom, frozenset())

    for equation in jaxpr.eqns:
        given = [of(atom) for atom in equation.invars]
        every: Marks = frozenset().union(*given)
        if equation.primitive.name == DRAW:
            found[function].append(every)
        inner = [part for part in jax.tree.leaves(list(equation.params.values()), is_leaf=_program) if _program(part)]
        outputs = [every] * len(equation.outvars)
        for part in inner:
            body = getattr(part, "jaxpr", part)
            here = function or equation.params.get("name")
            passed = given[-len(body.invars) :] if len(body.invars) else []
            if equation.primitive.name in LOOPS or len(passed) != len(body.invars):
                passed = [every] * len(body.invars)  # what goes round a loop may depend on all that goes into it
            made = _follow(body, passed, here if here in FUNCTIONS else function, found)
            if len(inner) == 1 and len(made) == len(outputs) and equation.primitive.name not in LOOPS:
                outputs = made
        known.update(zip(equation.outvars, outputs, strict=True))
    return [of(atom) for atom in jaxpr.outvars]


def _program(part: Any) -> bool:
    return hasattr(part, "eqns") or hasattr(getattr(part, "jaxpr", None), "eqns")
