"""Random kills over all methods that keep a state: does each run go on to the same bits?

    python benchmarks/kills.py [--kills 1000]      eight minutes
    python benchmarks/kills.py --real 1000         half an hour: every kill is a real one

A kill -9 leaves what the process had handed to the system, and nothing else of it. So a worker process that trains is
halted at a random moment (SIGSTOP, all its threads), the directory of its run is copied as it is, and the worker goes
on: the copy is what a SIGKILL at that moment would have left, at the price of a copy and not of a new process. Every
copy is resumed to its end and its models, shared and personal, and its history are compared bit by bit with those of a
run that was never stopped. Every tenth kill is a real SIGKILL of the worker, which is then started again; with --real
every one is, and no run is halted and copied alive.

States are kept on the devices and in a file in turn. Results are added to results/kills.json after every method, and a
method that is there already is not run again: the script may be stopped and started at any time. The two kinds of
session are kept apart, as "runs" and "real".
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np

import fedax
from fedax.algorithms import ALGORITHMS
from fedax.errors import FedaxError
from fedax.runs.files import write_json
from fedax.testing.problems import QUADRATIC, quadratics
from fedax.testing.targets import make
from fedax.vectors import Vector

RESULTS = Path(__file__).resolve().parent / "results" / "kills.json"
ROUNDS, REAL = 60, 10  # rounds of a run; every tenth kill is a real one
BUDGET = {"devices": None, "file": 400}  # bytes: the states of a cohort, and not of all


def stateful() -> list[str]:
    """The methods that keep something between rounds besides the shared model."""
    x0 = Vector(np.zeros(5, np.float32))
    found = []
    for name, cls in ALGORITHMS.items():
        method = make(cls)
        kept = jax.tree.leaves((method.client_init(x0), method.init(x0)))
        if len(kept) > 1 or method.personalised:
            found.append(name)
    return found


def train(name: str, kind: str, out: Path | None, **options: Any) -> Any:
    """One run of a method, with a checkpoint after every call of its program."""
    kept = {} if out is None else {"out": out, "checkpoint_every": 0.0, "state_budget": BUDGET[kind]}
    how = {"rounds": ROUNDS, "cohort": 3, "local_steps": 2, "eval_every": 5, "seed": 1, "protocol": False}
    return fedax.simulate(QUADRATIC, quadratics(seed=2)[0], make(ALGORITHMS[name]), **how, **kept, **options)


def work(name: str, kind: str, home: Path) -> None:
    """The worker: run after run, each in a new directory."""
    number = len(list(home.iterdir()))
    while True:
        train(name, kind, home / f"{number:06d}")
        shutil.rmtree(home / f"{number:06d}")
        number += 1


@contextlib.contextmanager
def worker(name: str, kind: str, home: Path) -> Any:
    """A worker process, ended with the block."""
    words = [sys.executable, __file__, "--work", name, kind, str(home)]
    quick = {**os.environ, "FEDAX_COMPILE_CACHE": "1"}  # what one has compiled serves the next
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=quick)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def begun(home: Path) -> Path | None:
    """The directory of the run under way, once it has a log."""
    found = sorted(path for path in home.iterdir() if (path / "metrics.jsonl").is_file())
    return found[-1] if found else None


def crash(process: Any, home: Path, image: Path, draw: random.Random, *, real: bool) -> bool:
    """Leave in `image` what a kill at a random moment leaves; False if no run was under way."""
    end = time.monotonic() + 120
    while begun(home) is None and time.monotonic() < end:
        time.sleep(0.002)
    if real and draw.random() < 0.8:  # a new process compiles for most of its first run
        while process.poll() is None and not list(home.glob("*/checkpoints/*.ckpt")) and time.monotonic() < end:
            time.sleep(0.002)
    time.sleep(draw.uniform(0, 0.25))
    process.send_signal(signal.SIGKILL if real else signal.SIGSTOP)
    if real:
        process.wait()
    else:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    here = begun(home)
    if here is not None:
        shutil.copytree(here, image)
    if real:
        shutil.rmtree(home)
        home.mkdir()
    else:
        process.send_signal(signal.SIGCONT)
    return here is not None


def same(one: Any, other: Any) -> bool:
    """Whether two results have the same bits; seconds are others."""
    models = [(one.model, other.model)]
    if other.has_personal:
        models += [(one.personal(i), other.personal(i)) for i in range(other.clients)]
    equal = all(np.array_equal(a, b) for pair in models for a, b in zip(*map(jax.tree.leaves, pair), strict=True))
    rows = ([{**row, "seconds": 0} for row in result.history] for result in (one, other))
    return equal and next(rows) == next(rows)


def kill_many(name: str, kind: str, kills: int, every: int) -> dict[str, Any]:
    """Kill a method's runs `kills` times, one of `every` by a real SIGKILL, and count how the runs went on."""
    never, draw, counted, wrong = train(name, "devices", None), random.Random(f"{name} {kind} {every}"), Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "work")
        home.mkdir()
        while counted["kills"] < kills:
            with worker(name, kind, home) as process:
                alive = True
                while alive and counted["kills"] < kills:
                    image, real = Path(folder, "image"), counted["kills"] % every == every - 1
                    alive = not real
                    if not crash(process, home, image, draw, real=real):
                        continue
                    counted["kills"] += 1
                    counted["real"] += real
                    counted["with a checkpoint"] += bool(list(image.glob("checkpoints/*.ckpt")))
                    try:
                        good = same(train(name, kind, image, resume=True), never)
                    except FedaxError as error:
                        good, _ = False, wrong.append(str(error))
                    counted["same bits"] += good
                    shutil.rmtree(image)
    return {"method": name, "states": kind, **counted, "errors": wrong[:5]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=1000, help="over all methods")
    parser.add_argument("--real", type=int, default=0, help="only real SIGKILLs: their number over all methods")
    parser.add_argument("--only", default="", help="methods, with commas between; nothing is saved")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    fedax.configure()  # before JAX's first use: the worker and who resumes have the same devices
    if asked.work:
        work(asked.work[0], asked.work[1], Path(asked.work[2]))
    names = asked.only.split(",") if asked.only else stateful()
    saved = json.loads(RESULTS.read_text()) if RESULTS.is_file() and not asked.only else {}
    saved["versions"] = {"fedax": fedax.__version__, "jax": jax.__version__}
    done, every = saved.setdefault("real" if asked.real else "runs", []), 1 if asked.real else REAL
    each = -(-(asked.real or asked.kills) // (2 * len(names)))
    for name in names:
        for kind in BUDGET:
            if any((row["method"], row["states"]) == (name, kind) for row in done):
                continue
            began = time.monotonic()
            done.append({**kill_many(name, kind, each, every), "seconds": round(time.monotonic() - began, 1)})
            print(done[-1], flush=True)
            if not asked.only:
                write_json(RESULTS, saved)
    kills, good = (sum(row.get(key, 0) for row in done) for key in ("kills", "same bits"))
    print(f"{good} of {kills} runs went on to the same bits, over {len({row['method'] for row in done})} methods")


if __name__ == "__main__":
    main()
