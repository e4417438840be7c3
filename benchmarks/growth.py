"""How a round's time and the peak memory grow: with clients, with the cohort, with local steps, with parameters.

    python benchmarks/growth.py [clients cohort steps parameters disk] [--longest 3]

SCAFFOLD, so that every client has a state of the model's size, on generated clients that are made as they take part;
"disk" is FedDeper with a multilayer perceptron and 4 GiB for the models that clients keep, of which 100,000 clients
need twenty times as much. Each measurement has a process of its own, whose peak memory is then its own as well; the
sizes of an axis are measured in turn, three times over, and compared with the first of their turn. "bare" is the memory
of a process that only imports Fedax. The figures are saved in results/growth.json and written, as a table and a
picture, into docs/performance.md; axes that are not asked for keep the rows they have.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import re
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SAVED = HERE / "results" / "growth.json"
PAGE = HERE.parent / "docs" / "performance.md"
PICTURE = PAGE.parent / "performance" / "growth.svg"
CLASSES, BATCH, REPEATS, ROUNDS, TURNS = 10, 8, 5, 400, 3


@dataclasses.dataclass(frozen=True)
class Size:
    """What is measured: without hidden layers it is logistic regression."""

    clients: int
    cohort: int
    steps: int
    hidden: tuple[int, ...] = ()
    features: int = 60
    method: str = "SCAFFOLD"
    budget: str = "2GiB"

    @property
    def parameters(self) -> int:
        """Of the model."""
        widths = (self.features, *self.hidden, CLASSES)
        return sum((into + 1) * out for into, out in itertools.pairwise(widths))


MLP = {"hidden": (200, 200), "features": 784, "method": "FedDeper", "budget": "4GiB"}
AXES = {
    "clients": [Size(10**e, 1_000, 5) for e in (3, 4, 5, 6, 7)],
    "cohort": [Size(100_000, 10**e, 5) for e in (1, 2, 3, 4)],
    "steps": [Size(10_000, 100, k) for k in (1, 10, 100)],
    "parameters": [Size(100, 10, 5, hidden) for hidden in ((), (100,), (1_000,), (14_000,), (140_000,))],
    "disk": [Size(n, 100, 5, **MLP) for n in (1_000, 100_000)],
}
ALONG = {"disk": "clients"}  # what grows along an axis that is not called so


def measure(size: Size, longest: float) -> dict[str, Any]:
    """The figures of one size, in this process; repeats of the rounds take up to `longest` seconds together."""
    import fedax
    from fedax.data import SyntheticClients
    from fedax.data.generators.lazy import Lazy
    from fedax.models import model

    fedax.Simulation  # noqa: B018  (imported when it is first named)
    bare, began = _peak(), time.perf_counter()
    clients = SyntheticClients(
        clients=size.clients, gamma=0.5, beta=0.5, rows=40, features=size.features, classes=CLASSES, test_share=0.2
    )
    layers = {"hidden": size.hidden} if size.hidden else {}
    net = model("mlp" if size.hidden else "logistic", outputs=CLASSES, **layers)
    method = fedax.SCAFFOLD(lr=0.01) if size.method == "SCAFFOLD" else fedax.FedDeper(lr=0.01, rho=0.005)
    simulation = fedax.Simulation(
        fedax.Problem(net, loss="cross_entropy"),
        Lazy(clients, shown=10),
        method,
        rounds=ROUNDS,
        cohort=size.cohort,
        local_steps=size.steps,
        batch_size=BATCH,
        state_budget=size.budget,
    )

    def train(rounds: int) -> float:
        began = time.perf_counter()
        assert simulation.advance(rounds)
        return time.perf_counter() - began

    setup, first, once = time.perf_counter() - began, train(1), train(1)
    rounds = max(1, min(64, int(longest / REPEATS / once)))
    took = [train(rounds) / rounds for _ in range(REPEATS)]
    store = simulation.prepared.store
    simulation.close()
    kinds = {"MemorySlots": "beside them", "FileSlots": "in a file"}
    return {
        "setup s": round(setup, 2),
        "first round s": round(first, 2),
        "ms a round": [round(1e3 * s, 2) for s in (min(took), statistics.median(took), max(took))],
        "rounds": 2 + rounds * REPEATS,
        "peak MB": round(_peak()),
        "bare MB": round(bare),
        "executor": f"{simulation.prepared.executor.name}, {simulation.prepared.executor.devices} devices",
        "states": "on the devices" if store is None else kinds[type(store.slots).__name__],
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


def together(turns: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """One row for each size from those of all turns."""
    rows = []
    for same in zip(*turns, strict=True):
        low, middle, high = zip(*(row["ms a round"] for row in same), strict=True)
        times = [row["ms a round"][1] / turn[0]["ms a round"][1] for row, turn in zip(same, turns, strict=True)]
        rows.append(
            {
                **same[-1],
                "ms a round": [min(low), statistics.median(middle), max(high)],
                "times": [round(t, 3) for t in (min(times), statistics.median(times), max(times))],
                "peak MB": max(row["peak MB"] for row in same),
            }
        )
    return rows


def markdown(table: dict[str, list[dict[str, Any]]]) -> str:
    """The table for the documentation: what grows along each axis is in bold, and its first row is the measure."""
    head = ["method", "clients", "cohort", "steps", "parameters", "ms a round", "times", "peak MB", "states"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for axis, rows in table.items():
        for row in rows:
            low, middle, high = row["ms a round"]
            cells = [row["method"]]
            for key in ("clients", "cohort", "steps", "parameters"):
                cells.append(f"**{row[key]:,}**" if key == ALONG.get(axis, axis) else f"{row[key]:,}")
            cells.append(f"{middle:.3g} ({low:.3g} to {high:.3g})")
            low, middle, high = row["times"]
            cells += [
                "1" if row is rows[0] else f"{middle:.3g} ({low:.3g} to {high:.3g})",
                f"{row['peak MB']:,}",
                row["states"],
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def draw(table: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Time a round above, peak memory below, both axes logarithmic; the dotted line is linear growth."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.hashsalt": "growth", "svg.fonttype": "none", "font.size": 8}
    from matplotlib import pyplot

    axes = [axis for axis in table if axis not in ALONG]
    figure, panels = pyplot.subplots(2, len(axes), figsize=(2.4 * len(axes), 4), squeeze=False)
    for column, axis in enumerate(axes):
        x = [row[axis] for row in table[axis]]
        curves = [[row["ms a round"][1] for row in table[axis]], [row["peak MB"] for row in table[axis]]]
        for panel, y in zip(panels[:, column], curves, strict=True):
            panel.loglog(x, y, "o-", markersize=3)
            panel.minorticks_off()
        panels[0, column].loglog(x, [curves[0][-1] * value / x[-1] for value in x], ":", color="grey", linewidth=0.8)
        panels[0, column].set_title("local steps" if axis == "steps" else axis)
        panels[0, column].set_ylim(min(curves[0]) / 2, max(curves[0]) * 2)
        panels[1, column].set_ylim(100, max(2e3, 2 * max(curves[1])))
    panels[0, 0].set_ylabel("ms a round")
    panels[1, 0].set_ylabel("peak MB")
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def publish(table: dict[str, list[dict[str, Any]]]) -> None:
    """Save the figures, and put the table and the picture between the marks in the documentation."""
    SAVED.parent.mkdir(exist_ok=True)
    SAVED.write_text(json.dumps(table, indent=1) + "\n")
    draw(table, PICTURE)
    shown = f"<!-- growth -->\n{markdown(table)}\n![growth](performance/{PICTURE.name})\n<!-- /growth -->"
    page, found = re.subn("<!-- growth -->.*<!-- /growth -->", lambda _: shown, PAGE.read_text(), flags=re.DOTALL)
    assert found == 1, "docs/performance.md must have the marks once"
    PAGE.write_text(page)


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description="A round's time and peak memory as a federation grows.")
    parser.add_argument("axes", nargs="*", help=f"of {', '.join(AXES)}; all unless given")
    parser.add_argument("--longest", type=float, default=3.0, help="seconds of rounds a measurement")
    parser.add_argument("--look", action="store_true", help="measure the smallest two of each axis, and save nothing")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        size = json.loads(given.one)
        print(json.dumps(measure(Size(**{**size, "hidden": tuple(size["hidden"])}), given.longest)))
        return
    if unknown := set(given.axes) - set(AXES):
        parser.error(f"no axis {', '.join(sorted(unknown))}: there are {', '.join(AXES)}")
    table = json.loads(SAVED.read_text()) if SAVED.is_file() else {}
    for axis in given.axes or AXES:
        turns = []
        for _ in range(1 if given.look else TURNS):
            turns.append([apart(size, given.longest) for size in AXES[axis][: 2 if given.look else None]])
            print(axis, json.dumps([row["ms a round"] for row in turns[-1]]), flush=True)
        table[axis] = together(turns)
    table = {axis: table[axis] for axis in AXES if axis in table}
    print(markdown(table))
    if not given.look:
        publish(table)
        print("saved benchmarks/results/growth.json, docs/performance.md and docs/performance/growth.svg")


if __name__ == "__main__":
    main()
