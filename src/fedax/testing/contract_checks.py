"""Checks on the contract's functions themselves: purity, shapes, and what they cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedax import counting
from fedax.algorithms import base
from fedax.algorithms.base import Algorithm, Context
from fedax.client.round import Client
from fedax.testing import measured_cost
from fedax.testing.driven_run import DrivenRun, Subject, apart, flat, shown
from fedax.testing.findings import Broken
from fedax.testing.problems import WIDE
from fedax.vectors import Mixture, Vector

Call = Callable[..., Any]


def walk(algorithm: Algorithm, client: Client, x0: Vector, steps: int, call: Call) -> Iterator[tuple[str, Any, Any]]:
    """One client's round, function by function, each through `call(name, function, *arguments)`.

    Yields (function, what it gave, what it must look like) for the functions that must keep a shape.
    """
    ctx = client.context()
    last = dataclasses.replace(ctx, step=steps)
    server = call("init", lambda a, x: a.init(x), algorithm, x0)
    state = call("client_init", lambda a, x: a.client_init(x), algorithm, x0)
    message = call("broadcast", lambda a, s: a.broadcast(s), algorithm, server)
    local = call("begin", lambda a, m, c: a.at(ctx).begin(m, c, ctx), algorithm, message, state)
    for k in range(steps):
        here = dataclasses.replace(ctx, step=k)

        def step(a: Any, l: Any, m: Any, c: Any, here: Context = here, k: int = k) -> Any:
            return a.at(here).step(l, client.oracles()(k), m, c, here)

        new = call("step", step, algorithm, local, message, state)
        yield "step", new, local
        local = new

    def finish(a: Any, l: Any, m: Any, c: Any) -> Any:
        return a.at(last).finish(l, client.oracles()(steps - 1), m, c, last)

    upload, kept = call("finish", finish, algorithm, local, message, state)
    yield "finish", kept, state
    at_server = dataclasses.replace(ctx, client=None)
    updated = call("update", lambda a, s, u: a.at(ctx).update(s, u, at_server), algorithm, server, upload)
    yield "update", updated, server
    yield "model", call("model", lambda a, s: a.model(s), algorithm, updated), x0
    own = call("personal", lambda a, s, c: a.at(ctx).personal(s, c, client.full()), algorithm, updated, kept)
    yield "personal", own, _as_own(own, x0)
    join = call("join", lambda a, s, c: a.at(ctx).join(s, c, client.full(), steps), algorithm, updated, state)
    yield "join", join, state


def _as_own(own: Any, x0: Vector) -> Any:
    """What a client's own model must look like: x0, or two of it and a weight where outputs are mixed."""
    if not isinstance(getattr(own, "tree", None), Mixture):
        return x0
    leaf = jax.tree.leaves(x0)[0]
    return Vector(Mixture(x0.tree, x0.tree, jax.ShapeDtypeStruct((), leaf.dtype)))


def purity(subject: Subject) -> str:
    """Every function twice on the same inputs: the same bits, inputs and method left as they were."""
    algorithm, name, calls = subject.algorithm, subject.name, 0
    before = _attributes(algorithm)

    def twice(function: str, body: Call, *arguments: Any) -> Any:
        nonlocal calls
        copies = jax.tree.map(np.array, arguments[1:])
        first, again = body(*arguments), body(*arguments)
        calls += 1
        if apart(first, again):
            numbers = f"first {shown(flat(first))}, then {shown(flat(again))}"
            raise Broken(f"{name}.{function} gives two answers to the same inputs: {numbers}")
        if apart(copies, arguments[1:]):
            raise Broken(f"{name}.{function} changes its inputs")
        return first

    trial = subject.trial(subject.uneven)
    x0 = Vector(start(trial))
    for _ in walk(algorithm, trial.client(0), x0, 2, twice):
        pass
    after = _attributes(algorithm)
    for attribute in before.keys() | after.keys():
        was, now = before.get(attribute, "absent"), after.get(attribute, "absent")
        if was != now:
            raise Broken(f"{name}.{attribute} changed while its functions were called: from {was} to {now}")
    return f"{calls} calls made twice, same bits"


def _attributes(algorithm: Algorithm) -> dict[str, str]:
    """What a method could hide state in: its own and its classes' attributes that are no functions."""
    found: dict[str, str] = {}
    for cls in reversed(type(algorithm).__mro__[:-1]):
        found |= {k: repr(v) for k, v in vars(cls).items() if not k.startswith("__") and not callable(v)}
    return found | {k: repr(v) for k, v in vars(algorithm).items()}


def start(trial: DrivenRun) -> Any:
    """The first parameters of a trial's problem."""
    run = trial.prepared
    sample = {k: v[:2] for k, v in run.data.arrays.items()}
    return run.problem.init(jax.random.key(run.config.seed), sample)


