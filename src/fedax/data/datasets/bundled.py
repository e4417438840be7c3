"""The sets that come with scikit-learn; features and the targets of a regression are standardised over all rows.

Importing scikit-learn takes longer than all else before an experiment's first round, so its files are read directly;
a version that keeps them elsewhere is asked for them.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fedax.data.checks import Array
from fedax.data.tables.scaling import standardised

FILES = {  # the table's file and its lines of heading; the last column is the target
    "digits": ("digits.csv.gz", 0),
    "breast_cancer": ("breast_cancer.csv", 1),
    "wine": ("wine_data.csv", 1),
    "iris": ("iris.csv", 1),
}


def digits() -> dict[str, Array]:
    """8x8 images of digits, flat, from 0 to 1.

    >>> digits()["x"].max()
    np.float32(1.0)
    """
    x, y = _load("digits")
    return {"x": (x / 16).astype(np.float32), "y": y.astype(np.int32)}


def breast_cancer() -> dict[str, Array]:
    """Tumours, malignant (0) or benign (1).

    >>> breast_cancer()["x"].shape
    (569, 30)
    """
    return _classes("breast_cancer")


def wine() -> dict[str, Array]:
    """Wines of three growers.

    >>> wine()["x"].shape
    (178, 13)
    """
    return _classes("wine")


def iris() -> dict[str, Array]:
    """Flowers of three species.

    >>> iris()["x"].shape
    (150, 4)
    """
    return _classes("iris")


def diabetes() -> dict[str, Array]:
    """Patients, and how far the disease went in a year.

    >>> diabetes()["y"].dtype
    dtype('float32')
    """
    x, y = _load("diabetes")
    return {"x": standardised(x), "y": standardised(y)}


def _classes(name: str) -> dict[str, Array]:
    x, y = _load(name)
    return {"x": standardised(x), "y": y.astype(np.int32)}


def _load(name: str) -> Any:
    file, heading = FILES.get(name, ("", 0))
    path = Path(getattr(find_spec("sklearn"), "origin", None) or "").parent / "datasets" / "data" / file
    if path.is_file():
        table = np.loadtxt(path, delimiter=",", skiprows=heading)
        return table[:, :-1], table[:, -1]
    from sklearn import datasets

    return getattr(datasets, f"load_{name}")(return_X_y=True)
