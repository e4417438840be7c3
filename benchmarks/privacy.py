"""Privacy against accuracy: what a smaller epsilon costs on handwritten digits, for whole clients and for single rows.

    python benchmarks/privacy.py      a minute; saves results/privacy.json after every setting, and goes on from it

A softmax regression by FedAvg: 50 rounds of five local steps on all rows of a client. "many" is a federation of 200
clients with seven or eight training rows each, 40 of them a round; "few" has ten clients with some 144 rows, all in
every round. "clients" clips what a client sends and adds noise to the mean of a round (`Private`); "rows" is DP-SGD,
which clips each row's gradient and adds noise at every local step. Nothing but the noise multiplier changes between
settings, so a choice of rounds and rates for each noise could do better. Five seeds, each with a split and a partition
of its own; the accuracy is on test rows after the last round, and epsilon, at delta = 1e-4, is the largest of the
seeds. The results go to the table and the picture of docs/privacy.md as well.
"""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import fedax
from fedax.privacy.accounting import secret_epsilon
from fedax.runs.files import write_json
from fedax.whole_files import write_whole

HERE = Path(__file__).resolve().parent
RESULTS, PAGE = HERE / "results/privacy.json", HERE.parent / "docs/privacy.md"
PICTURE = PAGE.with_name("privacy.svg")
FEDERATIONS = {"many": (200, 40), "few": (10, 10)}  # clients, and how many take part in a round
ROUNDS, STEPS, LR, CLIP, DELTA, SEEDS = 50, 5, 0.3, 1.0, 1e-4, (0, 1, 2, 3, 4)
NOISES = {
    ("many", "nothing"): (None,),
    ("many", "clients"): (0.0, 1.0, 2.0, 4.0, 8.0, 16.0),
    ("many", "rows"): (0.0, 1.0, 2.0, 4.0, 8.0, 16.0),
    ("few", "nothing"): (None,),
    ("few", "clients"): (0.0, 1.0, 2.0, 4.0, 8.0, 16.0),
    ("few", "rows"): (0.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0),
}
BEGIN, END = "<!-- table: benchmarks/privacy.py -->\n", "<!-- end of table -->\n"
CURVES = {  # of the picture: whose epsilon it is, its colour, its dashes and its name
    ("many", "clients", "epsilon"): ("#0072B2", "", "a client of 200, known cohorts"),
    ("many", "clients", "secret_epsilon"): ("#56B4E9", "", "a client of 200, secret cohorts"),
    ("many", "rows", "epsilon"): ("#D55E00", "", "a row of 200 clients"),
    ("few", "clients", "epsilon"): ("#0072B2", "6 4", "a client of 10"),
    ("few", "rows", "epsilon"): ("#D55E00", "6 4", "a row of 10 clients"),
}
Row = dict[str, Any]


def measure(whose: str, protects: str, noise: float | None) -> Row:
    """The accuracies of one setting, a seed each, and its epsilon."""
    clients, cohort = FEDERATIONS[whose]
    method: Any = fedax.FedAvg(lr=LR)
    gradients: Any = []
    if protects == "clients":
        method = fedax.Private(method, clip=CLIP, noise=noise, delta=DELTA)
    if protects == "rows":
        gradients = [{"name": "dp", "clip": CLIP, "noise": noise, "delta": DELTA}]
    problem = fedax.Problem(fedax.models.model("linear", outputs=10), loss="cross_entropy", gradients=gradients)
    accuracy, spent = [], []
    for seed in SEEDS:
        partition = fedax.data.IID(clients=clients)
        data = fedax.data.load("digits", partition=partition, split=(0.8, 0.0, 0.2), seed=seed)
        how = {"rounds": ROUNDS, "cohort": cohort, "local_steps": STEPS, "eval_every": ROUNDS, "seed": seed}
        last = fedax.simulate(problem, data, method, eval_on=["test"], **how).history[-1]
        accuracy.append(last["test_accuracy"])
        spent.append(last.get("epsilon", last.get("row_epsilon", 0.0)))
    found: Row = {"federation": whose, "protects": protects, "noise": noise, "accuracy": accuracy}
    if noise:
        found["epsilon"] = max(spent)
        if protects == "clients" and cohort < clients:
            found["secret_epsilon"] = secret_epsilon(noise, DELTA, ROUNDS, cohort, clients)
    return found


def mean(row: Row) -> float:
    return statistics.fmean(row["accuracy"])  # the same on every Python: sum() rounds otherwise from 3.12 on


