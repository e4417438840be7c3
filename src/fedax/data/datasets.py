"""Datasets by name, and `load`: a named dataset divided among clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedax.data import files, fmri
from fedax.data.checks import Array
from fedax.data.federation import Federation
from fedax.data.partitions import IID, Partition
from fedax.data.splits import is_label
from fedax.errors import FedaxError, unknown


@dataclass(frozen=True)
class Dataset:
    """A named dataset; `read` returns its flat arrays, `x` and `y`.

    >>> {key: (array.shape, str(array.dtype)) for key, array in DATASETS["digits"].read().items()}
    {'x': ((1797, 64), 'float32'), 'y': ((1797,), 'int32')}
    """

    name: str
    description: str
    read: Callable[[], dict[str, Array]]


def load(
    name: str,
    *,
    partition: Partition | None = None,
    split: Sequence[float] | None = (0.7, 0.1, 0.2),
    seed: int = 0,
) -> Federation:
    """The dataset of that name as a federation; the default partition is `IID(10)`.

    `info` holds the dataset's name, the partition, the number of classes (None for a regression) and the
    seed.

    >>> federation = load("iris", partition=IID(3), seed=1)
    >>> federation
    Federation(3 clients, 150 rows of x float32[4], y int32[]; rows a client: train 35, validation 5, test 10)
    >>> federation.info
    {'partition': 'IID(clients=3)', 'seed': 1, 'dataset': 'iris', 'classes': 3}
    """
    if name not in DATASETS:
        raise unknown("dataset", name, DATASETS)
    if partition is not None and not isinstance(partition, Partition):
        raise FedaxError(f"partition is {partition!r}: it must be a Partition such as IID(10), or None")
    arrays = DATASETS[name].read()
    classes = len(np.unique(arrays["y"])) if is_label(arrays["y"]) else None
    rule = IID(10) if partition is None else partition
    return rule.divide(arrays, split=split, seed=seed, info={"dataset": name, "classes": classes})


def _digits() -> dict[str, Array]:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return {"x": (x / 16).astype(np.float32), "y": y.astype(np.int32)}


def _breast_cancer() -> dict[str, Array]:
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    return {"x": _standardised(x), "y": y.astype(np.int32)}


def _wine() -> dict[str, Array]:
    from sklearn.datasets import load_wine

    x, y = load_wine(return_X_y=True)
    return {"x": _standardised(x), "y": y.astype(np.int32)}


def _iris() -> dict[str, Array]:
    from sklearn.datasets import load_iris

    x, y = load_iris(return_X_y=True)
    return {"x": _standardised(x), "y": y.astype(np.int32)}


def _diabetes() -> dict[str, Array]:
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True)
    return {"x": _standardised(x), "y": _standardised(y)}


def _standardised(a: Array) -> Array:
    """Mean 0 and standard deviation 1 over all rows of the dataset, column by column."""
    scaled: Array = (a - a.mean(axis=0)) / a.std(axis=0)
    return scaled.astype(np.float32)


DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        Dataset("digits", "8x8 images of handwritten digits, 10 classes, 1797 rows", _digits),
        Dataset("breast_cancer", "30 features of tumours, standardised, 2 classes, 569 rows", _breast_cancer),
        Dataset("wine", "13 chemical features of wines, standardised, 3 classes, 178 rows", _wine),
        Dataset("iris", "4 features of flowers, standardised, 3 classes, 150 rows", _iris),
        Dataset("diabetes", "10 features of patients, regression, all standardised, 442 rows", _diabetes),
        Dataset("mnist", "28x28 images of handwritten digits, 10 classes, 60000 rows (needs FEDAX_DATA)", files.mnist),
        Dataset("a9a", "123 binary features of people, 2 classes, 32561 rows (needs FEDAX_DATA)", files.a9a),
        Dataset("haxby", "530 voxels, faces against houses, 2 classes, 216 rows (needs FEDAX_DATA)", fmri.scans),
    )
}
