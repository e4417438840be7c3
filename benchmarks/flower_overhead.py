"""Seconds a round over Flower minus the local work, and what keeping the client's process is worth.

    python benchmarks/flower_overhead.py [--rounds 10] [--clients 4]

A SuperLink and SuperNodes are started on this machine, once with a process for each message (Flower's default,
`--isolation subprocess`) and once with one that is kept (`--isolation process` and `fedax flower worker`). The local
work is a client's round in a process that has done one before, times the clients that share a core. The least that
Flower takes is its SuperNodes' own pause of up to 3 s between two looks for a message. Medians are printed and saved in
results/flower_overhead.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from fedax.flower.agreement import Setting, setting_of
from fedax.flower.app_folder import new
from fedax.flower.messages import Order, flatten
from fedax.flower.rows import own_rows
from fedax.flower.worker import Worker
from flower_federation import Federation

RESULTS = Path(__file__).resolve().parent / "results" / "flower_overhead.json"
EXPERIMENT = """
name = "overhead"
rounds = {rounds}
local_steps = 10
batch_size = 20
eval_every = {rounds}
data = {{ name = "digits", partition = {{ name = "IID", clients = {clients} }} }}
model = {{ name = "mlp", hidden = [64] }}
algorithm = {{ name = "SCAFFOLD", lr = 0.1 }}
"""
ROUND = re.compile(r"^(\S+ \S+) INFO round (\d+): ", re.MULTILINE)


def local_work(setting: Setting, folder: Path) -> float:
    """Seconds of a client's round, its state on disk included."""
    worker = Worker(setting, 0, own_rows(setting, 0, None, {}), folder)
    sent = flatten(setting.algorithm.broadcast(setting.algorithm.init(worker.x0)))
    took = []
    for round in range(20):
        began = time.perf_counter()
        used = round  # the state of the round before
        worker.carry_out(Order("run", 1, round, used, worker.steps, setting.fingerprint, broadcast=sent))
        took.append(time.perf_counter() - began)
    return statistics.median(took[1:])


def over_flower(folder: Path, app: Path, clients: int, *, kept: bool) -> list[float]:
    """Seconds of each round but the first, in which programs are compiled."""
    out = folder / "out"
    with Federation(folder, kept=kept) as federation:
        for client in range(clients):
            federation.start_node(client)
        federation.run(app, out=str(out))
        federation.finish(out, 3600)
    ends = [datetime.fromisoformat(at.replace(",", ".")) for at, _ in ROUND.findall((out / "network.log").read_text())]
    return [(b - a).total_seconds() for a, b in itertools.pairwise(ends)]


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description="Seconds a round over Flower.")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--clients", type=int, default=4)
    asked = parser.parse_args()
    table: dict[str, object] = {"clients": asked.clients, "rounds": asked.rounds, "cores": os.cpu_count()}
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        (root / "overhead.toml").write_text(EXPERIMENT.format(rounds=asked.rounds, clients=asked.clients))
        new(root / "app", root / "overhead.toml")
        once = local_work(setting_of(root / "overhead.toml", {}), root / "states")
        work = once * -(-asked.clients // (os.cpu_count() or 1))
        table["local work"] = round(work, 4)
        print(f"{'local work':24} {work:8.3f} s a round", flush=True)
        for name, kept in (("a process a message", False), ("a process kept", True)):
            took = over_flower(root / name.replace(" ", "-"), root / "app", asked.clients, kept=kept)
            low, middle, high = (round(f(took), 2) for f in (min, statistics.median, max))
            table[name] = {"seconds": [low, middle, high], "overhead": round(middle - work, 2)}
            print(
                f"{name:24} {middle:8.2f} s a round ({low} to {high}), {middle - work:.2f} s beyond the work",
                flush=True,
            )
    table["load"] = round(os.getloadavg()[0], 1)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