def table(rows: list[Row]) -> str:
    """Accuracy and epsilon as a table in Markdown, a noise a row."""
    there = {(row["federation"], row["protects"], row["noise"]): row for row in rows}
    columns = [(whose, protects) for whose, protects in NOISES if protects != "nothing"]

    def cell(whose: str, protects: str, noise: float | None) -> str:
        row = there.get((whose, "nothing" if noise is None else protects, noise))
        if row is None:
            return ""
        spent = [f"{row[key]:.3g}" for key in ("epsilon", "secret_epsilon") if key in row]
        return f"{100 * mean(row):.1f}" + (f" (ε {' or '.join(spent)})" if spent else "")

    heads = [f"{what[:-1]} of {FEDERATIONS[whose][0]}{' clients' * (what == 'rows')}" for whose, what in columns]
    lines = [f"| noise | {' | '.join(f'a {head}' for head in heads)} |", "|---" * (len(columns) + 1) + "|"]
    for noise in sorted({row["noise"] for row in rows}, key=lambda noise: -1.0 if noise is None else noise):
        name = {None: "neither noise nor clipping", 0.0: "0: clipping alone"}.get(noise) or f"{noise:g}"
        lines.append(f"| {name} | {' | '.join(cell(*column, noise) for column in columns)} |")
    return "\n".join(lines) + "\n"


def picture(rows: list[Row]) -> str:
    """Accuracy against epsilon, on a scale of powers of two, with the range over the seeds."""
    left, top, wide, high, least, most = 60, 20, 640, 320, -1, 9  # epsilon from 2^least to 2^most

    def x(epsilon: float) -> float:
        return left + wide * (math.log2(epsilon) - least) / (most - least)

    def y(accuracy: float) -> float:
        return top + high * (1 - accuracy)

    parts = ['<rect width="100%" height="100%" fill="white"/>']
    for tenth in range(0, 11, 2):
        line = f'x1="{left}" x2="{left + wide}" y1="{y(tenth / 10):.1f}" y2="{y(tenth / 10):.1f}"'
        parts.append(f'<line {line} stroke="#ddd"/>')
        parts.append(f'<text x="{left - 8}" y="{y(tenth / 10) + 4:.1f}" text-anchor="end">{10 * tenth}</text>')
    for power in range(least, most + 1):
        parts.append(f'<text x="{x(2.0**power):.1f}" y="{top + high + 18}" text-anchor="middle">{2.0**power:g}</text>')
    below = f'x="{left + wide / 2}" y="{top + high + 40}" text-anchor="middle"'
    parts.append(f"<text {below}>epsilon (delta = {DELTA:g}): privacy grows to the left</text>")
    turned = f'transform="rotate(-90)" x="{-top - high / 2}" y="16" text-anchor="middle"'
    parts.append(f"<text {turned}>test accuracy, %</text>")
    for place, ((whose, protects, key), (colour, dashes, name)) in enumerate(CURVES.items()):
        own = [row for row in rows if (row["federation"], row["protects"]) == (whose, protects) and key in row]
        points = sorted((row[key], mean(row), min(row["accuracy"]), max(row["accuracy"])) for row in own)
        pen = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"'
        parts.append(f'<polyline points="{" ".join(f"{x(p[0]):.1f},{y(p[1]):.1f}" for p in points)}" {pen}/>')
        for spent, middle, low, up in points:
            across = f'x1="{x(spent):.1f}" x2="{x(spent):.1f}" y1="{y(low):.1f}" y2="{y(up):.1f}"'
            parts.append(f'<line {across} stroke="{colour}"/>')
            parts.append(f'<circle cx="{x(spent):.1f}" cy="{y(middle):.1f}" r="3.5" fill="{colour}"/>')
        at, start = top + high - 100 + 20 * place, left + wide - 245
        parts.append(f'<polyline points="{start},{at - 4} {start + 34},{at - 4}" {pen}/>')
        parts.append(f'<text x="{start + 42}" y="{at}">{name}</text>')
    size = f'viewBox="0 0 {left + wide + 20} {top + high + 55}"'
    style = 'font-family="sans-serif" font-size="13"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{"".join(parts)}</svg>\n'


def main() -> None:
    rows = json.loads(RESULTS.read_text())["rows"] if RESULTS.is_file() else []
    told = {"federations": FEDERATIONS, "rounds": ROUNDS, "local_steps": STEPS, "lr": LR, "clip": CLIP, "delta": DELTA}
    for (whose, protects), noises in NOISES.items():
        for noise in noises:
            if any((row["federation"], row["protects"], row["noise"]) == (whose, protects, noise) for row in rows):
                continue
            rows.append(measure(whose, protects, noise))
            print(rows[-1], flush=True)
            write_json(RESULTS, {**told, "seeds": list(SEEDS), "rows": rows})
    write_whole(PICTURE, picture(rows).encode())
    before, _, rest = PAGE.read_text().partition(BEGIN)
    write_whole(PAGE, (before + BEGIN + table(rows) + END + rest.partition(END)[2]).encode())


if __name__ == "__main__":
    main()
