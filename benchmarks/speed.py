"""How fast Fedax is: the same work by Fedax, by hand-tuned JAX and by a PyTorch loop, interleaved in one run.

    python benchmarks/speed.py [--only A,B] [--rounds 5] [--repeats 9]      (FEDAX_DATA for real data)

Each repeat times some rounds of each in turn, so that all meet the same machine, with a pause before each. What counts
is the ratio within a repeat, another's seconds a round over Fedax's: above 1 Fedax is the faster. Its median and
quartiles are printed and saved in results/speed.json, with the versions; workloads that are not asked for keep the
rows they have there, and with --rounds, for a short look, nothing is saved. Before it is timed, the hand-tuned program
is checked to do Fedax's arithmetic. The workloads are described in workloads.py; "methods" are A, D and P by Fedax
alone, in turn, to tell what a method costs beside FedAvg; G is a grid of 49 pairs of rates for
FedDualAvg on the thesis' Lasso, 500 rounds each, of which the wall time is taken once.
"""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fedax
from benchmarks.peers import Runner, clocked
from benchmarks.workloads import WORKLOADS, Workload, workload
from fedax.models import model

PAUSE = 0.5  # seconds before each timing: idle threads of the other library may spin for a while
# Of Fedax a repeat, for repeats that last; at most as many as one call runs.
ROUNDS = {"A": 30, "B": 60, "C": 1, "D": 30, "P": 15, "R": 1}
SLOW = 5  # others get a fifth of the rounds, and no more than fit into
LONG = 2.0  # seconds
# Absolute, and as a share of what the round moved: in a deep network a rounding that moves one ReLU grows.
TOLERANCE = {"R": (5e-3, 0.05)}
RESULTS = Path(__file__).resolve().parent / "results" / "speed.json"


def simulation(task: Workload, method: Any = None, problem: fedax.Problem | None = None) -> Any:
    """The workload as a Fedax simulation that could go on for ever; with another method or problem if one is given."""
    start, stop = (task.offsets[a:b].astype("int64") for a, b in ((None, -1), (1, None)))
    rows, none = fedax.data.Rows(start, stop - start), fedax.data.Rows(start, 0 * start)
    return fedax.Simulation(
        problem or fedax.Problem(model(task.model, outputs=task.outputs, **task.options), loss=task.loss),
        fedax.Federation({"x": task.x, "y": task.y}, rows, none, none),
        method or getattr(fedax, task.method)(lr=task.lr),
        rounds=10**6,
        cohort=task.cohort,
        local_steps=task.steps,
        batch_size=task.batch,
        protocol=False,
    )


def rounds_of(ours: Any) -> Callable[[int], None]:
    """A function that runs a number of further rounds of a simulation."""

    def train(count: int) -> None:
        assert ours.advance(count)

    return train


def runners(task: Workload, rounds: int) -> tuple[dict[str, Runner], dict[str, Any]]:
    """Who runs the workload, and what else is to be said of it."""
    from benchmarks import hand_tuned, torch_loops

    ours = simulation(task)
    program = hand_tuned.Program(task, ours.prepared.x0.tree, rounds)
    apart = hand_tuned.check(program, ours, *TOLERANCE.get(task.name, (1e-4, 0.01)))
    one_round = torch_loops.federation(task)

    def by_torch(count: int) -> None:
        for _ in range(count):
            one_round()

    who = {"fedax": clocked(rounds_of(ours)), "hand-tuned": clocked(program.advance), "torch": clocked(by_torch)}
    e = ours.prepared.executor
    about = {"executor": f"{e.name}, {e.devices} devices, chunk {e.chunk}", "hand-tuned apart by": apart}
    return who, about


