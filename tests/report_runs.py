"""Run directories that the report's tests are about, made by hand so that every number on a page is known."""

from __future__ import annotations

import html
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from fedax.evaluation.protocol import Clients, Moment
from fedax.report import find
from fedax.report.packing import unpack

NASTY = "<script>alert(1)</script> & 'co' %{x}"
CLIENTS, LABELS = 6, 3


def experiment(label: str, seed: int, **changes: Any) -> dict[str, Any]:
    return {
        "name": "two labels each",
        "rounds": 10,
        "cohort": None,
        "local_steps": 5,
        "batch_size": 20,
        "weighted": True,
        "seed": seed,
        "data": {"name": "digits", "seed": 0, "partition": {"name": "ByLabel", "clients": 6, "labels": 2}},
        "model": {"name": "mlp", "hidden": [32]},
        "algorithm": {"name": label, "label": label, "lr": 0.1},
        "versions": {"fedax": "0.1.0", "jax": "0.10.0"},
    } | changes


def history(final: float, personal: float | None, rounds: tuple[int, ...] = (0, 5, 10)) -> list[dict[str, Any]]:
    rows = []
    for r in rounds:
        row: dict[str, Any] = {"round": r}
        for prefix, value in (("", final), ("personal_", personal)):
            if value is not None:
                accuracy = 0.1 + (value - 0.1) * r / rounds[-1]
                row |= {f"{prefix}test_accuracy": accuracy, f"{prefix}test_loss": 2 - accuracy}
                row |= {f"{prefix}test_accuracy_mean": accuracy, f"{prefix}test_accuracy_std": 0.05}
                row |= {f"{prefix}test_accuracy_worst": accuracy / 2}
        rows.append(row | {"gradients": 30 * r, "floats_up": 600 * r, "floats_down": 1200 * r, "seconds": r / 10})
    return rows


def clients(personal: bool) -> dict[str, Any]:
    values = {"test": {"accuracy": [0.1 * i for i in range(CLIENTS)], "loss": [1.0] * CLIENTS}}
    if personal:
        values["personal_test"] = {"accuracy": [0.9, None, 0.8, 0.7, 0.9, 1.0], "loss": [0.5] * CLIENTS}
    return {
        "names": [f"client {i}" for i in range(CLIENTS)],
        "label_counts": [[10 * (i % LABELS == label) for label in range(LABELS)] for i in range(CLIENTS)],
        "rows": {"train": [10] * CLIENTS, "validation": [0] * CLIENTS, "test": [5] * CLIENTS},
        "values": values,
    }


