"""Datasets by name: rows that `load` divides among clients, and those that come divided, by `divided`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np

from fedax.data import files, fmri
from fedax.data.checks import Array
from fedax.data.federation import Federation
from fedax.data.generators import LASSO, LOW_RANK, Synthetic, lasso, low_rank
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


@dataclass(frozen=True)
class Divided:
    """A named dataset that comes divided among clients: `make` takes its options and returns the federation.

    presets: sizes by name, for a generated dataset; its options are `preset` and changes of the sizes.
    defaults: the other options.

    >>> FEDERATIONS["lasso"].resolved({"preset": "thesis-III", "rows": 16})["ones"]
    8
    """

    name: str
    description: str
    make: Callable[..., Federation]
    presets: Mapping[str, Synthetic] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> list[str]:
        """The names of all options; generated data takes a seed besides."""
        sizes = ["preset", *(f.name for f in fields(Synthetic))] if self.presets else []
        return [*sizes, *self.defaults]

    def resolved(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options with every default written out; a wrong one raises.

        >>> FEDERATIONS["low_rank"].resolved({})
        Traceback (most recent call last):
        fedax.errors.FedaxError: low_rank needs preset, one of thesis-I, thesis-II, thesis-III, thesis-IV, pfedfbe
        """
        for name in options:
            if name not in self.options:
                raise unknown(f"option of {self.name}", name, [*self.options, *(["seed"] if self.presets else [])])
        own = {name: _like(name, options.get(name, default), default) for name, default in self.defaults.items()}
        if not self.presets:
            return own
        changes = {name: value for name, value in options.items() if name not in own}
        preset = changes.pop("preset", None)
        if preset is None:
            raise FedaxError(f"{self.name} needs preset, one of {', '.join(self.presets)}")
        if not isinstance(preset, str) or preset not in self.presets:
            raise unknown(f"{self.name} preset", preset, self.presets)
        return {"preset": preset, **asdict(replace(self.presets[preset], **changes)), **own}


def divided(name: str, *, seed: int | None = None, **options: Any) -> Federation:
    """The federation of a dataset that comes divided among clients.

    >>> divided("lasso", preset="thesis-II", dimension=100, clients=3, rows=8, test_rows=2, seed=1)
    Federation(3 clients, 30 rows of x float32[100], y float32[]; rows a client: train 8, validation 0, test 2)
    """
    if name not in FEDERATIONS:
        raise unknown("divided dataset", name, FEDERATIONS)
    entry = FEDERATIONS[name]
    if seed is not None and not entry.presets:
        raise FedaxError(f"seed is {seed}: {name} has nothing to draw, so it must be left out")
    chosen = entry.resolved(options)
    return entry.make(**chosen) if seed is None else entry.make(**chosen, seed=seed)


def _like(name: str, value: Any, default: Any) -> Any:
    """A value of an option whose default is a number, or a tuple that a list of the same kind may replace."""
    if not isinstance(default, tuple):
        return value
    kind, words = (str, "names") if name == "classes" else (int, "whole numbers")
    if not isinstance(value, list | tuple) or not all(type(item) is kind for item in value):
        raise FedaxError(f"{name} is {value!r}: it must be a list of {words}")
    return tuple(value)


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

FEDERATIONS: dict[str, Divided] = {
    dataset.name: dataset
    for dataset in (
        Divided("lasso", "generated regressions with a sparse truth", lasso, LASSO, {"test_rows": 32}),
        Divided("low_rank", "generated regressions on matrices, low-rank truth", low_rank, LOW_RANK, {"test_rows": 32}),
        Divided(
            "haxby",
            "530 voxels of a brain that sees faces or houses, a client a run, 18 rows each (needs FEDAX_DATA)",
            fmri.haxby,
            defaults={"classes": ("face", "house"), "validation_runs": (), "test_runs": (10, 11)},
        ),
    )
}
