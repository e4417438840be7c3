"""The borders by which the engine chooses: batched or looped, the chunk of batched clients, the rows of an evaluation.

    python benchmarks/choices.py [batched chunk block] [--repeats 7]      (FEDAX_DATA for MNIST and CIFAR-10)

batched  looped over batched, the time of a round of 20 clients, for models on both sides of the border
chunk    a round of 2,000 clients of a logistic regression, by the clients that are batched together
block    an evaluation of workload C's network on ten thousand rows, by the rows that are taken at a time
All that is compared is timed in turn; medians and quartiles are printed and saved in results/choices.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fedax
from benchmarks.checkpoints import simulation
from benchmarks.speed import quartiles, rounds_of, versions
from benchmarks.workloads import workload
from fedax import platforms
from fedax.data import IID, SyntheticClients, load
from fedax.engine.executors import step_floats
from fedax.models import model

RESULTS = Path(__file__).resolve().parent / "results" / "choices.json"
ROUNDS = 3
MODELS: tuple[tuple[str, str, dict[str, Any], int], ...] = (
    ("mnist", "logistic", {}, 20),
    ("mnist", "mlp", {"hidden": (20,)}, 20),
    ("mnist", "cnn", {"channels": (4,), "dense": ()}, 4),
    ("mnist", "mlp", {"hidden": (60,)}, 20),
    ("mnist", "logistic", {}, 100),
    ("mnist", "cnn", {"channels": (4, 8), "dense": ()}, 20),
    ("cifar10", "small_cnn_gn", {"channels": (16, 32, 32)}, 20),
)
CHUNKS = (10, 25, 100, 250, 500, 1000)
BLOCKS = (64, 128, 256, 512, 1024)


def in_turn(who: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """The milliseconds of each."""
    took: dict[str, list[float]] = {name: [] for name in who}
    for repeat in range(repeats + 1):
        for name, run in who.items():
            began = time.perf_counter()
            run()
            if repeat:  # the first compiles
                took[name].append(1e3 * (time.perf_counter() - began))
    return took


def batched(repeats: int) -> Iterator[dict[str, Any]]:
    """Looped over batched, model by model."""
    federations = {name: load(name, partition=IID(100)) for name in {name for name, *_ in MODELS}}
    for data, name, options, batch in MODELS:
        federation, who, work = federations[data], {}, 0.0
        for how in ("batched", "looped"):
            task = fedax.Problem(model(name, outputs=10, **options), loss="cross_entropy")
            run = fedax.Simulation(
                task,
                federation,
                fedax.FedAvg(lr=0.1),
                rounds=10**6,
                cohort=20,
                local_steps=10,
                batch_size=batch,
                executor=how,
                protocol=False,
            )
            work = step_floats(task, run.prepared.x0.tree, federation.arrays, run.prepared.plan, run.prepared.steps)
            who[how] = functools.partial(rounds_of(run), ROUNDS)
        took = in_turn(who, repeats)
        ratio = quartiles([a / b for a, b in zip(took["looped"], took["batched"], strict=True)])
        yield {"what": f"{name} {options} on {data}, batch {batch}", "floats a step": work, "looped/batched": ratio}


def chunk(repeats: int) -> Iterator[dict[str, Any]]:
    """A round by chunks, the engine's own first."""
    clients = SyntheticClients(
        clients=4_000, gamma=0.5, beta=0.5, rows=40, features=60, classes=10, test_share=0.2
    ).federation(0)
    who: dict[str, Callable[[], object]] = {}
    for size in (None, *CHUNKS):
        run = fedax.Simulation(
            fedax.Problem(model("logistic", outputs=10), loss="cross_entropy"),
            clients,
            fedax.SCAFFOLD(lr=0.01),
            rounds=10**6,
            cohort=2_000,
            local_steps=10,
            batch_size=8,
            chunk=size,
            protocol=False,
        )
        name = f"{run.prepared.executor.chunk} clients" + (", chosen" if size is None else "")
        who[name] = functools.partial(rounds_of(run), ROUNDS)
    for name, took in in_turn(who, repeats).items():
        yield {"what": name, "ms a round": quartiles([t / ROUNDS for t in took])}


def block(repeats: int) -> Iterator[dict[str, Any]]:
    """An evaluation by the rows at a time."""
    task, who, ours = workload("C"), {}, platforms.CPU.evaluated_rows
    with tempfile.TemporaryDirectory() as folder:
        for rows in BLOCKS:
            platforms.TABLE["cpu"] = dataclasses.replace(platforms.CPU, evaluated_rows=rows)
            run = simulation(task, f"{folder}/{rows}")
            (meter,) = run.prepared.meters.values()
            here = run.prepared.algorithm.model(run.state.server).tree
            who[f"{rows} rows" + ", chosen" * (rows == ours)] = functools.partial(meter.shared, here, run.prepared.data)
        for name, took in in_turn(who, repeats).items():
            yield {"what": name, "ms": quartiles(took)}
    platforms.TABLE["cpu"] = platforms.CPU


TABLES = {"batched": batched, "chunk": chunk, "block": block}


def main() -> None:
    """The tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", choices=[*TABLES, []], help="default: all")
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    saved = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in given.tables or TABLES:
        rows = []
        for row in TABLES[name](given.repeats):
            rows.append(row)
            print(name, json.dumps(row), flush=True)
        saved[name] = rows
        saved["versions"] = {**versions(), "cores": os.cpu_count()}
        RESULTS.write_text(json.dumps(saved, indent=1) + "\n")


if __name__ == "__main__":
    main()
