"""The thesis' Lasso II: the F1 of the gathered rows' solution over the strength of the l1 norm, on several draws.

    python benchmarks/lasso_strength.py

The thesis takes a strength "so that the centralized solver (on gathered data) can successfully recover the sparse
pattern". For clients' means as printed, and a tenth of them; an entry below 0.01 is zero. Saved in
results/lasso_strength.json.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from sklearn.linear_model import lasso_path

import fedax

SAVED = Path(__file__).parent / "results" / "lasso_strength.json"
STRENGTHS = np.array([0.35, 0.25, 0.21, 0.18, 0.16, 0.14, 0.12, 0.11, 0.1, 0.09, 0.08, 0.07, 0.06])


def f1_by_strength(seed: int, spread: float) -> dict[str, float]:
    """The F1 of the solution at each strength, with a free intercept."""
    drawn = fedax.data.lasso("thesis-II", seed=seed, spread=spread)
    clients = [drawn.client(i) for i in range(drawn.clients)]
    x, y = (np.concatenate([np.asarray(one[key], float) for one in clients]) for key in ("x", "y"))
    there = np.asarray(drawn.info["truth"]["weights"]) != 0
    halves = STRENGTHS / 2  # scikit-learn has half the squares
    _, weights, _ = lasso_path(x - x.mean(0), y - y.mean(), alphas=halves, max_iter=3000, tol=1e-7, precompute=True)
    found = np.abs(weights) >= 0.01
    f1 = 2 * found[there].sum(0) / (found.sum(0) + there.sum())
    return {f"{strength:g}": round(float(value), 3) for strength, value in zip(STRENGTHS, f1, strict=True)}


if __name__ == "__main__":
    rows = []
    for spread, draws in ((1.0, 10), (0.1, 3)):
        for seed in range(draws):
            by_strength = f1_by_strength(seed, spread)
            rows.append({"spread": spread, "seed": seed, "best": max(by_strength.values()), "f1": by_strength})
            print(spread, seed, by_strength, flush=True)
    SAVED.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
