"""Seconds a round: Fedax against a plain PyTorch loop of the same work, interleaved in one run.

    python benchmarks/speed.py [A B C] [--repeats 7]      (FEDAX_DATA for real data)

Each repeat times some rounds of one, then of the other, so that both meet the same machine. Medians, their
ratio and the spread are printed and saved beside this script, with the versions.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fedax
from benchmarks.workloads import Workload, workload
from fedax.models import model

PAUSE = 0.5  # seconds before each timing: idle threads of the other library may spin for a while
ROUNDS = {"A": 10, "B": 20, "C": 1}  # rounds a repeat, for repeats of about a second


def fedax_rounds(task: Workload) -> Callable[[int], None]:
    """A function that trains `count` more rounds, and the simulation behind it."""
    rows = fedax.data.Rows(task.offsets[:-1].astype("int64"), (task.offsets[1:] - task.offsets[:-1]).astype("int64"))
    none = fedax.data.Rows(rows.start, 0 * rows.count)
    federation = fedax.Federation({"x": task.x, "y": task.y}, rows, none, none)
    problem = fedax.Problem(model(task.model, outputs=task.outputs, **task.options), loss=task.loss)
    simulation = fedax.Simulation(
        problem,
        federation,
        fedax.FedAvg(lr=task.lr),
        rounds=10**6,
        cohort=task.cohort,
        local_steps=task.steps,
        batch_size=task.batch,
    )

    def train(count: int) -> None:
        simulation.state, good = simulation.engine.advance(
            simulation.algorithm, simulation.state, count, simulation.data
        )
        assert good

    train.simulation = simulation  # type: ignore[attr-defined]
    return train


def torch_rounds(task: Workload) -> Callable[[int], None]:
    """The same by PyTorch."""
    from benchmarks import torch_loops

    one = torch_loops.federation(task)

    def train(count: int) -> None:
        for _ in range(count):
            one()

    return train


def compare(name: str, repeats: int) -> dict[str, object]:
    """Times of both on one workload, interleaved."""
    task = workload(name)
    runners = {"fedax": fedax_rounds(task), "torch": torch_rounds(task)}
    counts = {"fedax": ROUNDS[name], "torch": max(1, ROUNDS[name] // 5)}
    times: dict[str, list[float]] = {who: [] for who in runners}
    for who, train in runners.items():
        train(1)
        train(counts[who])
    for _ in range(repeats):
        for who, train in runners.items():
            time.sleep(PAUSE)
            began = time.perf_counter()
            train(counts[who])
            times[who].append((time.perf_counter() - began) / counts[who])
    ratios = [t / f for t, f in zip(times["torch"], times["fedax"], strict=True)]
    executor = runners["fedax"].simulation.executor  # type: ignore[attr-defined]
    return {
        "workload": name,
        "title": task.title,
        "real data": task.real,
        "executor": f"{executor.name}, {executor.devices} devices, chunk {executor.chunk}",
        "fedax ms": [round(1e3 * f(times["fedax"]), 1) for f in (min, statistics.median, max)],
        "torch ms": [round(1e3 * f(times["torch"]), 1) for f in (min, statistics.median, max)],
        "times as fast": [round(f(ratios), 2) for f in (min, statistics.median, max)],
    }


def main() -> None:
    """Print and save the table."""
    import jax
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=["A", "B", "C"])
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    versions = {
        "fedax": fedax.__version__,
        "jax": jax.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    rows = []
    print(f"{'':3}{'fedax ms (min med max)':>28}{'torch ms':>28}{'times as fast':>22}   executor")
    for name in given.workloads:
        row = compare(name, given.repeats)
        rows.append(row)
        cells = [" ".join(f"{v:8.2f}" for v in row[k]) for k in ("fedax ms", "torch ms", "times as fast")]  # type: ignore[attr-defined]
        print(f"{name:3}{cells[0]:>28}{cells[1]:>28}{cells[2]:>22}   {row['executor']}", flush=True)
    saved = Path(__file__).parent / "results" / "speed.json"
    saved.parent.mkdir(exist_ok=True)
    saved.write_text(json.dumps({"versions": versions, "cores": len(jax.devices()), "rows": rows}, indent=1) + "\n")
    print(f"saved {saved.relative_to(Path.cwd()) if saved.is_relative_to(Path.cwd()) else saved}")


if __name__ == "__main__":
    main()
