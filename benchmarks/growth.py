"""How a round's time and the peak memory grow: with clients, with the cohort, with local steps, with parameters.

    python benchmarks/growth.py [clients cohort steps parameters] [--longest 3]

SCAFFOLD, so that every client has a state of the model's size, on generated clients that are made as they take part.
Each measurement has a process of its own, whose peak memory is then its own as well. "bare" is that of a process
that only imports Fedax. The table is saved in results/growth.json and, to be read, in results/growth.md; axes that are
not asked for keep the rows they have there.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
FEATURES, CLASSES, BATCH, REPEATS = 60, 10, 8, 5


@dataclasses.dataclass(frozen=True)
class Size:
    """What is measured: a hidden layer of 0 is logistic regression."""

    clients: int
    cohort: int
    steps: int
    hidden: int = 0

    @property
    def parameters(self) -> int:
        """Of the model."""
        if not self.hidden:
            return (FEATURES + 1) * CLASSES
        return (FEATURES + 1) * self.hidden + (self.hidden + 1) * CLASSES


AXES = {
    "clients": [Size(10**e, 1_000, 5) for e in (3, 4, 5, 6)],
    "cohort": [Size(100_000, 10**e, 5) for e in (1, 2, 3, 4)],
    "steps": [Size(10_000, 100, k) for k in (1, 10, 100)],
    "parameters": [Size(100, 10, 5, hidden) for hidden in (0, 100, 1_000, 14_000, 140_000)],
}


def measure(size: Size, longest: float) -> dict[str, Any]:
    """The figures of one size, in this process; repeats of the rounds take up to `longest` seconds together."""
    import fedax
    from fedax.data import SyntheticClients
    from fedax.data.lazy import Lazy
    from fedax.models import model

    fedax.Simulation  # noqa: B018  (imported when it is first named)
    bare, began = _peak(), time.perf_counter()
    clients = SyntheticClients(
        clients=size.clients, gamma=0.5, beta=0.5, rows=40, features=FEATURES, classes=CLASSES, test_share=0.2
    )
    layers = {"hidden": (size.hidden,)} if size.hidden else {}
    net = model("mlp" if size.hidden else "logistic", outputs=CLASSES, **layers)
    simulation = fedax.Simulation(
        fedax.Problem(net, loss="cross_entropy"),
        Lazy(clients, shown=10),
        fedax.SCAFFOLD(lr=0.01),
        rounds=10**6,
        cohort=size.cohort,
        local_steps=size.steps,
        batch_size=BATCH,
    )

    def train(rounds: int) -> float:
        began = time.perf_counter()
        engine, state = simulation.engine, simulation.state
        simulation.state, good = engine.advance(simulation.algorithm, state, rounds, simulation.data)
        assert good
        return time.perf_counter() - began

    setup, first, once = time.perf_counter() - began, train(1), train(1)
    rounds = max(1, min(64, int(longest / REPEATS / once)))
    took = [train(rounds) / rounds for _ in range(REPEATS)]
    store = simulation.store
    return {
        "setup s": round(setup, 2),
        "first round s": round(first, 2),
        "ms a round": [round(1e3 * s, 2) for s in (min(took), statistics.median(took), max(took))],
        "peak MB": round(_peak()),
        "bare MB": round(bare),
        "executor": f"{simulation.executor.name}, {simulation.executor.devices} devices",
        "states": "on the devices" if store is None else type(store.slots).__name__,
    }


def _peak() -> float:
    """Megabytes that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def apart(size: Size, longest: float) -> dict[str, Any]:
    """`measure` in a process of its own."""
    asked = json.dumps(dataclasses.asdict(size))
    command = [sys.executable, __file__, "--one", asked, "--longest", str(longest)]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(f"{size} failed:\n{ran.stderr}")
    figures: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return {**dataclasses.asdict(size), "parameters": size.parameters, **figures}


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table for the documentation."""
    head = ["along", "clients", "cohort", "steps", "parameters", "ms a round", "peak MB", "states"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        low, middle, high = row["ms a round"]
        sizes = [f"{row[k]:,}" for k in ("clients", "cohort", "steps", "parameters")]
        cells = [row["along"], *sizes, f"{middle} ({low} to {high})", f"{row['peak MB']:,}", row["states"]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description="A round's time and peak memory as a federation grows.")
    parser.add_argument("axes", nargs="*", help=f"of {', '.join(AXES)}; all unless given")
    parser.add_argument("--longest", type=float, default=3.0, help="seconds of rounds a measurement")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(Size(**json.loads(given.one)), given.longest)))
        return
    if unknown := set(given.axes) - set(AXES):
        parser.error(f"no axis {', '.join(sorted(unknown))}: there are {', '.join(AXES)}")
    saved = RESULTS / "growth.json"
    table = json.loads(saved.read_text()) if saved.is_file() else {}
    for axis in given.axes or AXES:
        table[axis] = []
        for size in AXES[axis]:
            table[axis].append({"along": axis, **apart(size, given.longest)})
            print(json.dumps(table[axis][-1]), flush=True)
    RESULTS.mkdir(exist_ok=True)
    rows = [row for axis in AXES for row in table.get(axis, [])]
    saved.write_text(json.dumps(table, indent=1) + "\n")
    (RESULTS / "growth.md").write_text(markdown(rows))
    print(markdown(rows) + "saved benchmarks/results/growth.json and growth.md")


if __name__ == "__main__":
    main()
