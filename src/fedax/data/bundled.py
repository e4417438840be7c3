"""The sets that come with scikit-learn; features and the targets of a regression are standardised over all rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedax.data.checks import Array
from fedax.data.scaling import standardised


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
    from sklearn import datasets

    return getattr(datasets, f"load_{name}")(return_X_y=True)
