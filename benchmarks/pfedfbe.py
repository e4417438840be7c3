"""pFedFBE on its own Lasso II and matrix problem: what the personal models find, over a search of its settings.

    python benchmarks/pfedfbe.py

The paper's schedule: 30 clients of 128 rows, 10 a round, 20 steps of batch 50, 200 rounds; its own numbers are
psi = 0.1, lam = 2000, lr = 5e-4. Each line is one setting: the mean F1 of the personal supports (Lasso), or how many of
the 30 personal models have the true rank 5 (matrix). An entry or singular value below 1e-2 counts as zero. The table is
saved in results/pfedfbe.json.
"""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path
from typing import Any

import jax
import numpy as np

import fedax
from fedax.models import model
from fedax.regularizers import L1, Nuclear

STEPS = ((2000.0, 5e-4), (3000.0, 3e-4), (3000.0, 1e-4), (10_000.0, 1e-5))  # lam, lr
SCHEDULE = {"rounds": 200, "cohort": 10, "local_steps": 20, "batch_size": 50, "eval_every": 50}


def ranks(result: fedax.Result) -> list[int]:
    """The numerical rank of each client's own matrix."""
    kernels = [np.asarray(jax.tree.leaves(result.personal(i))[-1]) for i in range(result.clients)]
    return [int(np.sum(np.linalg.svd(kernel, compute_uv=False) > 1e-2)) for kernel in kernels]


def search(task: str) -> list[dict[str, Any]]:
    """Every strength of psi with every pair of lam and lr."""
    rows: list[dict[str, Any]] = []
    lasso = task == "lasso"
    federation = fedax.data.lasso("pfedfbe-II") if lasso else fedax.data.low_rank("pfedfbe")
    for strength, (lam, lr) in itertools.product((0.1, 1.0, 3.0), STEPS):
        psi = L1(strength) if lasso else Nuclear(strength)
        problem = fedax.Problem(model("linear" if lasso else "trace", outputs=1), loss="mse", regularizer=psi)
        row: dict[str, Any] = {"task": task, "psi": strength, "lam": lam, "lr": lr}
        try:
            result = fedax.simulate(problem, federation, fedax.PFedFBE(lr=lr, lam=lam), **SCHEDULE)
        except fedax.DivergedError as error:
            row["diverged"] = error.round
        else:
            last = result.history[-1]
            row["recovery error"] = round(last["personal_recovery_error"], 3)
            if lasso:
                row["f1"] = round(last["personal_f1"], 3)
            else:
                row |= {"clients with rank 5": ranks(result).count(5), "median rank": float(np.median(ranks(result)))}
        rows.append(row)
        print(row, flush=True)
    return rows


def main() -> None:
    """Print and save both searches."""
    logging.getLogger("fedax").setLevel(logging.ERROR)
    rows = search("lasso") + search("matrix")
    saved = Path(__file__).parent / "results" / "pfedfbe.json"
    saved.parent.mkdir(exist_ok=True)
    saved.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
