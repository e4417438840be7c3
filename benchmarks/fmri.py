"""Sparse logistic regression on the fMRI slice, leaving one run out at a time: accuracy and density by method.

    python benchmarks/fmri.py [--strength 0.01]        (FEDAX_DATA must hold haxby)

Runs are clients, every client takes part, batch 1, one epoch a round, 300 rounds, the thesis' 49 pairs of rates; the
pair with the lowest training objective is taken, so the left-out run decides nothing. An entry counts as zero below
1e-4. "centralised" is scikit-learn's solution on the pooled training rows. The table is saved in results/fmri.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

import fedax
from fedax.models import model
from fedax.regularizers import L1

RATES = {
    "lr": [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0],
    "server_lr": [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0],
}
METHODS = {
    "FedMiD": fedax.FedMiD(lr=0.1),
    "FedMiD-OSP": fedax.FedMiD(lr=0.1, client_prox=False),
    "FedDualAvg": fedax.FedDualAvg(lr=0.1),
    "FedDualAvg-OSP": fedax.FedDualAvg(lr=0.1, client_prox=False),
}
ZERO = 1e-4


def fold(run: int, strength: float) -> dict[str, tuple[float, float, float]]:
    """Accuracy on the left-out run, density and training objective of each method."""
    federation = fedax.data.haxby(test_runs=(run,))
    problem = fedax.Problem(model("logistic", outputs=1), loss="logistic", regularizer=L1(strength))
    found = {}
    for name, method in METHODS.items():
        results = fedax.sweep(
            problem,
            federation,
            fedax.grid(method, RATES),
            rounds=300,
            local_epochs=1,
            batch_size=1,
            eval_every=100,
            eval_on=("train", "test"),
            zero_below=ZERO,
        )
        good = [r.history[-1] for r in results if "diverged" not in r.info]
        best = min(good, key=lambda row: row["train_objective"])
        found[name] = (best["test_accuracy"], best["density"], best["train_objective"])
    found["centralised"] = centralised(federation, strength)
    return found


def centralised(federation: fedax.Federation, strength: float) -> tuple[float, float, float]:
    """scikit-learn's L1-regularised logistic regression on all clients' training rows."""
    parts = [federation.client(i) for i in range(federation.clients)]
    x, y = (np.concatenate([part[k] for part in parts]) for k in ("x", "y"))
    # liblinear regularises the intercept too, so it is made a large feature, which costs it nothing
    solver = LogisticRegression(
        C=1 / (strength * len(y)), l1_ratio=1.0, solver="liblinear", tol=1e-8, max_iter=10_000, intercept_scaling=1e3
    ).fit(x, y)
    w, test = solver.coef_[0], federation.client(0, "test")
    loss = np.mean(np.logaddexp(0, -np.where(y > 0, 1, -1) * (x @ w + solver.intercept_[0])))
    objective = float(loss + strength * np.abs(w).sum())
    return float(solver.score(test["x"], test["y"])), float(np.mean(np.abs(w) > ZERO)), objective


def main() -> None:
    """Print and save the means over the twelve runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strength", type=float, default=0.01)
    given = parser.parse_args()
    folds = []
    for run in range(12):
        folds.append(fold(run, given.strength))
        print(f"run {run} left out: done", file=sys.stderr, flush=True)
    means = {name: np.mean([f[name] for f in folds], axis=0).tolist() for name in folds[0]}
    print("| method | accuracy on the left-out run | density | training objective |\n|---|---|---|---|")
    for name, (accuracy, density, objective) in means.items():
        print(f"| {name} | {100 * accuracy:.1f} % | {100 * density:.2f} % | {objective:.4f} |")
    saved = Path(__file__).parent / "results" / "fmri.json"
    saved.parent.mkdir(exist_ok=True)
    saved.write_text(json.dumps({"strength": given.strength, "runs": 12, "means": means}, indent=1) + "\n")


if __name__ == "__main__":
    main()
