"""Checks on what a method claims of itself: reductions, fixed points, progress, and a reference of the user's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fedax.algorithms import ALGORITHMS, Algorithm
from fedax.algorithms.claims import Claim, Optimum, Reduction
from fedax.testing.driven_run import TOLERANCE, DrivenRun, Subject, gap, shown
from fedax.testing.findings import Broken, Skipped
from fedax.testing.problems import CLIENTS, Array, Case, quadratics, ragged, smooth

PARTIAL = 3  # clients a round of `CLIENTS` when not all take part
ROUNDS = 5
REACHED = 1e-8  # distance that counts as the optimum, in double precision
STRETCH = 64  # rounds between two looks at the distance
WORK = (4, 1, 3, 5, 2, 4, 1, 3)  # local steps of the reference's clients


def claim(subject: Subject, claimed: Claim) -> str:
    """Any claim."""
    return reduction(subject, claimed) if isinstance(claimed, Reduction) else optimum(subject, claimed)


def reduction(subject: Subject, claimed: Reduction) -> str:
    """With some parameters fixed, the method is another one, round for round."""
    one: Algorithm = dataclasses.replace(subject.algorithm, **claimed.when)  # type: ignore[type-var]
    other = counterpart(one, claimed)
    setting = _setting(claimed, subject.seed)
    a, b = (DrivenRun(m, setting, seed=subject.seed) for m in (one, other))
    view: Callable[[DrivenRun], Array] = (lambda t: t.shared) if claimed.model == "shared" else (lambda t: t.personal)
    start, largest = view(b), 0.0
    for r in range(1, ROUNDS + 1):
        found, expected = view(a.advance()), view(b.advance())
        distance = gap(found, expected)
        if not distance <= TOLERANCE:
            models = f"{claimed.model} models {shown(np.ravel(found))} and {shown(np.ravel(expected))}"
            raise Broken(f"{subject.name} is not {other} in round {r}: {models}, apart by {distance:.1e}")
        largest = max(largest, distance)
    if gap(start, view(b)) < 1e-3:
        raise Broken(f"{subject.name} against {other}: neither moved in {ROUNDS} rounds, so nothing was compared")
    return f"largest difference {largest:.1e} in {ROUNDS} rounds"


def counterpart(one: Algorithm, claimed: Reduction) -> Algorithm:
    """The method that another claims to be: parameters of the same name are shared."""
    cls: Any = ALGORITHMS.get(claimed.to)
    if cls is None:
        cls = {type(m).__name__: type(m) for m in (one, getattr(one, "base", one))}.get(claimed.to)
    if cls is None:
        raise Broken(f"{type(one).__name__} claims to be {claimed.to}, which is no method of fedax.algorithms")
    names = {field.name for field in dataclasses.fields(cls)}
    shared = {f.name: getattr(one, f.name) for f in dataclasses.fields(one) if f.name in names}  # type: ignore[arg-type]
    made: Algorithm = cls(**(shared | dict(claimed.other)))
    return made


def _setting(claimed: Reduction, seed: int) -> Case:
    """Minibatches and unequal work where the claim allows them, noise-free quadratics otherwise."""
    if claimed.local_steps is None and claimed.participation == "any":
        return ragged(seed)
    cohort = None if claimed.participation == "full" else PARTIAL
    return smooth(quadratics(seed)[0], claimed.local_steps or 5, cohort)


def optimum(subject: Subject, claimed: Optimum) -> str:
    """On heterogeneous quadratics the distance to the closed-form minimiser falls below 1e-8 and stays there."""
    one: Algorithm = dataclasses.replace(subject.algorithm, **claimed.when)  # type: ignore[type-var]
    federation, best = quadratics(subject.seed)
    cohort = None if claimed.participation == "full" else PARTIAL
    trial = DrivenRun(one, smooth(federation, claimed.local_steps, cohort), seed=subject.seed)
    distances = [_distance(trial, best)]
    rounds = 0
    while rounds < claimed.rounds and not all(d < REACHED / 10 for d in distances[-3:]):
        stretch = min(STRETCH, claimed.rounds - rounds)
        distances.append(_distance(trial.advance(stretch), best))
        rounds += stretch
    end = distances[-1]
    if not end < REACHED:
        who = f"{cohort or CLIENTS} of {CLIENTS} clients, {claimed.local_steps} local steps"
        path = ", ".join(f"{d:.1e}" for d in distances[:: max(1, len(distances) // 4)])
        raise Broken(f"{one} with {who} is {end:.1e} from the optimum after {rounds} rounds (on its way: {path})")
    return f"distance {end:.1e} after {rounds} rounds"


def _distance(trial: DrivenRun, best: Array) -> float:
    return float(np.linalg.norm(trial.shared - best))


def progress(subject: Subject) -> str:
    """On clients that are all alike the shared model's objective falls."""
    if not subject.algorithm.shared:
        raise Skipped("there is no shared model")
    federation, best = quadratics(subject.seed, alike=True)
    a = federation.arrays["A"][0]
    trial = subject.trial(smooth(federation))
    start, end = (float((x - best) @ a @ (x - best) / 2) for x in (trial.shared, trial.advance(STRETCH).shared))
    if not end < start:
        raise Broken(f"{subject.algorithm} goes from {start:.3g} to {end:.3g} above the minimum in {STRETCH} rounds")
    return f"from {start:.2g} to {end:.2g} above the minimum in {STRETCH} rounds"


@dataclasses.dataclass(frozen=True)
class Task:
    """What a reference implementation sees: noise-free clients, each with its own number of local steps.

    x0: the start. cohorts: the clients of each round. steps: local steps of each client.
    `gradient(i, x)` is that of client i; the clients are 1/2 (x - b_i)' A_i (x - b_i).
    """

    x0: Array
    cohorts: list[list[int]]
    steps: tuple[int, ...]
    A: Array
    b: Array

    @property
    def clients(self) -> int:
        return len(self.steps)

    def gradient(self, i: int, x: Array) -> Array:
        """Client i's gradient at x."""
        product: Array = self.A[i] @ (x - self.b[i])
        return product


Reference = Callable[[Task], Iterable[Any]]


def reference(subject: Subject, follow: Reference) -> str:
    """Each round's models, with unequal work and clients that sit out, against another implementation."""
    federation, _ = quadratics(subject.seed)
    trial = subject.trial(smooth(federation, max(WORK), PARTIAL)).work(WORK)
    cohorts = [trial.cohort(r) for r in range(2 * ROUNDS)]
    task = Task(trial.shared, cohorts, WORK, federation.arrays["A"], federation.arrays["b"])
    largest = 0.0
    for r, expected in enumerate(follow(task), start=1):
        trial.advance()
        for whose, found, wanted in _pairs(trial, expected):
            distance = gap(found, wanted)
            if not distance <= TOLERANCE:
                models = f"{shown(found)}, not {shown(wanted)}, apart by {distance:.1e}"
                raise Broken(f"{subject.algorithm} leaves its reference in round {r}: {whose} {models}")
            largest = max(largest, distance)
    return f"largest difference {largest:.1e} in {trial.state.round} rounds"


def _pairs(trial: DrivenRun, expected: Any) -> list[tuple[str, Array, Array]]:
    """What a round's models are and should be: the shared one, and all personal ones if they are given."""
    if not isinstance(expected, tuple):
        return [("shared model", trial.shared, np.asarray(expected))]
    shared, personal = (np.asarray(models) for models in expected)
    return [
        ("shared model", trial.shared, shared),
        ("personal models", np.ravel(trial.personal), np.ravel(personal)),
    ]
