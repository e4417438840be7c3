"""One run over 1, 2 and 4 processes of this machine: what each holds in memory, and seconds a round.

    python benchmarks/processes.py [--turns 3]

SCAFFOLD with a small perceptron on 6,000 clients with 100 rows of 784 numbers, which all processes map from one file;
every client has a state of the model's size. The numbers of processes are measured in turn. "held" is what the rows and
the states take on a process' devices, counted from the arrays themselves; "memory" is what the system counts as the
process' own (pages that are no file's), above that of a process that has only imported Fedax and found the others. The
most that any process has is shown. The figures are saved in results/processes.json and written into
docs/performance.md.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
SAVED = HERE / "results" / "processes.json"
PAGE = HERE.parent / "docs" / "performance.md"
CLIENTS, ROWS, FEATURES, CLASSES = 6_000, 100, 784, 10
WORK = {"cohort": 40, "local_steps": 10, "batch_size": 20, "eval_every": 1_000, "rounds": 1_000}
ROUNDS, REPEATS = 10, 5
SIZES = [(1, 1), (1, 2), (2, 1), (4, 1)]  # processes, and devices of each


def own_memory() -> float:
    """Megabytes of this process that are no file's."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1e3


def held(arrays: Any) -> float:
    """Megabytes that arrays take on this process' devices."""
    import jax

    return sum(shard.data.nbytes for array in jax.tree.leaves(arrays) for shard in array.addressable_shards) / 1e6


def make(folder: Path) -> None:
    """The rows of all clients, in two files."""
    rng = np.random.default_rng(0)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (CLIENTS * ROWS, FEATURES))
    centres = rng.normal(size=(CLASSES, FEATURES)).astype(np.float32)
    y = rng.integers(CLASSES, size=CLIENTS * ROWS)
    for first in range(0, len(y), 10_000):
        some = y[first : first + 10_000]
        x[first : first + len(some)] = centres[some] + 3 * rng.standard_normal((len(some), FEATURES), np.float32)
    x.flush()
    np.save(folder / "y.npy", y.astype(np.int32))


def measure(folder: Path) -> dict[str, Any]:
    """The figures of this process, and what the run has made after some rounds."""
    import jax

    import fedax
    from fedax.data.federation import Rows

    fedax.configure()
    jax.block_until_ready(jax.numpy.zeros(1) + 1)
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("x", "y")}
    every, none = np.arange(CLIENTS), np.zeros(CLIENTS, np.int64)
    train, test = Rows(every * ROWS, none + 80), Rows(every * ROWS + 80, none + 20)
    federation = fedax.Federation(arrays, train, Rows(none, none), test)
    problem = fedax.Problem(fedax.models.model("mlp", outputs=CLASSES, hidden=(32,)), loss="cross_entropy")
    gc.collect()
    bare = own_memory()
    run = fedax.Simulation(problem, federation, fedax.SCAFFOLD(lr=0.05), **WORK)
    took = []
    for _ in range(1 + REPEATS):
        began = time.perf_counter()
        assert run.advance(ROUNDS)
        jax.block_until_ready(run.state.server)
        took.append((time.perf_counter() - began) / ROUNDS)
    row = run.record()
    gc.collect()
    data: Any = run.prepared.data
    return {
        "ms a round": [round(1e3 * s, 2) for s in took[1:]],
        "rows MB": round(held(getattr(data, "near", data).arrays), 1),
        "states MB": round(held(run.state.clients), 1),
        "memory MB": round(own_memory() - bare),
        "test_loss": row["test_loss"],
        "executor": f"{run.prepared.executor.name}, chunks of {run.prepared.executor.chunk}",
    }


def together(folder: Path, processes: int, devices: int) -> dict[str, Any]:
    """`measure` in several processes, the most that any of them has."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    known = {**os.environ, "FEDAX_DEVICES": str(devices), "FEDAX_MEMORY_BUDGET": str(4 << 30)}
    if processes > 1:
        known |= {"FEDAX_COORDINATOR": address, "FEDAX_PROCESSES": str(processes)}
    started = [
        subprocess.Popen(
            [sys.executable, __file__, "--one", str(folder)],
            env={**known, **({"FEDAX_PROCESS": str(number)} if processes > 1 else {})},
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    found = [json.loads(process.communicate()[0].splitlines()[-1]) for process in started]
    most = {key: max(each[key] for each in found) for key in ("rows MB", "states MB", "memory MB")}
    return {"processes": processes, "devices": devices, **found[0], **most}


def summed_up(turns: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """One row for each size, from those of all turns; times are those of the first of their turn."""
    rows = []
    for same in zip(*turns, strict=True):
        middle = [statistics.median(row["ms a round"]) for row in same]
        times = [m / statistics.median(turn[0]["ms a round"]) for m, turn in zip(middle, turns, strict=True)]
        every = [ms for row in same for ms in row["ms a round"]]
        rows.append(
            {
                **same[-1],
                "ms a round": [min(every), round(statistics.median(middle), 2), max(every)],
                "times": [round(t, 3) for t in (min(times), statistics.median(times), max(times))],
                "memory MB": max(row["memory MB"] for row in same),
                "difference": max(abs(row["test_loss"] / turns[0][0]["test_loss"] - 1) for row in same),
            }
        )
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table for the documentation."""
    head = ["processes", "devices of each", "rows held, MB", "states held, MB", "memory, MB", "of one process'"]
    head += ["ms a round", "times the first"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        low, middle, high = row["ms a round"]
        times = "1" if row is rows[0] else "{1:.2f} ({0:.2f} to {2:.2f})".format(*row["times"])
        cells = [row["processes"], row["devices"], f"{row['rows MB']:.0f}", f"{row['states MB']:.0f}"]
        cells += [f"{row['memory MB']:,}", f"{row['memory MB'] / rows[0]['memory MB']:.2f}"]
        lines.append(f"| {' | '.join(map(str, cells))} | {middle:.3g} ({low:.3g} to {high:.3g}) | {times} |")
    return "\n".join(lines) + "\n"


def publish(rows: list[dict[str, Any]]) -> None:
    """Save the figures, and put the table between the marks in the documentation."""
    SAVED.parent.mkdir(exist_ok=True)
    SAVED.write_text(json.dumps(rows, indent=1) + "\n")
    shown = f"<!-- processes -->\n{markdown(rows)}<!-- /processes -->"
    page, found = re.subn("<!-- processes -->.*<!-- /processes -->", lambda _: shown, PAGE.read_text(), flags=re.DOTALL)
    assert found == 1, "docs/performance.md must have the marks once"
    PAGE.write_text(page)


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description="Memory and seconds a round over 1, 2 and 4 processes.")
    parser.add_argument("--turns", type=int, default=3, help="how often each number of processes is measured")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one)))
        return
    turns = []
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        for _ in range(given.turns):
            turns.append([together(Path(folder), *size) for size in SIZES])
            print(json.dumps([[row["ms a round"], row["memory MB"]] for row in turns[-1]]), flush=True)
    rows = summed_up(turns)
    print(markdown(rows))
    print("the test loss differs from one process' by at most", max(row["difference"] for row in rows))
    publish(rows)
    print("saved benchmarks/results/processes.json and docs/performance.md")


if __name__ == "__main__":
    main()
