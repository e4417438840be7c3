"""Published file formats: idx arrays, LibSVM text, CIFAR's rows of bytes, archives of them.

A file may be gzipped. A file that is cut short, corrupt or of another shape raises one sentence that names it.
"""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedax.data.checks import Array
from fedax.errors import FedaxError
from fedax.memory import check_memory
from fedax.whole_files import is_regular

_IDX_TYPES: dict[int, np.dtype[Any]] = {0x08: np.dtype(np.uint8), 0x0C: np.dtype(">i4")}
_GZIP = b"\x1f\x8b"
_DAMAGE = (EOFError, OSError, zlib.error, tarfile.TarError, zipfile.BadZipFile)


def own_file(path: object) -> Path:
    """The user's file at a path; ~ is the home directory."""
    if not isinstance(path, str | Path) or not str(path):
        raise FedaxError(f"path is {path!r}: it must be the name of a file")
    named = Path(path).expanduser()
    try:
        regular = is_regular(named)
    except (OSError, ValueError):  # also of a name that no file can have
        raise FedaxError(f"{named.absolute()} is missing: path must name a file that exists") from None
    if not regular:
        raise FedaxError(f"{named.absolute()} is a pipe or a device: path must name a file")
    return named


def reason(error: Exception) -> str:
    """The first line of what an error says.

    >>> reason(OSError("not gzipped\\nnot a tar file"))
    'not gzipped'
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def content(path: Path) -> bytes:
    """A file's bytes, unzipped where it is gzipped."""
    return _unzipped(path.read_bytes(), path)


def _unzipped(raw: bytes, where: Path | str) -> bytes:
    if raw[:2] != _GZIP:
        return raw
    try:
        return gzip.decompress(raw)
    except _DAMAGE as error:
        raise FedaxError(f"{where} is truncated or corrupt: {reason(error)}") from error


def read_idx(path: Path) -> Array:
    """An array in the idx format of MNIST."""
    return parse_idx(content(path), path)


def parse_idx(raw: bytes, where: Path | str) -> Array:
    """The array of an idx file's bytes, which may be gzipped; `where` is named in the errors.

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]), "two bytes")
    array([7, 9], dtype=uint8)
    """
    raw = _unzipped(raw, where)
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in _IDX_TYPES:
        raise FedaxError(f"{where} is not an idx file")
    kind, axes = _IDX_TYPES[raw[2]], raw[3]
    shape = struct.unpack_from(f">{axes}I", raw, 4) if len(raw) >= 4 + 4 * axes else (0,)
    expected = 4 + 4 * axes + kind.itemsize * int(np.prod(shape, dtype=object))
    if len(raw) != expected:
        raise FedaxError(f"{where} is truncated: {len(raw)} bytes where its header asks for {expected}")
    values: Array = np.frombuffer(raw, kind, offset=4 + 4 * axes).reshape(shape)
    return values


def read_libsvm(path: Path, features: int | None = None) -> tuple[Array, Array]:
    """LibSVM text as dense float32 rows, and the labels as they stand; `features` if the last ones may be absent."""
    from sklearn.datasets import load_svmlight_file

    words = "LibSVM text" + (f" with {features} features" if features else "")
    try:
        x, y = load_svmlight_file(io.BytesIO(content(path)), n_features=features)
    except (ValueError, OverflowError) as error:
        raise FedaxError(f"{path} is not {words}: {reason(error)}") from error
    if not x.shape[0]:
        raise FedaxError(f"{path} is not {words}: it is empty")
    rows, columns = x.shape
    check_memory(f"{path} has {rows:,} rows and features up to number {columns:,}: as an array", 4 * rows * columns)
    return x.astype(np.float32).toarray(), y


def read_cifar(path: Path, members: Sequence[str], labels: int) -> dict[str, Array]:
    """The named files of CIFAR's archive: rows of `labels` label bytes, of which the last counts, and 3,072 pixels.

    Pixels are stored channel by channel; images come as [32, 32, 3].
    """
    blocks = [_rows(raw, labels + 3072, f"{path}: {name}") for name, raw in _tar(path, members)]
    x = np.empty((sum(map(len, blocks)), 32, 32, 3), np.uint8)
    ends = np.cumsum([len(block) for block in blocks])
    for block, end in zip(blocks, ends, strict=True):
        x[end - len(block) : end] = block[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return {"x": x, "y": np.concatenate([block[:, labels - 1] for block in blocks]).astype(np.int32)}


def _rows(raw: bytes, row: int, where: str) -> Array:
    if not raw or len(raw) % row:
        raise FedaxError(f"{where} is truncated: {len(raw)} bytes are no whole number of rows of {row}")
    return np.frombuffer(raw, np.uint8).reshape(-1, row)


def _tar(path: Path, members: Sequence[str]) -> list[tuple[str, bytes]]:
    """The bytes of the members of a tar file, whatever directories they are in, in the order asked for."""
    found: dict[str, bytes] = {}
    with path.open("rb") as file:
        zipped = file.read(2) == _GZIP
    try:
        with gzip.open(path) if zipped else path.open("rb") as stream:
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for member in archive:
                    name = member.name.rsplit("/", 1)[-1]
                    if name in members and (content := archive.extractfile(member)) is not None:
                        found[name] = content.read()
            while stream.read(1 << 20):  # to the end, where gzip's checksum is
                pass
    except _DAMAGE as error:
        raise FedaxError(f"{path} is truncated or corrupt: {reason(error)}") from error
    for name in members:
        if name not in found:
            raise FedaxError(f"{path} has no {name}: it must have {', '.join(members)}")
    return [(name, found[name]) for name in members]


def read_member(path: Path, name: str) -> bytes:
    """One file of a zip archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read(name)
    except KeyError:
        raise FedaxError(f"{path} has no {name}") from None
    except _DAMAGE as error:
        raise FedaxError(f"{path} is truncated or corrupt: {reason(error)}") from error