def compare(name: str, rounds: int | None, repeats: int) -> dict[str, Any]:
    """One workload's row of the table."""
    task = workload(name)
    count = rounds or ROUNDS[name]
    who, about = runners(task, count)
    counts = {}
    seconds: dict[str, list[float]] = {w: [] for w in who}
    for w, train in who.items():
        train(1)
        fits = int(LONG / train(1))
        counts[w] = count if w in ("fedax", "hand-tuned") else max(1, min(count // SLOW, fits))
        train(counts[w])
    for _ in range(repeats):
        for w, train in who.items():
            time.sleep(PAUSE)
            seconds[w].append(train(counts[w]) / counts[w])
    ratios = {
        w: quartiles([t / f for t, f in zip(took, seconds["fedax"], strict=True)])
        for w, took in seconds.items()
        if w != "fedax"
    }
    milliseconds = {w: quartiles([1e3 * t for t in took]) for w, took in seconds.items()}
    return {
        "workload": name,
        "title": task.title,
        "real data": task.real,
        "rounds a repeat": counts,
        **about,
        "ms a round": milliseconds,
        "times Fedax's": ratios,
    }


def methods(rounds: int | None, repeats: int) -> dict[str, Any]:
    """A, D and P by Fedax in turn: what a round of SCAFFOLD and of APFL takes, in rounds of FedAvg."""
    who = {name: clocked(rounds_of(simulation(workload(name)))) for name in ("A", "D", "P")}
    seconds: dict[str, list[float]] = {name: [] for name in who}
    for repeat in range(repeats + 1):
        for name, train in who.items():
            count = rounds or ROUNDS[name]
            took = train(count) / count
            if repeat:  # the first compiles
                seconds[name].append(took)
    ratios = {n: quartiles([t / a for t, a in zip(seconds[n], seconds["A"], strict=True)]) for n in ("D", "P")}
    milliseconds = {n: quartiles([1e3 * t for t in took]) for n, took in seconds.items()}
    return {"workload": "methods", "ms a round": milliseconds, "times A's": ratios}


def quartiles(values: list[float]) -> list[float]:
    """Lower quartile, median, upper quartile."""
    if len(values) == 1:
        return [round(values[0], 3)] * 3
    return [round(v, 3) for v in statistics.quantiles(values, n=4, method="inclusive")]


def lasso_grid(rounds: int | None) -> dict[str, Any]:
    """Workload G: seconds of the whole sweep, compilation and evaluations included."""
    problem = fedax.Problem(
        model("linear", outputs=1), loss="mse", regularizer=fedax.regularizers.L1(strength=0.12, on="kernel")
    )
    federation = fedax.data.divided("lasso", preset="thesis-II")
    pairs = fedax.grid(
        fedax.FedDualAvg(lr=0.001),
        {"lr": [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0], "server_lr": [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0]},
    )
    began = time.perf_counter()
    done = rounds or 500
    fedax.sweep(problem, federation, pairs, rounds=done, cohort=10, local_epochs=1, batch_size=10, eval_every=5)
    took = time.perf_counter() - began
    title = "49 pairs of rates of FedDualAvg on the thesis' Lasso II"
    return {"workload": "G", "title": title, "rounds": done, "seconds": round(took, 1)}


BESIDES = {"methods": methods, "G": lambda rounds, repeats: lasso_grid(rounds)}


def versions() -> dict[str, str]:
    """Of what took part."""
    found = {"python": platform.python_version()}
    for package in ("fedax", "jax", "jaxlib", "flax", "numpy", "torch"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def show(row: dict[str, Any]) -> None:
    """A row as lines of text."""
    if row["workload"] == "methods":
        for name, (low, middle, high) in row["times A's"].items():
            print(f"{name}  {middle:.2f} times A's ({low:.2f} to {high:.2f}), the two in turn", flush=True)
        return
    if row["workload"] == "G":
        print(f"G  {row['title']}, {row['rounds']} rounds: {row['seconds']} s", flush=True)
        return
    low, middle, high = row["ms a round"]["fedax"]
    print(f"{row['workload']}  {row['title']}: {middle:.1f} ms a round ({low:.1f} to {high:.1f}), {row['executor']}")
    for who, (low, middle, high) in row["times Fedax's"].items():
        print(f"     {who:12} {middle:8.2f} times Fedax's ({low:.2f} to {high:.2f})")
    sys.stdout.flush()


def main() -> None:
    """Print and save the table."""
    names = [*WORKLOADS, "methods", "G"]
    parser = argparse.ArgumentParser(description="Fedax, hand-tuned JAX and PyTorch, side by side.")
    parser.add_argument("--only", default=",".join(names), help="workloads, such as A,B")
    parser.add_argument("--rounds", type=int, help="rounds of Fedax a repeat, and of G; by default by workload")
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    chosen = given.only.split(",")
    if unknown := set(chosen) - set(names):
        parser.error(f"no workload {', '.join(sorted(unknown))}: there are {', '.join(names)}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    machine = {"versions": versions(), "cores": cores, "repeats": given.repeats}
    table = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    for name in chosen:
        row = BESIDES.get(name, functools.partial(compare, name))(given.rounds, given.repeats)
        show(row)
        table[name] = {**row, **machine}
        if given.rounds is None:
            RESULTS.parent.mkdir(exist_ok=True)
            RESULTS.write_text(json.dumps({name: table[name] for name in names if name in table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
