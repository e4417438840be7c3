"""Published file formats, read from a data directory: idx images and labels, LibSVM text.

The directory is what the environment's FEDAX_DATA names. A file may be gzipped. One that is missing, cut short or
of another shape stops with a sentence that names it.
"""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

from fedax.data.checks import Array
from fedax.errors import FedaxError

_IDX_TYPES: dict[int, np.dtype[Any]] = {0x08: np.dtype(np.uint8), 0x0C: np.dtype(">i4")}


def find(relative: str) -> Path:
    """The file of that name, plain or gzipped, below the data directory."""
    root = os.environ.get("FEDAX_DATA")
    if not root:
        raise FedaxError(f"FEDAX_DATA is not set: it must name a directory that holds {relative} (or {relative}.gz)")
    for path in (Path(root) / relative, Path(root) / f"{relative}.gz"):
        if path.is_file():
            return path
    raise FedaxError(f"{Path(root) / relative} is missing: put the file there, or {relative}.gz")


def content(path: Path) -> bytes:
    """A file's bytes, unzipped where it is gzipped."""
    raw = path.read_bytes()
    if raw[:2] != b"\x1f\x8b":
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError) as error:
        raise FedaxError(f"{path} is truncated or corrupt: {error}") from error


def read_idx(path: Path) -> Array:
    """An array in the idx format of MNIST."""
    raw = content(path)
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in _IDX_TYPES:
        raise FedaxError(f"{path} is not an idx file")
    kind, axes = _IDX_TYPES[raw[2]], raw[3]
    shape = struct.unpack_from(f">{axes}I", raw, 4) if len(raw) >= 4 + 4 * axes else (0,)
    expected = 4 + 4 * axes + kind.itemsize * int(np.prod(shape))
    if len(raw) != expected:
        raise FedaxError(f"{path} is truncated: {len(raw)} bytes where its header asks for {expected}")
    values: Array = np.frombuffer(raw, kind, offset=4 + 4 * axes).reshape(shape)
    return values


def read_libsvm(path: Path, features: int) -> dict[str, Array]:
    """LibSVM text as dense float32 rows and labels 0 and 1."""
    import io

    from sklearn.datasets import load_svmlight_file

    try:
        x, y = load_svmlight_file(io.BytesIO(content(path)), n_features=features)
    except ValueError as error:
        raise FedaxError(f"{path} is not LibSVM text with {features} features: {error}") from error
    return {"x": x.toarray().astype(np.float32), "y": (y > 0).astype(np.int32)}


def mnist() -> dict[str, Array]:
    """MNIST's training images as bytes [28, 28], and their labels."""
    x = read_idx(find("mnist/train-images-idx3-ubyte"))
    y = read_idx(find("mnist/train-labels-idx1-ubyte"))
    if x.shape[1:] != (28, 28) or len(x) != len(y):
        raise FedaxError(f"MNIST's files do not fit: images {x.shape}, labels {y.shape}")
    return {"x": x, "y": y.astype(np.int32)}


def a9a() -> dict[str, Array]:
    """LibSVM's a9a: 123 binary features of people, whether they earn above 50,000."""
    return read_libsvm(find("a9a/a9a"), 123)
