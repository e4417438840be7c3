"""APFL's Figure 6 again, with other rules for the clients who come late.

    fedax reproduce apfl-fig6 --scale paper --out DIR
    python benchmarks/apfl_newcomers.py DIR

Eq. 7 keeps the shared model w and moves alpha v + (1 - alpha) w by alpha^2 of a step of fine-tuning. The text around
the figure lets newcomers train "local and personalized models of their own", which may mean eq. 5: both w and v move.
From the trained w, 50 steps on each newcomer's rows at the last round's rate, by each rule; mean test accuracy.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedax
from fedax.engine.newcomers import hold_out
from fedax.experiments import prepare
from fedax.papers.reproductions import load

ALPHA, STEPS, BATCH = 0.5, 50, 20
RULES = ("fine-tuning", "eq. 7", "eq. 5")


def step(rule: str, lr: float, both: Any, grad: Any) -> Any:
    """One step of a newcomer's w and v."""
    w, v = both
    along_w = grad(w)
    if rule == "fine-tuning":
        return w - lr * along_w, v
    mixed = grad(ALPHA * v + (1 - ALPHA) * w)
    return w if rule == "eq. 7" else w - lr * along_w, v - lr * ALPHA * mixed


def accuracy(problem: fedax.Problem, rule: str, both: Any, rows: Any) -> float:
    """Of the model that a rule ends with."""
    w, v = both
    model = w if rule == "fine-tuning" else ALPHA * v + (1 - ALPHA) * w
    found = jnp.argmax(problem.outputs(model.tree, rows), axis=-1)
    return 100 * float(jnp.mean(found == rows["y"]))


def newcomers(folder: Path, part: int) -> dict[str, float]:
    """The mean over the newcomers of one run, by rule."""
    seed = json.loads((folder / "experiment.json").read_text())["seed"]
    experiment = load("apfl-fig6").at("paper")[part].experiment()
    problem, federation = prepare(experiment)
    shared = fedax.Vector(fedax.load(folder).model)
    lr = 0.1 * 0.99 ** (experiment.rounds - 1)
    late = hold_out(federation.clients, experiment.unseen, seed)[1]
    gradient = jax.jit(lambda x, rows: fedax.Oracle(problem, rows).grad(x))
    found: dict[str, list[float]] = {rule: [] for rule in RULES}
    for client in late:
        train, test = (federation.client(int(client), rows) for rows in ("train", "test"))
        rng = np.random.default_rng([seed, int(client)])
        batches = [rng.choice(len(train["y"]), min(BATCH, len(train["y"])), replace=False) for _ in range(STEPS)]
        for rule in RULES:
            both = (shared, shared)
            for batch in batches:
                rows = {key: array[batch] for key, array in train.items()}
                both = step(rule, lr, both, lambda x, rows=rows: gradient(x, rows))
            found[rule].append(accuracy(problem, rule, both, test))
    return {rule: float(np.mean(values)) for rule, values in found.items()}


def main() -> None:
    """A line for each part, and the mean over its seeds."""
    for number, part in enumerate(sorted(path for path in Path(sys.argv[1]).iterdir() if path.is_dir())):
        runs = [newcomers(folder, number) for folder in sorted((part / "runs").glob("fedavg-seed*"))]
        print(part.name, {rule: [round(run[rule], 1) for run in runs] for rule in RULES})
        print(part.name, {rule: round(float(np.mean([run[rule] for run in runs])), 1) for rule in RULES}, flush=True)


if __name__ == "__main__":
    main()