def shapes(subject: Subject) -> str:
    """Whatever a loop carries keeps its structure, shapes and dtypes; models have those of x0."""
    for double, dtype in ((False, np.float32), (True, np.float64), (True, np.float32)):
        with jax.enable_x64(double):
            _shapes_in(subject, np.dtype(dtype))
    return "float32, float64, and float32 parameters in a float64 run"


def _shapes_in(subject: Subject, dtype: np.dtype[Any]) -> None:
    name, trial = subject.name, subject.trial(subject.uneven)
    x0 = Vector(jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, dtype), start(trial)))

    def traced(function: str, body: Call, *arguments: Any) -> Any:
        made = jax.eval_shape(body, *arguments)
        kept = made[1] if function == "finish" else made
        if function in ("init", "client_init", "begin"):
            for path, leaf in jax.tree_util.tree_flatten_with_path(kept)[0]:
                if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype != dtype:
                    at = jax.tree_util.keystr(path)
                    raise Broken(f"{name}.{function} gives {leaf.dtype} at {at or 'its result'} for a {dtype} model")
        return made

    for function, found, expected in walk(subject.algorithm, trial.client(0), x0, 1, traced):
        difference = _difference(found, expected)
        if difference:
            raise Broken(f"{name}.{function}, {dtype} model: {difference}")


def _difference(found: Any, expected: Any) -> str:
    """How a traced tree differs from the one it should look like; empty if it does not."""
    made: Any = jax.tree.structure(found)
    wanted: Any = jax.tree.structure(expected)
    if made != wanted:
        return f"gives the tree {made}, not {wanted}"
    leaves = zip(
        jax.tree_util.tree_flatten_with_path(found)[0],
        jax.tree_util.tree_flatten_with_path(expected)[0],
        strict=True,
    )
    for (path, new), (_, old) in leaves:
        if (new.shape, new.dtype) != (old.shape, old.dtype):
            at = jax.tree_util.keystr(path) or "its result"
            return f"gives {new.dtype}{list(new.shape)} at {at}, not {old.dtype}{list(old.shape)}"
    return ""


def identity(subject: Subject) -> str:
    """JAX finds compiled programs by the structure of their inputs: another class must have another structure.

    If it has the same (classes given to `jax.tree_util.register_dataclass` compare as equal in some versions of
    JAX if they have as many fields), a run may silently use the program of another method.
    """
    own: Any = jax.tree.structure(subject.algorithm)
    for twin in _twins(subject.algorithm):
        if own == jax.tree.structure(twin):
            raise Broken(
                f"{subject.name}: JAX takes {own} and {jax.tree.structure(twin)} for the same, so that either may "
                "run the other's program; make the class a method with @fedax.algorithm alone"
            )
    return "told from other classes with the same parameters"


def _twins(algorithm: Algorithm) -> list[Algorithm]:
    """The method as two further classes, registered with JAX in two ways."""
    fields = dataclasses.fields(algorithm)  # type: ignore[arg-type]
    values = {field.name: getattr(algorithm, field.name) for field in fields}
    plain: Any = dataclasses.dataclass(frozen=True)(type("Twin", (type(algorithm),), {}))
    static = [field.name for field in fields if field.metadata.get("static")]
    jax.tree_util.register_dataclass(plain, [name for name in values if name not in static], static)
    classes: list[Any] = [plain, base.algorithm(type("Twin", (type(algorithm),), {}))]
    return [cls(**values) for cls in classes]


def cost(subject: Subject) -> str:
    """What a client's round sends, keeps and computes: the same in a round that runs as in one that is traced."""
    algorithm, name = subject.algorithm, subject.name
    traced = measured_cost.measured(algorithm)
    client = measured_cost.wide_client(algorithm)
    rows = {k: v[:2] for k, v in client.data.arrays.items()}
    found: dict[str, int] = {}

    def counted(function: str, body: Call, *arguments: Any) -> Any:
        with counting.counted() as tally:
            made = body(*arguments)
        sent = made[0] if function == "finish" else made
        found[function] = sum(np.size(leaf) for leaf in jax.tree.leaves(sent))
        found[f"gradients in {function}"] = tally.minibatch
        return made

    x0 = Vector(WIDE.init(jax.random.key(0), rows))
    for _ in walk(algorithm, client, x0, measured_cost.STEPS, counted):
        pass
    for what, function, expected in (
        ("floats down", "broadcast", traced.down),
        ("floats up", "finish", traced.up),
        ("floats kept by a client", "client_init", traced.kept),
        ("minibatch gradients in a local step", "gradients in step", traced.step.minibatch),
        ("minibatch gradients in finish", "gradients in finish", traced.finish.minibatch),
    ):
        if found[function] != expected:
            raise Broken(
                f"{name}: {what} are {found[function]} when its functions run and {expected} when they are traced; "
                "what they send and compute must not depend on the values of their arguments"
            )
    said = measured_cost.costs(algorithm)
    return f"down {said.down}, up {said.up}, a client keeps {said.kept}; gradients: {said.gradients}"
