"""Roughly how many hours a reproduction takes at the paper's scale on this machine.

    python benchmarks/hours.py [ID ...]      (FEDAX_DATA for real data)

A few local steps of the first method are timed for each model, regularizer and cohort, those of a sweep's settings side
by side where the sweep runs them so, and multiplied by the steps, rounds, seeds and settings of all parts and by the
gradients that each method takes a step. Data that are not here (CIFAR-100, TinyImagenet) are taken to cost what the
same model costs on those that are. Without an ID: all that have no saved result at the paper's scale. The tables'
`hours` are of this order: FedSpeed's are what this gave on a quiet machine (0.64 s a step of ten clients with 50 rows,
0.47 with 20), three times that for TinyImagenet's larger images; the others were written down from runs on a busy
machine, halved.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import numpy as np

from fedax.engine.lanes import Lanes
from fedax.engine.state import State
from fedax.engine.sweeps import Settings
from fedax.errors import FedaxError
from fedax.experiments.building import options, prepare
from fedax.papers.reproductions import ids, load
from fedax.papers.reproductions.saving import saved

ENOUGH = 0.1  # seconds of a round that is timed
ROUNDS = 2


def steps_a_round(experiment: Any, rows: float) -> float:
    """The local steps that a client with this number of rows takes in a round."""
    if experiment.local_steps is not None:
        return float(experiment.local_steps)
    return float(experiment.local_epochs) * max(1.0, rows / experiment.batch_size)


def seconds_a_step(experiment: Any) -> tuple[float, float]:
    """The seconds of a local step by the first method (one setting of a sweep), and the mean rows of a client."""
    on = prepare(experiment)
    rows = float(on[1].train.count.mean())
    steps, most = 1, math.ceil(steps_a_round(experiment, rows))
    while True:  # as many as show above what a round costs by itself
        steps = min(8 * steps, most)
        took = seconds_a_round(experiment, on, steps)
        if took > ENOUGH or steps == most:
            return took / steps, rows


def seconds_a_round(experiment: Any, on: tuple[Any, Any], steps: int) -> float:
    """The seconds of a round with this number of local steps, for one setting."""
    how = options(experiment, 0) | {"local_epochs": None, "local_steps": steps, "rounds": 10**6, "eval_every": 10**6}
    table, sweep = experiment.algorithm[0], experiment.sweep
    methods = [table.build()] if sweep is None else [method for _, method in sweep.settings(table)]
    settings = Settings(*on, methods, mode="auto" if sweep is None else sweep.mode, **how)
    run, count = settings.first, len(settings.blocks[0])
    lanes = Lanes(run, [methods[number] for number in settings.blocks[0]], None, math.inf) if count > 1 else None
    took = []
    for _ in range(1 + ROUNDS):
        began = time.perf_counter()
        if lanes is None:
            good = run.advance(1)
        else:
            server, clients, good, _, diagnostics = run.prepared.engine.run(
                lanes.stacked, lanes.state, lanes.alive, 1, run.prepared.data
            )
            lanes.state = State(server, clients, lanes.state.round + 1, diagnostics)
        assert np.all(good)
        took.append(time.perf_counter() - began)
    return min(took[1:]) / count


def hours(name: str, known: dict[Any, tuple[float, float]]) -> float:
    """Of all parts; `known` are the seconds of a step that were measured before."""
    total = 0.0
    for setting in load(name).at("paper"):
        experiment = setting.experiment()
        size = experiment.data.partition.clients if hasattr(experiment.data.partition, "clients") else None
        key = (
            str(experiment.model),
            str(experiment.problem),
            experiment.cohort,
            experiment.batch_size,
            size,
            experiment.data.name == "mnist",
        )
        if key not in known:
            try:
                known[key] = seconds_a_step(experiment)
            except FedaxError as error:
                print(f"  {setting.part}: {error}", flush=True)
                known[key] = next(iter(known.values()))
        each, rows = known[key]
        gradients = sum(table.build().gradients_a_step() for table in experiment.algorithm)
        settings = 1 if experiment.sweep is None else math.prod(len(v) for v in experiment.sweep.values.values())
        part = each * steps_a_round(experiment, rows) * gradients * experiment.rounds * len(experiment.seeds) * settings
        total += part
        print(f"  {setting.part or name}: {each:.3g} s a step of the cohort, {part / 3600:.3g} h", flush=True)
    return total / 3600


def main() -> None:
    """A line for each."""
    known: dict[Any, tuple[float, float]] = {}
    for name in sys.argv[1:] or [name for name in ids() if load(name).measure is None and saved(name, "paper") is None]:
        print(f"{name}: {hours(name, known):.3g} hours", flush=True)


if __name__ == "__main__":
    main()
