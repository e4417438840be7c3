"""What checkpoints and evaluations cost beside training, on workload A, and on D and P, whose clients have states.

    python benchmarks/checkpoints.py [--only A,D] [--rounds 64] [--repeats 7]      (FEDAX_DATA for real data)

Each repeat times some rounds, one evaluation on ten thousand test rows, as many as MNIST has, and one checkpoint, in
turn. There are enough rounds between two checkpoints for nearly every client to take part, so that nearly every state
is written, as it is after a minute of training. A checkpoint's share is its time over a minute; an evaluation's share
is its time over that of the rounds between two at the default cadence of an experiment file, which depends on how many
rounds there are in all. Medians and quartiles are printed and saved in results/checkpoints.json; with --rounds, for a
short look, nothing is saved.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fedax
from benchmarks.speed import quartiles, versions
from benchmarks.workloads import Workload, workload
from fedax.experiments import parse
from fedax.models import model

RESULTS = Path(__file__).resolve().parent / "results" / "checkpoints.json"
ROUNDS, TEST_ROWS, MINUTE = 64, 10_000, 60.0
LENGTHS = (100, 500, 2_000)  # rounds of a whole experiment


def simulation(task: Workload, out: str) -> Any:
    """The workload with test rows and a directory for its checkpoints; the test rows are training rows once more."""
    again = np.random.default_rng(1).integers(0, len(task.x), TEST_ROWS)
    arrays = {"x": np.concatenate([task.x, task.x[again]]), "y": np.concatenate([task.y, task.y[again]])}
    start, stop = (task.offsets[a:b].astype("int64") for a, b in ((None, -1), (1, None)))
    ends = np.linspace(len(task.x), len(task.x) + TEST_ROWS, task.clients + 1).astype("int64")
    train, none = fedax.data.Rows(start, stop - start), fedax.data.Rows(start, 0 * start)
    return fedax.Simulation(
        fedax.Problem(model(task.model, outputs=task.outputs, **task.options), loss=task.loss),
        fedax.Federation(arrays, train, none, fedax.data.Rows(ends[:-1], np.diff(ends))),
        getattr(fedax, task.method)(lr=task.lr),
        rounds=10**6,
        cohort=task.cohort,
        local_steps=task.steps,
        batch_size=task.batch,
        protocol=False,
        out=out,
        checkpoint_every=MINUTE,
    )


def cadence(rounds: int) -> int:
    """Rounds between two evaluations where an experiment file does not say."""
    table = {"data": {"name": "mnist"}, "model": {"name": "mlp"}, "algorithm": {"name": "FedAvg", "lr": 0.1}}
    return int(parse({"rounds": rounds, **table}).eval_every or 1)


def measure(name: str, rounds: int, repeats: int) -> dict[str, Any]:
    """One workload's row."""
    task = workload(name)
    seconds: dict[str, list[float]] = {"round": [], "evaluation": [], "checkpoint": []}
    with tempfile.TemporaryDirectory() as folder:
        run = simulation(task, folder)
        run.begin()

        def train() -> None:
            assert run.advance(rounds)

        parts = {"round": train, "evaluation": run.record, "checkpoint": run.checkpoints.save}
        for repeat in range(repeats + 1):  # the first compiles, and is left out
            for part, work in parts.items():
                began = time.perf_counter()
                work()
                if repeat:
                    seconds[part].append((time.perf_counter() - began) / (rounds if part == "round" else 1))
        size = sum(path.stat().st_size for path in (Path(folder) / "checkpoints").iterdir())
    took = {part: quartiles([1e3 * s for s in of]) for part, of in seconds.items()}
    each = [e / r for e, r in zip(seconds["evaluation"], seconds["round"], strict=True)]
    return {
        "workload": name,
        "title": task.title,
        "real data": task.real,
        "ms": took,
        "MB on disk": round(size / 1e6, 1),
        "checkpoints at one a minute, %": quartiles([100 * s / MINUTE for s in seconds["checkpoint"]]),
        "an evaluation in rounds": quartiles(each),
        "evaluations, % of training": {str(n): quartiles([100 * e / cadence(n) for e in each]) for n in LENGTHS},
    }


def show(row: dict[str, Any]) -> None:
    """A row as lines of text."""
    took = ", ".join(f"{part} {ms[1]:.1f} ms" for part, ms in row["ms"].items())
    print(f"{row['workload']}  {row['title']}: {took}")
    _, middle, high = row["checkpoints at one a minute, %"]
    print(f"     checkpoints, one a minute: {middle:.2f} % of the time (to {high:.2f}), {row['MB on disk']} MB on disk")
    for rounds, (low, middle, high) in row["evaluations, % of training"].items():
        every = cadence(int(rounds))
        print(f"     {rounds} rounds, evaluated every {every}: {middle:.1f} % of training ({low:.1f} to {high:.1f})")


def main() -> None:
    """Print and save the table."""
    parser = argparse.ArgumentParser(description="The cost of checkpoints and evaluations beside training.")
    parser.add_argument("--only", default="A,D,P", help="workloads, such as A,D")
    parser.add_argument("--rounds", type=int, help="between two checkpoints")
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    table = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    for name in given.only.split(","):
        row = measure(name, given.rounds or ROUNDS, given.repeats)
        show(row)
        table[name] = {**row, "versions": versions(), "cores": cores}
    if given.rounds is None:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(table, indent=1) + "\n")
        print(f"saved benchmarks/results/{RESULTS.name}")


if __name__ == "__main__":
    main()
