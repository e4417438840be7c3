"""Privacy against accuracy: what a smaller epsilon costs on handwritten digits, for whole clients and for single rows.

    python benchmarks/privacy.py      four minutes; saves results/privacy.json after every setting, and goes on from it

A softmax regression by FedAvg: 200 clients of seven or eight training rows, 40 of them in each of 50 rounds, five local
steps on all rows of a client. "clients" clips what a client sends and adds noise to the mean of a round (`Private`);
"rows" is DP-SGD, which clips each row's gradient and adds noise at every local step. Nothing but the noise multiplier
changes between settings, so a choice of rounds and rates for each noise could do better. Five seeds, each with a split
and a partition of its own; the accuracy is on test rows after the last round, and epsilon, at delta = 1e-4, is the
largest of the seeds. The results go to the table and the picture of docs/privacy.md as well.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import fedax
from fedax.privacy.accounting import secret_epsilon
from fedax.runs.files import write_json
from fedax.whole_files import write_whole

HERE = Path(__file__).resolve().parent
RESULTS, PAGE = HERE / "results/privacy.json", HERE.parent / "docs/privacy.md"
PICTURE = PAGE.with_name("privacy.svg")
CLIENTS, COHORT, ROUNDS, STEPS, LR, CLIP, DELTA, SEEDS = 200, 40, 50, 5, 0.3, 1.0, 1e-4, (0, 1, 2, 3, 4)
SETTINGS: list[tuple[str, float | None]] = [
    ("nothing", None),
    *(("clients", noise) for noise in (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)),
    *(("rows", noise) for noise in (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)),
]
BEGIN, END = "<!-- table: benchmarks/privacy.py -->\n", "<!-- end of table -->\n"
CURVES = {  # of the picture: what is protected, where its epsilon is saved, its colour and its name
    ("clients", "epsilon"): ("#0072B2", "a client, known cohorts"),
    ("clients", "secret_epsilon"): ("#56B4E9", "a client, secret cohorts"),
    ("rows", "epsilon"): ("#D55E00", "a row (DP-SGD)"),
}


def measure(protects: str, noise: float | None) -> dict[str, Any]:
    """The accuracies of one setting, a seed each, and its epsilon."""
    method: Any = fedax.FedAvg(lr=LR)
    gradients: Any = []
    if protects == "clients":
        method = fedax.Private(method, clip=CLIP, noise=noise, delta=DELTA)
    if protects == "rows":
        gradients = [{"name": "dp", "clip": CLIP, "noise": noise, "delta": DELTA}]
    problem = fedax.Problem(fedax.models.model("linear", outputs=10), loss="cross_entropy", gradients=gradients)
    accuracy, spent = [], []
    for seed in SEEDS:
        partition = fedax.data.IID(clients=CLIENTS)
        data = fedax.data.load("digits", partition=partition, split=(0.8, 0.0, 0.2), seed=seed)
        how = {"rounds": ROUNDS, "cohort": COHORT, "local_steps": STEPS, "eval_every": ROUNDS, "seed": seed}
        last = fedax.simulate(problem, data, method, eval_on=["test"], **how).history[-1]
        accuracy.append(last["test_accuracy"])
        spent.append(last.get("epsilon", last.get("row_epsilon", 0.0)))
    found: dict[str, Any] = {"protects": protects, "noise": noise, "accuracy": accuracy}
    if noise:
        found["epsilon"] = max(spent)
        if protects == "clients":
            found["secret_epsilon"] = secret_epsilon(noise, DELTA, ROUNDS, COHORT, CLIENTS)
    return found


def mean(row: dict[str, Any]) -> float:
    return sum(row["accuracy"]) / len(row["accuracy"])


def percent(row: dict[str, Any]) -> str:
    """The mean accuracy of the seeds, with the least and the greatest."""
    return f"{100 * mean(row):.1f} ({100 * min(row['accuracy']):.1f} to {100 * max(row['accuracy']):.1f})"


def table(rows: list[dict[str, Any]]) -> str:
    """The accuracies as a table in Markdown, a setting a row."""
    lines = ["| protected | noise | epsilon | epsilon, secret cohorts | test accuracy, % |", "|---|---|---|---|---|"]
    for row in rows:
        noise = {None: "no clipping", 0.0: "clipping only"}.get(row["noise"]) or f"{row['noise']:g}"
        what = {"nothing": "nothing", "clients": "clients", "rows": "rows"}[row["protects"]]
        spent = [f"{row[key]:.3g}" if key in row else "" for key in ("epsilon", "secret_epsilon")]
        lines.append(f"| {what} | {noise} | {' | '.join(spent)} | {percent(row)} |")
    return "\n".join(lines) + "\n"


def picture(rows: list[dict[str, Any]]) -> str:
    """Accuracy against epsilon, on a scale of powers of two, with the range over the seeds."""
    left, top, wide, high, least, most = 60, 20, 560, 300, -2, 8  # epsilon from 2^least to 2^most

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
    middle = left + wide / 2
    parts.append(f'<text x="{middle}" y="{top + high + 38}" text-anchor="middle">epsilon (delta = {DELTA:g})</text>')
    turned = f'transform="rotate(-90)" x="{-top - high / 2}" y="16" text-anchor="middle"'
    parts.append(f"<text {turned}>test accuracy, %</text>")
    free = y(mean(next(row for row in rows if row["protects"] == "nothing")))
    parts.append(
        f'<line x1="{left}" x2="{left + wide}" y1="{free:.1f}" y2="{free:.1f}" stroke="#555" stroke-dasharray="5 4"/>'
    )
    parts.append(f'<text x="{left + 6}" y="{free + 15:.1f}" fill="#555">no clipping, no noise</text>')
    for place, ((protects, key), (colour, name)) in enumerate(CURVES.items()):
        points = sorted((row[key], row) for row in rows if row["protects"] == protects and key in row)
        way = " ".join(f"{x(spent):.1f},{y(mean(row)):.1f}" for spent, row in points)
        parts.append(f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for spent, row in points:
            ends = f'y1="{y(min(row["accuracy"])):.1f}" y2="{y(max(row["accuracy"])):.1f}"'
            parts.append(f'<line x1="{x(spent):.1f}" x2="{x(spent):.1f}" {ends} stroke="{colour}"/>')
            parts.append(f'<circle cx="{x(spent):.1f}" cy="{y(mean(row)):.1f}" r="3.5" fill="{colour}"/>')
        at = top + high - 60 + 20 * place
        parts.append(f'<circle cx="{left + wide - 190}" cy="{at - 4}" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{left + wide - 178}" y="{at}">{name}</text>')
    size = f'viewBox="0 0 {left + wide + 20} {top + high + 50}"'
    style = 'font-family="sans-serif" font-size="13"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{"".join(parts)}</svg>\n'


def main() -> None:
    rows = json.loads(RESULTS.read_text())["rows"] if RESULTS.is_file() else []
    told = {"clients": CLIENTS, "cohort": COHORT, "rounds": ROUNDS, "local_steps": STEPS, "lr": LR, "clip": CLIP}
    for protects, noise in SETTINGS:
        if not any((row["protects"], row["noise"]) == (protects, noise) for row in rows):
            rows.append(measure(protects, noise))
            print(rows[-1], flush=True)
            write_json(RESULTS, {**told, "delta": DELTA, "seeds": list(SEEDS), "rows": rows})
    write_whole(PICTURE, picture(rows).encode())
    before, _, rest = PAGE.read_text().partition(BEGIN)
    write_whole(PAGE, (before + BEGIN + table(rows) + END + rest.partition(END)[2]).encode())


if __name__ == "__main__":
    main()
