"""What a stateful round costs, part by part: from FedAvg to SCAFFOLD on workload A, one part at a time, in turn.

    python benchmarks/state_traffic.py [--repeats 11]      (FEDAX_DATA for real data)

Each method does all that the one above does and one thing more. Medians and quartiles of a round's time over
FedAvg's in the same repeat are printed and saved in results/state_traffic.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fedax
from benchmarks.speed import clocked, quartiles, rounds_of, simulation
from benchmarks.workloads import workload
from fedax.algorithms import FedAvg
from fedax.algorithms.base import algorithm
from fedax.vectors import zeros

RESULTS = Path(__file__).resolve().parent / "results" / "state_traffic.json"
ROUNDS = 30


@algorithm
class Shifted(FedAvg):
    """FedAvg with one vector, the same for all clients, added to every local step's gradient."""

    def init(self, x0: Any) -> Any:
        return x0, zeros(x0)

    def broadcast(self, server: Any) -> Any:
        return server

    def begin(self, message: Any, state: Any, ctx: Any) -> Any:
        return message[0]

    def step(self, y: Any, oracle: Any, message: Any, state: Any, ctx: Any) -> Any:
        return y - self.lr * (oracle.grad(y) + message[1])

    def finish(self, y: Any, oracle: Any, message: Any, state: Any, ctx: Any) -> Any:
        return y - message[0], state

    def update(self, server: Any, upload: Any, ctx: Any) -> Any:
        return server[0] + upload, server[1]

    def model(self, server: Any) -> Any:
        return server[0]


@algorithm
class OwnShift(Shifted):
    """The vector is the client's own, read from its state."""

    def client_init(self, x0: Any) -> Any:
        return zeros(x0)

    def step(self, y: Any, oracle: Any, message: Any, c_i: Any, ctx: Any) -> Any:
        return y - self.lr * (oracle.grad(y) + (message[1] - c_i))


@algorithm
class Written(OwnShift):
    """The state is written too, once a round."""

    def finish(self, y: Any, oracle: Any, message: Any, c_i: Any, ctx: Any) -> Any:
        x, c = message
        return y - x, c_i - c + (x - y) / (ctx.steps * self.lr)


PARTS = {
    "FedAvg": FedAvg,
    "+ a vector in every local step": Shifted,
    "+ of the client's own": OwnShift,
    "+ written once a round": Written,
    "+ sent: SCAFFOLD": fedax.SCAFFOLD,
}


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description="What a stateful round costs, part by part.")
    parser.add_argument("--repeats", type=int, default=11)
    repeats = parser.parse_args().repeats
    task = workload("A")
    who = {name: clocked(rounds_of(simulation(task, method(lr=task.lr)))) for name, method in PARTS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in who}
    for repeat in range(repeats + 1):
        for name, train in who.items():
            took = train(ROUNDS) / ROUNDS
            if repeat:  # the first compiles
                seconds[name].append(took)
    table = {}
    for name, took in seconds.items():
        times = quartiles([t / a for t, a in zip(took, seconds["FedAvg"], strict=True)])
        table[name] = {"ms a round": quartiles([1e3 * t for t in took]), "times FedAvg's": times}
        print(f"{name:32} {table[name]['ms a round'][1]:6.2f} ms   {times[1]:.2f} ({times[0]:.2f} to {times[2]:.2f})")
    RESULTS.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
