"""Predict new rows with an exported model: NumPy, pandas and safetensors are enough.

    python predict.py new.csv predictions.csv [CLIENT]

The file gets the columns that tell rows apart, the predicted label of each row and a column probability_<label> for
each class; a regression, the number. With CLIENT the client's own model predicts, where the folder has
personal.safetensors.

    from predict import load
    predict = load("the/folder")
    predict(pandas.read_csv("new.csv", keep_default_na=False, na_values=[""]))
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def load(folder: str | Path, client: str | None = None) -> Callable[[Any], Any]:
    """A function from a pandas table to the table of its predictions."""
    import applying  # type: ignore[import-not-found]  # it lies beside this file in an exported folder
    import forward  # type: ignore[import-not-found]
    import pandas
    from safetensors.numpy import load_file

    home = Path(folder)
    about, stored = (json.loads((home / name).read_text()) for name in ("preparation.json", "result.json"))
    own = home / "personal.safetensors"
    if client is not None and client not in about["clients"]:
        raise ValueError(f"unknown client {client!r}: it must be one of {', '.join(about['clients'])}")
    if client is None and not about["shared"]:
        raise ValueError("there is no shared model: name a client")
    params = forward.tree(stored["structure"], load_file(home / "model.safetensors"))
    if client is not None and own.is_file():
        stacked = forward.tree(stored["personal"], load_file(own))
        params = forward.of_client(stacked, about["clients"].index(client), params)

    def predict(frame: Any) -> Any:
        cells, problems = applying.parse(about["columns"], frame)
        if problems:
            raise ValueError("; ".join(problems))
        z = forward.outputs(params, applying.encode(about["columns"], cells))
        ids = [name for name, why in about["left_out"].items() if "tells rows apart" in why and name in frame.columns]
        shown = {name: frame[name].to_numpy() for name in ids}
        if about["task"] == "regression":
            return pandas.DataFrame({**shown, "prediction": z[:, 0]})
        proba, labels = forward.probabilities(z), about["labels"]
        columns = {f"probability_{label}": proba[:, i] for i, label in enumerate(labels)}
        return pandas.DataFrame({**shown, "prediction": np.array(labels)[proba.argmax(axis=1)], **columns})

    return predict


def main(arguments: list[str]) -> int:
    """Predict a CSV file's rows."""
    import pandas

    if len(arguments) not in (2, 3):
        print(__doc__)
        return 2
    try:
        table = pandas.read_csv(arguments[0], keep_default_na=False, na_values=[""], low_memory=False)
        found = load(Path(__file__).parent, *arguments[2:])(table)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    found.to_csv(arguments[1], index=False, float_format="%.6g")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
