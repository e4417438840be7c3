"""What a stateful round costs, part by part: from FedAvg to SCAFFOLD on workload A, one part at a time, in turn.

    python benchmarks/state_traffic.py [--repeats 11]      (FEDAX_DATA for real data)

Each method does all that the one above does and one thing more. Medians and quartiles of a round's time over
FedAvg's in the same repeat are printed and saved in results/state_traffic.json; the last of them leaves out the norms
of uploads and of changes of state, which a run reports. Beside them the bare ways of a cohort's states on two devices,
without any training: into the table of all clients that each device has, as the engine writes them; into one of the two
tables; from one device to the other; and the way of a single state from one table into the other, once a round, which a
client would need whose state lies on the device that does not train it. Last, the vectors alone: a round's local steps
on both cores with nothing but y - a (y + s), where s is a number, one vector for all clients, or the client's own: that
is what memory lets a step with one more vector take.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import fedax
from benchmarks.speed import clocked, quartiles, rounds_of, simulation
from benchmarks.workloads import workload
from fedax.algorithms import FedAvg
from fedax.algorithms.base import algorithm
from fedax.vectors import zeros

RESULTS = Path(__file__).resolve().parent / "results" / "state_traffic.json"
ROUNDS = 30


@algorithm
class Kept(FedAvg):
    """FedAvg whose clients keep a vector that no step reads: it is read from the table and written back as it was."""

    def client_init(self, x0: Any) -> Any:
        return zeros(x0)

    def finish(self, y: Any, oracle: Any, message: Any, c_i: Any, ctx: Any) -> Any:
        return y - message, c_i


@algorithm
class Shifted(Kept):
    """One vector, the same for all clients, is added to every local step's gradient."""

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
    """From that vector the client's own is taken away."""

    def step(self, y: Any, oracle: Any, message: Any, c_i: Any, ctx: Any) -> Any:
        return y - self.lr * (oracle.grad(y) + (message[1] - c_i))


@algorithm
class Written(OwnShift):
    """The state that is written back is a new one."""

    def finish(self, y: Any, oracle: Any, message: Any, c_i: Any, ctx: Any) -> Any:
        x, c = message
        return y - x, c_i - c + (x - y) / (ctx.steps * self.lr)


PARTS = {
    "FedAvg": FedAvg,
    "+ a state, written back as it was": Kept,
    "+ a vector in every local step": Shifted,
    "+ less the client's own": OwnShift,
    "+ the state is a new one": Written,
    "+ its change is sent: SCAFFOLD": fedax.SCAFFOLD,
}
UNMEASURED = "SCAFFOLD without the norms that a run reports"


