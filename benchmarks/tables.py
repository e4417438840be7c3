"""Tables: how long a wide one takes to be checked, and a file of patients to become predictions.

    python benchmarks/tables.py [--rows 100000] [--columns 10000]

Fedax checks a whole frame of single-precision numbers of this size; for comparison pandas counts the missing cells
(`isna().sum()`) and takes minimum and maximum, the least that any check looks at. Then examples/patients: `fedax run`
and `fedax predict` on its file, in a process with compiled programs on disk, and the AUC on new rows beside that of
scikit-learn's logistic regression on all rows in one place with the same preparation. Saved in results/tables.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas

ROOT = Path(__file__).resolve().parent.parent
PATIENTS = ROOT / "examples" / "patients"
RESULTS = ROOT / "benchmarks" / "results" / "tables.json"
sys.path[:0] = [str(ROOT), str(PATIENTS)]


def wide(rows: int, columns: int) -> dict[str, Any]:
    """Seconds to check a frame, and pandas' to look at it three times."""
    from fedax.data.tables.table import check

    rng = np.random.default_rng(0)
    values = rng.standard_normal((rows, columns), dtype=np.float32)
    frame = pandas.DataFrame(values, columns=[f"c{i}" for i in range(columns)], copy=False)
    frame["ill"] = rng.integers(0, 2, rows)
    began = time.perf_counter()
    check(frame, "wide", label="ill")
    checked = time.perf_counter() - began
    began = time.perf_counter()
    frame.isna().sum(), frame.min(), frame.max()
    return {
        "rows": rows,
        "columns": columns,
        "checked, s": round(checked, 2),
        "pandas, s": round(time.perf_counter() - began, 2),
    }


def patients() -> dict[str, Any]:
    """Seconds from the file to predictions, and the AUC beside scikit-learn's."""
    from make import write
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    from fedax.data.tables.preparation import Preparation

    seconds = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, 20_000)
        environment = {**os.environ, "FEDAX_CACHE": str(folder / "cache")}
        for i in range(2):  # the first compiles
            began = time.perf_counter()
            run = ["run", str(PATIENTS / "sparse.toml"), "--out", f"run{i}", "--quiet"]
            for words in (run, ["predict", f"run{i}", "new.csv", "--out", f"predictions{i}.csv"]):
                line = [sys.executable, "-m", "fedax", *words]
                subprocess.run(line, check=True, capture_output=True, cwd=folder, env=environment)
            seconds.append(round(time.perf_counter() - began, 2))
        truth = pandas.read_csv(folder / "truth.csv")["readmitted"] == "yes"
        ours = roc_auc_score(truth, pandas.read_csv(folder / "predictions1.csv")["probability_yes"])
        preparation = Preparation.from_json(json.loads((folder / "run1" / "preparation.json").read_text()))
        pooled = pandas.read_csv(folder / "patients.csv")
        model = LogisticRegression(solver="saga", l1_ratio=1.0, C=1 / (0.002 * len(pooled)), max_iter=2000)
        model.fit(preparation.transform(pooled), pooled["readmitted"] == "yes")
        new = preparation.transform(pandas.read_csv(folder / "new.csv"))
        theirs = roc_auc_score(truth, model.predict_proba(new)[:, 1])
    return {
        "cold, s": seconds[0],
        "warm, s": seconds[1],
        "AUC": round(float(ours), 4),
        "scikit-learn's AUC": round(float(theirs), 4),
    }


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description="Wide tables, and a table of patients.")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=10_000)
    given = parser.parse_args()
    table = {"patients": patients(), "wide": wide(given.rows, given.columns)}
    print(json.dumps(table, indent=1))
    RESULTS.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
