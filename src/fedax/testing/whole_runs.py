"""Checks on whole runs: determinism, order, executors, clients that sit out, compilation, save and load."""

from __future__ import annotations

import dataclasses
import io
import tempfile
from typing import Any

import jax
import jax.monitoring
import numpy as np

from fedax.algorithms.base import Algorithm, within
from fedax.engine import load
from fedax.engine.state import State
from fedax.schedules import Schedule
from fedax.testing.driven_run import ROUNDS, TOLERANCE, DrivenRun, Subject, apart, gap, shown
from fedax.testing.findings import Broken, Skipped
from fedax.testing.key_checks import CLIENT, draws
from fedax.testing.problems import CLIENTS, quadratics, smooth

_COMPILED = "/jax/core/compile/backend_compile_duration"
_count = {"compilations": 0, "listening": 0}


def determinism(subject: Subject) -> str:
    """Two runs with one seed."""
    trial = subject.trial(subject.uneven)
    for expected in subject.states[1:]:
        difference = _between(trial.advance().state, expected)
        if difference:
            where = f"round {expected.round}: two runs with seed {subject.seed}"
            raise Broken(f"{subject.name}, {where} are not the same: {difference}")
    return f"{ROUNDS} rounds twice, same bits"


def _between(a: State, b: State) -> str:
    return apart((a.server, a.clients), (b.server, b.clients))


def client_order(subject: Subject) -> str:
    """A cohort's order changes nothing; with full gradients and no draws, the clients' numbers do not either."""
    turned = _backwards(subject.trial(subject.uneven)).advance(ROUNDS).state
    expected = subject.states[-1]
    moved = gap((turned.server, turned.clients), (expected.server, expected.clients))
    if not moved <= TOLERANCE:
        raise Broken(
            f"{subject.name}: a cohort whose clients run in the opposite order moves server and states by {moved:.1e}; "
            "what a client does must depend on its number and the round (ctx.key), not on who ran before"
        )
    if any(CLIENT in mark for marks in draws(subject).values() for mark in marks):
        return f"cohorts backwards: largest difference {moved:.1e}; its draws go by the clients' numbers"
    return f"largest difference {max(moved, _renumbered(subject)):.1e}"


def _backwards(trial: DrivenRun) -> DrivenRun:
    """Have each round's cohort run from its last client to its first."""
    draws: Any = trial.prepared.engine.draws
    drawn = draws.block
    draws.block = lambda number: np.ascontiguousarray(drawn(number)[:, ::-1])
    return trial


def _renumbered(subject: Subject) -> float:
    """How far numbering the clients otherwise moves a run with full gradients and all clients."""
    federation, _ = quadratics(subject.seed)
    order = np.random.default_rng(subject.seed).permutation(CLIENTS)
    plain = subject.trial(smooth(federation)).advance(3)
    turned = subject.trial(smooth(federation.reordered(order.tolist()))).advance(3)
    server = gap(turned.state.server, plain.state.server)
    if not server <= TOLERANCE:
        models = f"{shown(plain.shared)} and {shown(turned.shared)}"
        raise Broken(f"{subject.name}: reordering the clients moves the server by {server:.1e}: {models}")
    clients = gap(turned.state.clients, jax.tree.map(lambda a: a[order], plain.state.clients))
    if not clients <= TOLERANCE:
        raise Broken(f"{subject.name}: reordering the clients changes their states by {clients:.1e}")
    return max(server, clients)


def executors(subject: Subject) -> str:
    """Batched, one at a time over all devices, and step by step in Python: the same to rounding."""
    few = smooth(quadratics(subject.seed)[0], cohort=3)
    pairs = {
        "looped": (subject.trial(few).advance(3).state, subject.trial(few, executor="looped", devices=None).advance(3)),
        "debug": (subject.states[2], subject.trial(subject.uneven, executor="debug").advance(2)),
    }
    found = []
    for name, (batched, other) in pairs.items():
        distance = gap((other.state.server, other.state.clients), (batched.server, batched.clients))
        if not distance <= TOLERANCE:
            raise Broken(f"{subject.name}: the executors batched and {name} differ by {distance:.1e}")
        found.append(f"{name} {distance:.1e}")
    return "from batched: " + ", ".join(found)


def sitting_out(subject: Subject) -> str:
    """A client that takes no part in a round keeps its state bit for bit."""
    if not jax.tree.leaves(subject.states[0].clients):
        raise Skipped("a client keeps nothing")
    trial, kept = subject.trial(subject.uneven), 0
    for before, after in zip(subject.states, subject.states[1:], strict=False):
        away = sorted(set(range(trial.prepared.plan.clients)) - set(trial.cohort(before.round)))
        for i in away:
            was, now = (jax.tree.map(lambda a, i=i: a[i], s.clients) for s in (before, after))
            if apart(was, now):
                moved = gap(now, was)
                raise Broken(f"{subject.name}: client {i} sat out round {after.round}, its state moved by {moved:.1e}")
        kept += len(away)
    return f"{kept} absences in {ROUNDS} rounds, same bits"