def make(folder: Path, rows: list[dict[str, Any]], **documents: Any) -> Path:
    """A run directory; a status of finished unless another is given."""
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, content in ({"status": {"status": "finished", "round": 10, "rounds": 10}} | documents).items():
        if content is not None:
            (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def comparison(folder: Path, label: str = "FedAvg") -> list[Path]:
    """Two methods with three seeds each, the second personalised."""
    for seed, (shared, low, own) in enumerate([(0.80, 0.70, 0.90), (0.82, 0.70, 0.92), (0.84, 0.70, 0.97)]):
        first, second = experiment(label, seed), experiment("APFL", seed)
        make(folder / f"runs/a-{seed}", history(shared, None), experiment=first, clients=clients(False))
        make(folder / f"runs/b-{seed}", history(low, own), experiment=second, clients=clients(True))
    return find(folder)


def everything(folder: Path) -> list[Path]:
    """A comparison with a label that is markup, a diverged run, a bare log cut short, and a regression."""
    found = comparison(folder, NASTY)
    stopped = {"status": "diverged", "round": 5, "rounds": 10, "message": "the loss is NaN"}
    rows = history(0.5, None, (0, 5))
    found.append(make(folder / "d", rows, experiment=experiment("SCAFFOLD", 0), status=stopped))
    found.append(make(folder / "bare", history(0.6, None), status=None))
    with (folder / "bare/metrics.jsonl").open("a") as log:
        log.write('{"round": 15, "test_acc')
    losses = [{"round": r, "train_loss": 10.0**-r, "train_loss_worst": 1.0, "gradients": r} for r in (0, 4, 8)]
    found.append(make(folder / "regression", losses, experiment=experiment("GD", 0)))
    return found


def sweep(folder: Path) -> list[Path]:
    """A sweep of two methods over three by two settings, of which some diverged after round 3."""
    rows, histories = ["algorithm,seed,lr,server_lr,diverged,score,rounds_to_target"], []
    for label in (NASTY, "B"):
        for seed in (0, 1):
            for i, lr in enumerate((0.1, 1.0, 10.0)):
                for server_lr in (0.5, 1.0):
                    gone, score = lr == 10 and seed == 1, (i + server_lr + seed) / 10
                    rows.append(f'"{label}",{seed},{lr},{server_lr},{3 if gone else ""},{"" if gone else score},')
                    whose = {"algorithm": label, "seed": seed, "lr": lr, "server_lr": server_lr}
                    for r in (0, 1, 3, 10) if gone else (0, 1, 3, 10, 30):
                        f1 = math.nan if gone and r == 10 else score * r / 30
                        histories.append(json.dumps(whose | {"round": r, "f1": f1, "density": 1 - r / 60}))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sweep.csv").write_text("\n".join(rows) + "\n")
    (folder / "histories.jsonl").write_text("\n".join(histories) + '\n{"algorithm": "B", "se')
    about = {"lr": [0.1, 1.0, 10.0], "server_lr": [0.5, 1.0], "metric": "f1", "goal": "max", "over": 5, "target": None}
    (folder / "experiment.json").write_text(json.dumps({"sweep": about}))
    return [
        make(folder / "runs" / str(i), history(0.5, None), experiment=experiment(label, 0))
        for i, label in enumerate((NASTY, "B"))
    ]


def composite(folder: Path) -> list[Path]:
    """Two methods with a sparse model: drift, density and F1 at rounds 0, 5 and 10."""
    for label, densities in (("FedMiD", (0.0, 0.75, 0.5)), ("FedDualAvg", (0.0, 0.5, 0.25))):
        rows = []
        for r, density, f1 in zip((0, 5, 10), densities, (0.0, 0.4, 1.0), strict=True):
            signs = {"drift": 1 / r, "diversity": 1.0} if r else {}
            measured = {"test_loss": 2.0 - f1, "density": density, "precision": f1, "f1": f1, **signs}
            rows.append({"round": r, **measured, "gradients": 30 * r})
        make(folder / "runs" / label, rows, experiment=experiment(label, 0))
    return find(folder)


def moments(shift: float, *, shared: bool = True, personal: bool = True) -> dict[str, Any]:
    """Five clients: the third never joins, the fourth does in round 8, the fifth is held out. Every metric at the last
    round is half of that at the chosen one."""
    own, common = np.array([0.75, 0.75, 0.25, 0.5, 0.9]) + shift, np.array([0.5, 0.5, 0.5, 0.5, 0.4]) + shift
    models = {"shared": common} if shared else {}
    models |= {"personal": own} if personal else {}
    rows = {"train": np.full(5, 8), "validation": np.full(5, 2), "test": np.array([10, 10, 10, 30, 10])}

    def moment(round: int, scale: float) -> Moment:
        return Moment(round, {name: {"test": {"accuracy": scale * of}} for name, of in models.items()})

    joined, unseen = np.array([1, 2, 0, 8, 0]), np.arange(5) == 4
    names = tuple(f"client {i}" for i in range(5))
    kept = Clients(names, rows, joined, unseen, {"last": moment(10, 0.5), "chosen": moment(6, 1.0)})
    return kept.as_json() | {"label_counts": [[2 * (i == label) for label in range(5)] for i in range(5)]}


def personal(folder: Path) -> list[Path]:
    """A personal method, one without personal models, and training alone; two seeds, the second 2 % better."""
    for seed in (0, 1):
        for label, kept in (
            ("Ditto", moments(0.02 * seed)),
            ("FedAvg", moments(0.02 * seed, personal=False)),
            ("LocalOnly", moments(0.02 * seed - 0.125, shared=False)),
        ):
            plan = experiment(label, seed)
            make(folder / f"runs/{label}-{seed}", history(0.5, 0.6), experiment=plan, clients=kept)
    return find(folder)


def words(page: str) -> str:
    """A page without its scripts, style and tags."""
    bare = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", bare)))


def embedded(page: Path) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    data: dict[str, Any] = json.loads(unpack(found[1]))  # type: ignore[index]
    return data