def ways(repeats: int, clients: int = 100, cohort: int = 10, rounds: int = 20) -> dict[str, list[float]]:
    """Milliseconds a round that states of workload A's size take to be written, and to travel."""
    mesh = Mesh(np.array(jax.devices()[:2]), ("clients",))
    same, spread = P(), P("clients")
    shapes = [(784, 200), (200,), (200, 200), (200,), (200, 10), (10,)]
    who = np.arange(cohort) * 7 % clients

    def both(tables: Any, new: Any, r: Any) -> Any:
        return [t.at[(who + r) % clients].set(v + r, mode="drop") for t, v in zip(tables, new, strict=True)]

    def on_each_device(part: Any) -> Any:
        specs = {"in_specs": (same, spread, same), "out_specs": same, "check_vma": False}
        return jax.shard_map(part, mesh=mesh, **specs)

    @on_each_device
    def one(tables: Any, new: Any, r: Any) -> Any:
        first = jax.lax.axis_index("clients") * (cohort // 2)

        def write(j: Any, tables: Any) -> Any:
            at = (jnp.asarray(who)[first + j] + r) % clients
            return [jax.lax.dynamic_update_index_in_dim(t, v[j] + r, at, 0) for t, v in zip(tables, new, strict=True)]

        return jax.lax.fori_loop(0, cohort // 2, write, tables)

    @on_each_device
    def travel(tables: Any, new: Any, r: Any) -> Any:
        there = [jax.lax.ppermute(v + r, "clients", [(0, 1), (1, 0)]) for v in new]
        return [t.at[0, 0].add(v.ravel()[0]) for t, v in zip(tables, there, strict=True)]

    @on_each_device
    def visit(tables: Any, new: Any, r: Any) -> Any:
        here, there = jax.lax.axis_index("clients") == r % 2, (7 * r + 3) % clients
        own = [jax.lax.dynamic_index_in_dim(t, there, 0, keepdims=False) for t in tables]
        seen = [jax.lax.ppermute(v, "clients", [(0, 1), (1, 0)]) for v in own]
        at = jnp.where(here, (5 * r + 1) % clients, clients)  # the other device writes nothing
        return [t.at[at].set(v, mode="drop") for t, v in zip(tables, seen, strict=True)]

    def program(way: Any) -> Any:
        def run(tables: Any, new: Any) -> Any:
            return jax.lax.fori_loop(0, rounds, lambda r, t: way(t, new, r), tables)

        return jax.jit(run, donate_argnums=0)

    tables = jax.device_put([np.zeros((clients, *s), np.float32) for s in shapes], NamedSharding(mesh, same))
    new = jax.device_put([np.ones((cohort, *s), np.float32) for s in shapes], NamedSharding(mesh, spread))
    programs = {"written to both tables": both, "written to one": one, "to the other device": travel}
    programs["one state, as it is needed there"] = visit
    found: dict[str, list[float]] = {name: [] for name in programs}
    made = {name: program(way) for name, way in programs.items()}
    for repeat in range(repeats + 1):
        for name, run in made.items():
            began = time.perf_counter()
            tables = jax.block_until_ready(run(tables, new))
            if repeat:  # the first compiles
                found[name].append(1e3 * (time.perf_counter() - began) / rounds)
    return {name: quartiles(took) for name, took in found.items()}


SHIFTS = ("a number", "one vector for all", "a vector of the client's own")


def vectors(repeats: int, clients: int = 100, cohort: int = 10, steps: int = 20, rounds: int = 20) -> dict[str, Any]:
    """Milliseconds a round of local steps y - a (y + s) on vectors of workload A's size, and nothing else."""
    mesh = Mesh(np.array(jax.devices()[:2]), ("clients",))
    size = 784 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10
    who = jnp.asarray(np.arange(cohort) * 7 % clients)

    def program(shift: str) -> Any:
        def on_device(y: Any, table: Any) -> Any:
            first = jax.lax.axis_index("clients") * (cohort // 2)

            def client(place: Any, total: Any) -> Any:
                r, j = place // (cohort // 2), place % (cohort // 2)
                at = (who[first + j] + r) % clients if shift == SHIFTS[2] else 0
                s = table[at, 0] if shift == SHIFTS[0] else jax.lax.dynamic_index_in_dim(table, at, 0, keepdims=False)
                start = y + jnp.float32(1e-6) * place.astype(jnp.float32)
                return total + jax.lax.fori_loop(0, steps, lambda _, v: v - jnp.float32(1e-3) * (v + s), start)

            return jax.lax.fori_loop(0, rounds * (cohort // 2), client, jnp.zeros_like(y))[None]

        specs = {"in_specs": (P(), P()), "out_specs": P("clients"), "check_vma": False}
        return jax.jit(jax.shard_map(on_device, mesh=mesh, **specs))

    everywhere = NamedSharding(mesh, P())
    y = jax.device_put(np.ones(size, np.float32), everywhere)
    table = jax.device_put(np.ones((clients, size), np.float32), everywhere)
    found: dict[str, list[float]] = {shift: [] for shift in SHIFTS}
    made = {shift: program(shift) for shift in SHIFTS}
    for repeat in range(repeats + 1):
        for shift, run in made.items():
            began = time.perf_counter()
            jax.block_until_ready(run(y, table))
            if repeat:  # the first compiles
                found[shift].append(1e3 * (time.perf_counter() - began) / rounds)
    more = np.subtract(found[SHIFTS[2]], found[SHIFTS[0]]) / (steps * cohort / 2)  # ms of a step of one core
    return {shift: quartiles(took) for shift, took in found.items()} | {
        "GB/s a core of the client's own vector": quartiles((4e-6 * size / np.maximum(more, 1e-9)).tolist())
    }


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description="What a stateful round costs, part by part.")
    parser.add_argument("--repeats", type=int, default=11)
    repeats = parser.parse_args().repeats
    task = workload("A")
    who = {name: clocked(rounds_of(simulation(task, method(lr=task.lr)))) for name, method in PARTS.items()}
    with mock.patch("fedax.engine.executors.squares", return_value=jnp.zeros(2)):
        who[UNMEASURED] = clocked(rounds_of(simulation(task, fedax.SCAFFOLD(lr=task.lr))))
        who[UNMEASURED](1)  # compiled while the norms are left out
    seconds: dict[str, list[float]] = {name: [] for name in who}
    for repeat in range(repeats + 1):
        for name, train in who.items():
            took = train(ROUNDS) / ROUNDS
            if repeat:  # the first compiles
                seconds[name].append(took)
    table: dict[str, Any] = {}
    for name, took in seconds.items():
        times = quartiles([t / a for t, a in zip(took, seconds["FedAvg"], strict=True)])
        table[name] = {"ms a round": quartiles([1e3 * t for t in took]), "times FedAvg's": times}
        print(f"{name:46} {table[name]['ms a round'][1]:6.2f} ms   {times[1]:.2f} ({times[0]:.2f} to {times[2]:.2f})")
    table["states alone, ms a round"] = ways(repeats)
    for name, (low, middle, high) in table["states alone, ms a round"].items():
        print(f"states {name:25} {middle:6.2f} ms   ({low:.2f} to {high:.2f})")
    table["vectors alone, ms a round"] = vectors(repeats)
    for name, (low, middle, high) in table["vectors alone, ms a round"].items():
        print(f"alone: {name:40} {middle:6.2f}   ({low:.2f} to {high:.2f})")
    RESULTS.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