def unequal_steps(subject: Subject) -> str:
    """A client's new state does not depend on how many steps the others take."""
    if not jax.tree.leaves(subject.states[0].clients):
        raise Skipped("a client keeps nothing; the executors are compared with unequal steps")
    if subject.algorithm.lockstep:
        raise Skipped("its clients take equally many steps")
    plain = subject.trial(subject.uneven)
    usual = plain.prepared.steps
    watched = max(plain.cohort(0), key=lambda i: int(usual[i]))
    steps = [int(k) if i == watched else 1 for i, k in enumerate(usual)]
    short = subject.trial(subject.uneven).work(steps)
    one, other = (jax.tree.map(lambda a: a[watched], t.advance().state.clients) for t in (plain, short))
    distance = gap(one, other)
    if not distance <= TOLERANCE:
        taken = f"{steps[watched]} steps"
        raise Broken(f"{subject.name}: a client of {taken} moves by {distance:.1e} when the others take 1 step each")
    return f"a client of {steps[watched]} steps beside shorter ones: difference {distance:.1e}"


def compilation(subject: Subject) -> str:
    """Another value of a number is new data, not a new program."""
    fields = numeric_fields(subject.algorithm)
    if not fields:
        raise Skipped("no numeric hyper-parameters")
    base = dataclasses.replace(subject.algorithm, **fields)  # type: ignore[type-var]
    setting = subject.uneven
    DrivenRun(base, setting).advance()
    for name, value in fields.items():
        other = dataclasses.replace(base, **{name: nearby(base, name, value)})  # type: ignore[type-var]
        trial = DrivenRun(other, setting)
        before = compilations()
        trial.advance()
        if (new := compilations() - before) > 0:
            given = f"{name} = {getattr(other, name)} after {value}"
            raise Broken(f"{subject.name}: {given} compiled {new} programs; declare it with number() or rate()")
    return f"{', '.join(fields)}: no new program"


def numeric_fields(algorithm: Algorithm) -> dict[str, Any]:
    """The hyper-parameters that are numbers or schedules; whole numbers that shape the program are not."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(algorithm):  # type: ignore[arg-type]
        value = getattr(algorithm, field.name)
        if isinstance(value, Schedule):
            found[field.name] = value
        elif isinstance(value, float) or (isinstance(value, int) and not field.metadata.get("static")):
            found[field.name] = float(value)
    return found


def nearby(algorithm: Algorithm, name: str, value: Any) -> Any:
    """A slightly different value of a hyper-parameter, within its interval."""
    if isinstance(value, Schedule):
        return dataclasses.replace(value, initial=value.initial * 1.01)
    field = next(f for f in dataclasses.fields(algorithm) if f.name == name)  # type: ignore[arg-type]
    interval = field.metadata.get("interval", "(-inf, inf)")
    candidates = (value * 1.01, value * 0.99, value + 0.01, value - 0.01)
    return next(v for v in candidates if v != value and within(v, interval))


def compilations() -> int:
    """Programs that JAX has compiled since this was first called."""
    if not _count["listening"]:
        _count["listening"] = 1
        jax.monitoring.register_event_duration_secs_listener(_listen)
    return _count["compilations"]


def _listen(event: str, duration_secs: float, **_: str | int) -> None:
    _count["compilations"] += event == _COMPILED


def save_and_load(subject: Subject) -> str:
    """A result reads back as it was written; a run that goes on from a stored state is the uninterrupted one."""
    half, end = subject.states[ROUNDS // 2], subject.states[-1]
    trial = subject.trial(subject.uneven).resume(_stored(half))
    difference = _between(trial.advance(ROUNDS - ROUNDS // 2).state, end)
    if difference:
        where = f"stopped after round {half.round} and continued to {end.round}"
        raise Broken(f"{subject.name}: a run {where} is not the uninterrupted one: {difference}")
    result = trial.result
    with tempfile.TemporaryDirectory() as folder:
        again = load(result.save(folder))
    everyone = range(result.clients)
    for name, found, expected in (
        ("model", again.model, result.model),
        ("personal models", [again.personal(i) for i in everyone], [result.personal(i) for i in everyone]),
    ):
        difference = apart(expected, found)
        if difference:
            raise Broken(f"{subject.name}: the {name} before and after saving are not the same: {difference}")
    return f"continued from round {half.round} to {end.round}, saved and loaded: same bits"


def _stored(state: State) -> State:
    """A state written out as plain arrays and read back."""
    leaves, structure = jax.tree.flatten((state.server, state.clients))
    file = io.BytesIO()
    np.savez(file, *leaves)
    file.seek(0)
    with np.load(file, allow_pickle=False) as stored:
        read = [stored[f"arr_{i}"] for i in range(len(leaves))]
    server, clients = jax.tree.unflatten(structure, read)
    return State(server, clients, state.round)
