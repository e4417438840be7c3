"""The work of startup.py's comparison as a plain PyTorch loop: 24 runs of 60 rounds on digits, one after the other.

    python benchmarks/torch_comparison.py

All 24 are FedAvg (`torch_loops.py`), the cheapest of the eight methods, and nothing is evaluated, so a loop that had
all methods would take longer. The process ends with the last round; `startup.py` times it from its start.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from sklearn.datasets import load_digits

from benchmarks.torch_loops import federation
from benchmarks.workloads import Workload

METHODS, SEEDS, ROUNDS, CLIENTS = 8, 3, 60, 20


def digits() -> Workload:
    """Rows sorted by label and cut into one piece a client: about as many labels each as startup.py's partition has."""
    x, y = load_digits(return_X_y=True)
    order = np.argsort(y, kind="stable")
    x, y = (x[order] / 16).astype(np.float32), y[order].astype(np.int32)
    sizes = {"cohort": 10, "steps": 10, "batch": 20, "lr": 0.1}
    offsets = np.linspace(0, len(y), CLIENTS + 1).astype(np.int64)
    return Workload(
        "digits", "MLP on digits", "mlp", 10, "cross_entropy", x, y, offsets, options={"hidden": (64,)}, **sizes
    )


def main() -> None:
    """All runs."""
    task = digits()
    for _ in range(METHODS):
        for seed in range(SEEDS):
            run = federation(task, seed=seed)
            for _ in range(ROUNDS):
                run()


if __name__ == "__main__":
    main()
