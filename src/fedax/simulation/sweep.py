"""Sweeps: many settings of one method through the same rounds, side by side in one compiled program.

The settings differ in numbers only, so they are lanes of one program: each round draws one cohort and one set of
minibatches, and a linear model's gradients of all lanes are one matrix product.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedax.algorithms.base import Algorithm
from fedax.data.federation import Federation
from fedax.errors import DivergedError, FedaxError
from fedax.problem import Problem
from fedax.simulation.engine import State
from fedax.simulation.moments import Metrics
from fedax.simulation.result import Result
from fedax.simulation.run import Simulation

LANES = 64  # settings in one program


def grid(algorithm: Algorithm, values: Mapping[str, Sequence[float]]) -> list[Algorithm]:
    """Every combination of some values of a method's numbers.

    >>> import fedax
    >>> grid(fedax.FedAvg(lr=0.1), {"lr": [0.1, 0.2], "server_lr": [1.0, 2.0]})[1]
    FedAvg(lr=0.1, server_lr=2.0)
    """
    for name in values:
        if name not in {f.name for f in dataclasses.fields(algorithm)}:  # type: ignore[arg-type]
            raise FedaxError(f"{type(algorithm).__name__} has no field {name!r} to sweep over")
    return [
        dataclasses.replace(algorithm, **dict(zip(values, chosen, strict=True)))  # type: ignore[type-var]
        for chosen in itertools.product(*values.values())
    ]


def sweep(
    problem: Problem,
    federation: Federation,
    algorithms: Sequence[Algorithm],
    *,
    rounds: int,
    eval_every: int = 1,
    on_progress: Callable[[int], None] | None = None,
    **options: Any,
) -> list[Result]:
    """Run many settings of one method side by side; one result each, in their order.

    The settings may differ in numbers, not in choices or flags. A setting that diverges stops there, with its
    `info["diverged"]` the round; the others go on. Options are those of `simulate`; on_progress is called with the
    rounds done, those of all settings added up.

    >>> import numpy as np, jax.numpy as jnp, fedax
    >>> mean = fedax.Problem(loss=lambda w, b: jnp.mean((b["x"] - w) ** 2) / 2, init=lambda key: jnp.zeros(()))
    >>> clients = fedax.Federation.from_clients([{"x": np.float32([1, 2, 3])}, {"x": np.float32([6])}])
    >>> results = sweep(mean, clients, grid(fedax.FedAvg(lr=0.1), {"lr": [0.1, 0.5]}), rounds=30, eval_every=30)
    >>> [round(float(r.model), 2) for r in results]
    [3.83, 4.0]
    """
    found = side_by_side(
        problem, federation, algorithms, rounds=rounds, eval_every=eval_every, on_progress=on_progress, **options
    )
    return [result for result, _ in found]


def side_by_side(
    problem: Problem,
    federation: Federation,
    algorithms: Sequence[Algorithm],
    *,
    rounds: int,
    eval_every: int = 1,
    on_progress: Callable[[int], None] | None = None,
    **options: Any,
) -> list[tuple[Result, Metrics]]:
    """`sweep`, with every client's metrics of its last evaluation beside each result.

    >>> import numpy as np, jax.numpy as jnp, fedax
    >>> mean = fedax.Problem(loss=lambda w, b: jnp.mean((b["x"] - w) ** 2) / 2, init=lambda key: jnp.zeros(()))
    >>> clients = fedax.Federation.from_clients([{"x": np.float32([1, 3])}, {"x": np.float32([6])}])
    >>> [(result, metrics)] = side_by_side(mean, clients, [fedax.FedAvg(lr=0.5)], rounds=30, eval_every=30)
    >>> metrics["train"]["loss"].values.round(2)  # at the shared 4: (3^2 + 1^2) / 4 and 2^2 / 2
    array([2.5, 2. ])
    """
    kinds = {jax.tree.structure(algorithm) for algorithm in algorithms}
    if len(kinds) != 1:
        raise FedaxError(f"a sweep takes settings of one method that differ in numbers alone, not {len(kinds)} kinds")
    if options.get("executor") == "debug":
        raise FedaxError("a sweep is one compiled program: executor='debug' is for single runs")
    first = Simulation(
        problem, federation, algorithms[0], rounds=rounds, eval_every=eval_every, **{"protocol": False, **options}
    )
    results: list[tuple[Result, Metrics]] = []
    for begin in range(0, len(algorithms), LANES):
        part = algorithms[begin : begin + LANES]
        say = None if on_progress is None else _shifted(on_progress, begin * rounds, len(part))
        results += _side_by_side(first, part, say)
    return results


def _shifted(say: Callable[[int], None], done: int, lanes: int) -> Callable[[int], None]:
    return lambda r: say(done + r * lanes)


def _side_by_side(
    first: Simulation, algorithms: Sequence[Algorithm], say: Callable[[int], None] | None
) -> list[tuple[Result, Metrics]]:
    runs = [first.fork(algorithm) for algorithm in algorithms]
    stacked = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *algorithms)
    starts = [first.engine.start(algorithm, first.x0) for algorithm in algorithms]
    state = first.engine.place(jax.tree.map(lambda *a: jnp.stack(a), *[(s.server, s.clients) for s in starts]))
    del starts
    lanes = State(*state)
    alive = np.ones(len(runs), bool)
    stopped: dict[int, int] = {}
    for run in runs:
        run.begin()
    _record(runs, lanes, alive, stopped)
    for target in _targets(first.rounds, first.eval_every):
        while lanes.round < target:
            count = min(target - lanes.round, first.engine.segment)
            before = alive
            server, clients, alive, done, signs = first.engine.run(stacked, lanes, alive, count, first.data)
            alive, done = np.asarray(alive), np.asarray(done)
            for lane, run in enumerate(runs):
                run._account(lanes.round, lanes.round + int(done[lane]) if before[lane] else lanes.round)
                if before[lane] and not alive[lane]:
                    stopped[lane] = lanes.round + int(done[lane]) + 1
            lanes = State(server, clients, lanes.round + count, signs)
            if say is not None:
                say(lanes.round)
        alive = _record(runs, lanes, alive, stopped)
        if not alive.any():
            break
    for lane, run in enumerate(runs):
        run.state = _lane(lanes, lane)
    results = [run.result for run in runs]
    for lane, round in stopped.items():
        results[lane].info["diverged"] = round
    return [(result, run.per_client) for result, run in zip(results, runs, strict=True)]


def _targets(rounds: int, every: int) -> Iterator[int]:
    yield from range(every, rounds, every)
    yield rounds


def _lane(lanes: State, lane: int) -> State:
    server, clients, signs = jax.tree.map(lambda a: a[lane], (lanes.server, lanes.clients, lanes.signs))
    return State(server, clients, lanes.round, signs)


def _record(runs: list[Simulation], lanes: State, alive: Any, stopped: dict[int, int]) -> Any:
    """Evaluate every lane that is alive; one whose loss is no number ends here."""
    alive = alive.copy()
    for lane in np.flatnonzero(alive).tolist():
        runs[lane].state = _lane(lanes, lane)
        try:
            runs[lane]._record()
        except DivergedError as error:
            alive[lane] = False
            stopped[lane] = error.round
    return alive
