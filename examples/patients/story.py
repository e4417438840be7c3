"""The whole story: twelve hospitals' table, a sparse model, personal models, predictions of new patients.

    python examples/patients/story.py [DIRECTORY] [ROWS]

Everything is written to the directory, by default patients/ here. The commands are those of the README.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pandas
from sklearn.metrics import roc_auc_score

from fedax.cli import invoke

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from make import write  # noqa: E402


def fedax(*words: str) -> None:
    """One command line, shown before it runs."""
    print("\n$ fedax", *words, flush=True)
    if code := invoke(list(words)):
        sys.exit(code)


def auc(file: str) -> float:
    """How well predictions rank the patients who came back."""
    truth = pandas.read_csv("truth.csv")["readmitted"] == "yes"
    return float(roc_auc_score(truth, pandas.read_csv(file)["probability_yes"]))


def main(folder: Path, rows: int) -> None:
    """Run the story in a directory."""
    write(folder, rows)
    for name in ("sparse.toml", "personal.toml"):
        shutil.copy(HERE / name, folder / name)
    os.chdir(folder)
    fedax("data", "info", "patients.csv")
    fedax("run", "sparse.toml", "--out", "runs/sparse", "--quiet")
    fedax("predict", "runs/sparse", "new.csv", "--out", "predictions.csv")
    fedax("compare", "personal.toml", "--out", "runs/personal", "--quiet")
    fedax("predict", "runs/personal/runs/apfl-seed0", "new.csv", "--own", "--out", "own.csv")
    fedax("export", "runs/sparse", "--model", "model")
    print(f"\nAUC on new patients: sparse model {auc('predictions.csv'):.4f}, own models by APFL {auc('own.csv'):.4f}")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(Path(given[0]) if given else Path("patients"), int(given[1]) if len(given) > 1 else 20_000)
