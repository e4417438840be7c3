"""A user's own rows: tables with a label column and perhaps a client column, and NumPy archives.

`fedax.data.tables.kinds` says what becomes of a table's columns, `labels` of its label. The readers of tables return
a checked `Table`; those of arrays the arrays `x`, `y` and, where a client column is named, `client`, as they stand.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedax.data.checks import Array
from fedax.data.datasets.formats import own_file, reason
from fedax.data.tables.table import Table, check
from fedax.errors import FedaxError, unknown
from fedax.extras import needed
from fedax.memory import check_memory

MOST = 100_000  # columns of a CSV file: each costs what a small table does


def csv(path: str, **columns: Any) -> Table:
    """A CSV file with a header."""
    return check(read_csv(path), str(own_file(path)), **columns)


def read_csv(path: str | Path) -> Any:
    """The frame of a CSV file with a header; only an empty cell is missing, so a client may be called NA."""
    pandas = needed("pandas", "tables", "a table")

    file = own_file(path)
    try:
        with file.open("rb") as opened:
            columns = opened.readline(1 << 26).count(b",") + 1
        if columns > MOST:
            raise FedaxError(f"{file} has {columns:,} columns: it must have at most {MOST:,}")
        header = pandas.read_csv(file, header=None, nrows=1, dtype=str, keep_default_na=False)
        _refuse_other_separators(header, file)
        twice = header.iloc[0][header.iloc[0].duplicated()]
        if len(twice):
            raise FedaxError(f"{file} has two columns named {twice.iloc[0]!r}: names must be distinct")
        return pandas.read_csv(file, keep_default_na=False, na_values=[""], low_memory=False)
    except UnicodeDecodeError:
        raise FedaxError(f"{file} is not in UTF-8: save it in that encoding, as spreadsheets offer") from None
    except (ValueError, OSError, EOFError) as error:
        if isinstance(error, FedaxError):
            raise
        raise FedaxError(f"{file} is not a CSV file: {reason(error)}") from error


def _refuse_other_separators(header: Any, file: Path) -> None:
    """Refuse a file whose header is one name with separators in it."""
    first = str(header.iloc[0, 0])
    found = next((mark for mark in (";", "\t", "|") if mark in first), None)
    if header.shape[1] == 1 and found is not None:
        name = {";": "semicolons", "\t": "tabs", "|": "bars"}[found]
        comma = ", decimal=','" if found == ";" else ""
        raise FedaxError(
            f"{file} has {name} between its columns: a CSV file must have commas, and decimal points, as "
            f"pandas.read_csv({str(file)!r}, sep={found!r}{comma}).to_csv('commas.csv', index=False) writes them"
        )


def parquet(path: str, **columns: Any) -> Table:
    """A Parquet file."""
    return check(read_parquet(path), str(own_file(path)), **columns)


def read_parquet(path: str | Path) -> Any:
    """The frame of a Parquet file."""
    pandas = needed("pandas", "tables", "a table")

    file = own_file(path)
    try:
        return pandas.read_parquet(file)
    except ImportError:
        raise FedaxError(f"{file} cannot be read without pyarrow: pip install 'fedax[parquet]'") from None
    except (ValueError, OSError) as error:  # pyarrow's errors are ValueErrors and OSErrors
        raise FedaxError(f"{file} is not a Parquet file: {reason(error)}") from error


def read_table(path: str | Path) -> Any:
    """The frame of a file: Parquet if its name says so, else CSV."""
    return read_parquet(path) if str(path).endswith((".parquet", ".pq")) else read_csv(path)


def huggingface(path: str, **columns: Any) -> Table | dict[str, Array]:
    """A directory that `save_to_disk` of a Hugging Face dataset has written."""
    folder = own_file(path)
    try:
        from datasets import Dataset, load_from_disk
    except ImportError:
        raise FedaxError(f"{folder} cannot be read without datasets: pip install 'fedax[huggingface]'") from None
    try:
        stored = load_from_disk(str(folder))
    except (ValueError, OSError) as error:
        raise FedaxError(f"{folder} is not a saved Hugging Face dataset: {reason(error)}") from error
    if not isinstance(stored, Dataset):
        raise FedaxError(f"{folder} holds the datasets {', '.join(stored)}: path must name one of them")
    return from_huggingface(stored, str(folder), **columns)


def numpy(path: str, features: str = "x", label: str = "y", client: str | None = None) -> dict[str, Array]:
    """An npz archive: the arrays of these names as they are, one row an example."""
    file = own_file(path)
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as stored:
            check_memory(f"{file} unpacked", sum(member.file_size for member in stored.zip.infolist()))
            arrays = {key: array for key in stored if isinstance(array := stored[key], np.ndarray)}
    except FedaxError:
        raise
    except (ValueError, OSError, EOFError, AttributeError, TypeError, MemoryError, zipfile.BadZipFile) as error:
        raise FedaxError(f"{file} is not an npz file of plain arrays: {reason(error)}") from error
    asked = {"x": features, "y": label, **({"client": client} if client is not None else {})}
    for name in asked.values():
        if name not in arrays:
            raise unknown(f"array of {file}", name, arrays)
    chosen = {key: arrays[name] for key, name in asked.items()}
    shapes = {asked[key]: array.shape for key, array in chosen.items()}
    if not all(shape and shape[0] for shape in shapes.values()) or len({shape[0] for shape in shapes.values()}) > 1:
        raise FedaxError(f"{file} has arrays of the shapes {shapes}: all must have the same number of rows, at least 1")
    for key, array in chosen.items():
        if array.dtype.kind == "c" or (array.ndim > 1 and 0 in array.shape):
            has = "complex numbers" if array.dtype.kind == "c" else f"rows of shape {array.shape[1:]}, which are empty"
            raise FedaxError(f"{file} has {has} in {asked[key]}: rows must be real numbers, at least 1 each")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise FedaxError(f"{file} has NaN or infinity in {asked[key]}: all must be finite")
    return chosen


def from_huggingface(
    dataset: Any, owner: str, *, label: str, features: Sequence[str] | None = None, **columns: Any
) -> Table | dict[str, Array]:
    """A Hugging Face dataset: a table, or of one column of images or arrays the arrays as they are."""
    names = list(dataset.column_names)
    if label not in names:
        raise unknown(f"column of {owner}", label, names)
    chosen = [name for name in names if name not in (label, columns.get("client"))] if features is None else features
    scalar = ("Value", "ClassLabel")
    whole = [name for name in chosen if name in names and type(dataset.features[name]).__name__ not in scalar]
    if not whole:
        return check(dataset.to_pandas(), owner, label=label, features=features, **columns)
    if len(chosen) > 1:
        raise FedaxError(f"features is {list(chosen)}: {whole[0]} holds arrays, so it must be the only one")
    pandas = needed("pandas", "tables", "a table")

    scalars = {name: list(dataset[name]) for name in (label, columns.get("client")) if name in names}
    frame = pandas.DataFrame({**scalars, chosen[0]: np.arange(len(dataset)) / 2})
    rest = check(frame, owner, label=label, features=chosen, **columns)
    feature = dataset.features[chosen[0]]
    image = type(feature).__name__ == "Image"
    kind = None if image else getattr(feature, "feature", feature).dtype
    rows = [np.asarray(row, kind) for row in dataset[chosen[0]]]
    if len({row.shape for row in rows}) > 1:
        raise FedaxError(f"{owner} has arrays of different shapes in {chosen[0]}: all must have the same")
    labels = rest.y if rest.labels is None else np.array(rest.labels)[rest.y]
    clients = {} if rest.clients is None else {"client": rest.clients}
    return {"y": labels, "x": np.stack(rows), **clients}
