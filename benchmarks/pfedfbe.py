"""pFedFBE's Lasso and matrix problems: what the clients' own models find, judged by each client's own truth.

    python benchmarks/pfedfbe.py search          pFedFBE over psi, lam, lr, the Hessian and the personal steps
    python benchmarks/pfedfbe.py rates           the other methods over their rates, psi = 0.1 as printed
    python benchmarks/pfedfbe.py limit           what a client's 128 rows can tell when all else is known
    python benchmarks/pfedfbe.py table DIR CSV   the runs of `fedax reproduce pfedfbe-...`, as a table

The paper's schedule: 30 clients of 128 rows, 10 a round, 20 steps of batch 50, 200 rounds; its own numbers are
psi = 0.1, lam = 2000, lr = 5e-4. An entry or singular value below 1e-2 counts as zero. For a method without personal
models the shared one stands for them, as in the paper. The first three save their part of results/pfedfbe.json.
"""

from __future__ import annotations

import csv
import itertools
import json
import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import Lasso

import fedax
from fedax.evaluation.structure import structure
from fedax.models import model
from fedax.regularizers import L1, Nuclear
from fedax.runs.reading import run_folders

SAVED = Path(__file__).parent / "results" / "pfedfbe.json"
SCHEDULE = {"rounds": 200, "cohort": 10, "local_steps": 20, "batch_size": 50, "eval_every": 200}
ZERO = 1e-2
STEPS = ((2000.0, 5e-4), (2500.0, 5e-4), (3000.0, 3e-4), (10_000.0, 1e-5))  # lam, lr
DATA = {
    "lasso-I": lambda: fedax.data.lasso("pfedfbe-I"),
    "lasso-II": lambda: fedax.data.lasso("pfedfbe-II"),
    "matrix": lambda: fedax.data.low_rank("pfedfbe"),
}


def problem(task: str, strength: float) -> fedax.Problem:
    """The paper's objective, a mean over a client's rows, with psi on the weights alone."""
    psi = Nuclear(strength) if task == "matrix" else L1(strength)
    return fedax.Problem(model("trace" if task == "matrix" else "linear", outputs=1), loss="mse", regularizer=psi)


def truths(federation: fedax.Federation) -> np.ndarray:
    """Each client's true weights, one row a client."""
    weights = np.asarray(federation.info["truth"]["weights"])
    shape = (federation.clients, federation.arrays["x"][0].size)
    return np.broadcast_to(weights.reshape(-1, shape[1]), shape)


def judged(psi: Any, federation: fedax.Federation, result: fedax.Result) -> dict[str, Any]:
    """The means over clients of what their models find of their truths; for a matrix, how many have rank 5."""
    rows = [structure(psi, result.personal(i), truth, ZERO) for i, truth in enumerate(truths(federation))]
    names = (
        ("recovery_error", "rank") if "rank" in rows[0] else ("f1", "precision", "recall", "density", "recovery_error")
    )
    found = {name: round(float(np.mean([row[name] for row in rows])), 3) for name in names}
    return found | ({"clients_with_rank_5": sum(row["rank"] == 5 for row in rows)} if "rank" in rows[0] else {})


def side_by_side(task: str, strength: float, methods: list[Any], names: Iterable[str]) -> list[dict[str, Any]]:
    """Settings of one method, judged."""
    federation, made = DATA[task](), problem(task, strength)
    rows = []
    for method, result in zip(methods, fedax.sweep(made, federation, methods, **SCHEDULE), strict=True):
        diverged = result.info.get("diverged")
        what = judged(made.regularizer, federation, result) if diverged is None else {"diverged": diverged}
        values = {name: getattr(getattr(method, "base", method), name) for name in names}
        rows.append({"task": task, "psi": strength, **values, **what})
    return rows


def search() -> list[dict[str, Any]]:
    """pFedFBE. With personal steps the client's model comes from several proximal steps of length lr, not from one."""
    rows: list[dict[str, Any]] = []
    for task in ("lasso-II", "matrix"):
        for strength in (0.1, 0.3, 1.0, 3.0):
            exact = [fedax.PFedFBE(lr=lr, lam=lam) for lam, lr in STEPS]
            plain = fedax.PFedFBE(lr=5e-4, lam=2000.0, hessian="none")
            grids = [exact, [plain], *[[fedax.Localised(plain, steps=k)] for k in (20, 40)]]
            for steps, grid in zip((1, 1, 20, 40), grids, strict=True):
                found = side_by_side(task, strength, grid, ("lam", "lr", "hessian"))
                rows += [show({**row, "personal_steps": steps}) for row in found]
    return rows


def rates() -> list[dict[str, Any]]:
    """The methods of the paper's Lasso comparison; the matrix problem, slower by far, has the same smoothness."""
    rows: list[dict[str, Any]] = []
    plain = {"lr": [1e-4, 2e-4, 3e-4, 5e-4, 7e-4, 9e-4]}
    grids: list[tuple[Any, dict[str, list[float]]]] = [
        (fedax.FedAvg(lr=1.0), plain),
        (fedax.FedMiD(lr=1.0), plain),
        (fedax.FedDualAvg(lr=1.0), plain),
        (fedax.Ditto(lr=1.0, lam=1.0), plain),
        (fedax.PFedMe(lr=1.0, lam=15.0, inner_lr=1.0), {"lr": [0.01, 0.03, 0.06], "inner_lr": [2e-4, 4e-4]}),
    ]
    for task, (method, values) in itertools.product(("lasso-I", "lasso-II"), grids):
        found = side_by_side(task, 0.1, fedax.grid(method, values), values)
        rows += [show({"method": type(method).__name__, **row}) for row in found]
    return rows


