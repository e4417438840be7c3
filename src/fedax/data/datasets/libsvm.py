"""Sets in LibSVM's text format: a9a and w8a by name, any other from a file."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedax.data.checks import Array, check_count
from fedax.data.datasets.fetching import Published, find
from fedax.data.datasets.formats import own_file, read_libsvm
from fedax.errors import FedaxError

_ADDRESS = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"

# The hashes of a9a are those that others found; its publisher states none.
A9A = (
    Published(
        "a9a/a9a", (_ADDRESS + "a9a",), "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906", 2329875
    ),
    Published(
        "a9a/a9a.t", (_ADDRESS + "a9a.t",), "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9", 1164628
    ),
)
# Nobody states a hash of w8a; its publisher states how many rows it has. The first download is pinned (`fetching`).
W8A = (
    Published("w8a/w8a", (_ADDRESS + "w8a",), lines=49749),
    Published("w8a/w8a.t", (_ADDRESS + "w8a.t",), lines=14951),
)


def a9a(part: Literal["train", "test"]) -> dict[str, Array]:
    """123 binary features of people, whether they earn above 50,000."""
    return _binary(A9A[part == "test"], 123)


def w8a(part: Literal["train", "test"]) -> dict[str, Array]:
    """300 binary features of web pages, whether they are of one category."""
    return _binary(W8A[part == "test"], 300)


def libsvm(path: str, features: int | None = None) -> dict[str, Array]:
    """Any file in the format: labels that are all whole numbers are classes, others the targets of a regression."""
    if features is not None:
        check_count("features", features, 1)
    x, y = read_libsvm(own_file(path), features)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise FedaxError(f"{path} has NaN or infinity: all must be finite")
    whole = (y == np.round(y)).all()
    return {"x": x, "y": y.astype(np.int64) if whole else y.astype(np.float32)}


def _binary(file: Published, features: int) -> dict[str, Array]:
    path = find(file)
    x, y = read_libsvm(path, features)
    if file.lines and len(y) != file.lines:
        raise FedaxError(f"{path} has {len(y)} rows: {file.name} as published has {file.lines}")
    return {"x": x, "y": (y > 0).astype(np.int32)}
