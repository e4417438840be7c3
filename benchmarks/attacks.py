"""What breaks which: attacks against aggregations, on handwritten digits at twenty clients.

    python benchmarks/attacks.py

A softmax regression by FedAvg, 20 clients by a Dirichlet partition with alpha = 1, all of them in every round, 60
rounds of five local steps. Two or six of the clients attack. The mean is FedAvg's own; the others are `Robust` on
FedAvg, told how many attackers there are (trim, krum). The figure is the test accuracy after the last round, the mean
of three seeds; a run that diverges counts 0. Results go to results/attacks.json, and to the table and the picture of
docs/attacks.md.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import fedax
from fedax.errors import DivergedError
from fedax.runs.files import write_json
from fedax.whole_files import write_whole

HERE = Path(__file__).resolve().parent
RESULTS, PAGE, PICTURE = (
    HERE / "results/attacks.json",
    HERE.parent / "docs/attacks.md",
    HERE.parent / "docs/attacks.svg",
)
CLIENTS, ROUNDS, SEEDS, LR = 20, 60, (0, 1, 2), 0.1
SHARES = (0.1, 0.3)
KINDS = ("flip", "scale", "noise", "relabel")
RULES = ("mean", "median", "trimmed_mean", "geometric_median", "krum")
BEGIN, END = "<!-- table: benchmarks/attacks.py -->\n", "<!-- end of table -->\n"


def method(rule: str, share: float) -> Any:
    base = fedax.FedAvg(lr=LR)
    if rule == "mean":
        return base
    told = {"trimmed_mean": {"trim": share}, "krum": {"attackers": round(share * CLIENTS)}}
    return fedax.algorithms.Robust(base, rule=rule, **told.get(rule, {}))


def accuracy(problem: Any, data: Any, rule: str, kind: str | None, share: float) -> float:
    found = []
    for seed in SEEDS:
        attack = None if kind is None else fedax.Attack(kind, share=share)
        how = {"rounds": ROUNDS, "eval_every": ROUNDS, "local_steps": 5, "batch_size": 16, "seed": seed}
        try:
            result = fedax.simulate(problem, data, method(rule, share), attack=attack, eval_on=["test"], **how)
            found.append(result.history[-1]["test_accuracy"])
        except DivergedError:
            found.append(0.0)
    return statistics.fmean(found)


def measure() -> dict[str, dict[str, float]]:
    data = fedax.data.load("digits", partition=fedax.data.Dirichlet(CLIENTS, alpha=1.0), split=(0.8, 0.0, 0.2))
    problem = fedax.Problem(fedax.models.model("linear", outputs=10), loss="cross_entropy")
    found: dict[str, dict[str, float]] = {rule: {} for rule in RULES}
    for rule in RULES:
        found[rule]["nobody"] = accuracy(problem, data, rule, None, 0.1)
        for share in SHARES:
            for kind in KINDS:
                found[rule][f"{kind} {share:.0%}"] = accuracy(problem, data, rule, kind, share)
        print(rule, {key: round(value, 3) for key, value in found[rule].items()}, flush=True)
    return found


def table(found: dict[str, dict[str, float]]) -> str:
    """The accuracies as a table in Markdown, an attack a row."""
    lines = [f"| attack | {' | '.join(rule.replace('_', ' ') for rule in found)} |", "|---" * (len(found) + 1) + "|"]
    for attack in next(iter(found.values())):
        lines.append(f"| {attack} | {' | '.join(f'{100 * found[rule][attack]:.1f}' for rule in found)} |")
    return "\n".join(lines) + "\n"


def picture(found: dict[str, dict[str, float]]) -> str:
    """A square for each attack and rule, the darker the better the model still is."""
    attacks, rules = list(next(iter(found.values()))), list(found)
    wide, high, left, top = 120, 30, 130, 30
    parts = [f'<text x="{left + (i + 0.5) * wide}" y="20">{r.replace("_", " ")}</text>' for i, r in enumerate(rules)]
    for j, attack in enumerate(attacks):
        parts.append(f'<text x="{left / 2}" y="{top + j * high + 20}">{attack}</text>')
        for i, rule in enumerate(rules):
            value = found[rule][attack]
            box = f'x="{left + i * wide}" y="{top + j * high}" width="{wide - 2}" height="{high - 2}"'
            ink = "white" if value > 0.55 else "black"
            parts.append(f'<rect {box} fill="#08519c" fill-opacity="{value:.2f}"/>')
            middle = f'x="{left + (i + 0.5) * wide}" y="{top + j * high + 20}"'
            parts.append(f'<text {middle} fill="{ink}">{100 * value:.1f}</text>')
    size = f'viewBox="0 0 {left + wide * len(rules)} {top + high * len(attacks)}"'
    style = 'font-family="sans-serif" font-size="13" text-anchor="middle"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{"".join(parts)}</svg>\n'


def main() -> None:
    found = json.loads(RESULTS.read_text())["accuracy"] if RESULTS.is_file() else measure()
    write_json(RESULTS, {"clients": CLIENTS, "rounds": ROUNDS, "seeds": list(SEEDS), "lr": LR, "accuracy": found})
    write_whole(PICTURE, picture(found).encode())
    before, _, rest = PAGE.read_text().partition(BEGIN)
    write_whole(PAGE, (before + BEGIN + table(found) + END + rest.partition(END)[2]).encode())


if __name__ == "__main__":
    main()