def limit() -> list[dict[str, Any]]:
    """A client that is told the common part looks for its own part in its rows; other clients know nothing of it."""
    federation = DATA["lasso-II"]()
    lasso: dict[tuple[float, float], list[float]] = {}
    pairs, one_step = [], []
    for i, truth in enumerate(truths(federation)):
        x, y = (np.asarray(federation.client(i)[key], np.float64) for key in ("x", "y"))
        z, rest, real = x[:, 8:], y - x[:, :8].sum(1), truth[8:] > 0
        best = np.zeros_like(real)
        best[list(best_pair(z, rest))] = True
        pairs.append(f1(best, real))
        centred = (z - z.mean(0)).T @ (rest - rest.mean()) / len(y)
        one_step.append([f1(np.abs(centred) > t, real) for t in np.arange(0.2, 0.6, 0.01)])
        for strength in np.arange(0.1, 0.6, 0.05).round(2):
            own = np.abs(Lasso(alpha=strength, max_iter=50_000).fit(z, rest).coef_)
            for zero in (0.01, 0.05, 0.1, 0.15, 0.2):
                lasso.setdefault((strength, zero), []).append(f1(own > zero, real))
    found = {key: np.mean(values) for key, values in lasso.items()}
    rows = [
        {"lasso-II": "the two entries that explain most (told that there are two)", "f1": np.mean(pairs)},
        {"lasso-II": "a Lasso, best strength", "f1": max(v for (_, zero), v in found.items() if zero == ZERO)},
        {"lasso-II": "a Lasso, best strength and best threshold for zero", "f1": max(found.values())},
        {"lasso-II": "one gradient step, best threshold", "f1": np.mean(one_step, 0).max()},
    ]
    federation = DATA["matrix"]()
    found_sizes, alignments = [], []
    for i, truth in enumerate(truths(federation)):
        x, y = (np.asarray(federation.client(i)[key], np.float64) for key in ("x", "y"))
        rest = y - np.einsum("nii->ni", x)[:, :4].sum(1)
        direction = np.tensordot(rest - rest.mean(), x - x.mean(0), 1) / len(y)
        u, s, vt = np.linalg.svd(direction)
        own = int(np.flatnonzero(truth.reshape(32, 32).diagonal() == 0.25)[0])
        found_sizes.append(s[0])
        alignments.append(abs(u[own, 0] * vt[0, own]))
    rows.append(
        {"matrix": "largest singular value of a client's gradient (its own part: 0.25)", "mean": np.mean(found_sizes)}
    )
    rows.append(
        {
            "matrix": "cosine of that direction with the client's own",
            "mean": np.mean(alignments),
            "max": max(alignments),
        }
    )
    return [show({k: v if isinstance(v, str) else round(float(v), 3) for k, v in row.items()}) for row in rows]


def f1(own: np.ndarray, real: np.ndarray) -> float:
    """F1 of a support with the eight common entries right."""
    return float(2 * (8 + np.sum(own & real)) / (16 + own.sum() + real.sum()))


def best_pair(z: np.ndarray, y: np.ndarray) -> tuple[int, int]:
    """The two columns whose least squares leave the least."""
    c, gram = z.T @ y, z.T @ z
    size = np.diag(gram)
    area = np.outer(size, size) - gram**2
    np.fill_diagonal(area, np.inf)
    explained = (np.outer(c**2, size) + np.outer(size, c**2) - 2 * np.outer(c, c) * gram) / area
    first, second = np.unravel_index(np.argmax(explained), explained.shape)
    return int(first), int(second)


def table(folder: Path, out: Path) -> None:
    """One line a run: its settings, what its clients' models find of their truths, its last losses."""
    lines: list[dict[str, Any]] = []
    for path in run_folders(folder):
        about = json.loads((path / "experiment.json").read_text())
        status, result = json.loads((path / "status.json").read_text()), fedax.load(path)
        line = {"algorithm": about["algorithm"]["label"], "seed": about["seed"], "method": result.info["algorithm"]}
        line |= {"status": status["status"], "round": status["round"]}
        task = about["name"].removeprefix("pfedfbe-")
        if task in DATA and status["status"] == "finished":
            line |= judged(problem(task, 1.0).regularizer, DATA[task](), result)
        last = result.history[-1] if result.history else {}
        lines.append(show(line | {k: v for k, v in last.items() if "loss" in k or "objective" in k or "accuracy" in k}))
    with out.open("w") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for line in lines for key in line)), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def show(row: dict[str, Any]) -> dict[str, Any]:
    """Print a row as it is made."""
    print(row, flush=True)
    return row


def main() -> None:
    """Carry out one part."""
    logging.getLogger("fedax").setLevel(logging.ERROR)
    parts = {"search": search, "rates": rates, "limit": limit}
    if len(sys.argv) == 4 and sys.argv[1] == "table":
        table(Path(sys.argv[2]), Path(sys.argv[3]))
    elif len(sys.argv) == 2 and sys.argv[1] in parts:
        rows = parts[sys.argv[1]]()
        before = json.loads(SAVED.read_text()) if SAVED.exists() else {}
        SAVED.write_text(json.dumps({**before, sys.argv[1]: rows}, indent=1) + "\n")
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
