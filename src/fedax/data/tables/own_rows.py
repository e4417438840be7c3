"""A user's own rows: tables with a label column and perhaps a client column, and NumPy archives.

Of a table, numbers are standardised over all rows, column by column, and the columns named as categorical become one
column of 0 and 1 for each of their values, in sorted order. A label of text, whole numbers or true and false is a
class; a label of decimal numbers is the target of a regression, and stays as it is.

The readers return the arrays `x`, `y` and, where a client column is named, `client`; labels and clients as they stand.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedax.data.checks import Array
from fedax.data.datasets.formats import own_file, reason
from fedax.data.tables.scaling import standardised
from fedax.errors import FedaxError, unknown

MANY = 1000  # values of a categorical column; more are rather names than categories


def csv(path: str, **columns: Any) -> dict[str, Array]:
    """A CSV file with a header; only an empty cell is missing, so a client may be called NA."""
    import pandas

    file = own_file(path)
    try:
        header = pandas.read_csv(file, header=None, nrows=1, dtype=str, keep_default_na=False)
        twice = header.iloc[0][header.iloc[0].duplicated()]
        if len(twice):
            raise FedaxError(f"{file} has two columns named {twice.iloc[0]!r}: names must be distinct")
        frame = pandas.read_csv(file, keep_default_na=False, na_values=[""], low_memory=False)
    except (ValueError, OSError, EOFError) as error:
        raise FedaxError(f"{file} is not a CSV file: {reason(error)}") from error
    return from_frame(frame, str(file), **columns)


def parquet(path: str, **columns: Any) -> dict[str, Array]:
    """A Parquet file."""
    import pandas

    file = own_file(path)
    try:
        frame = pandas.read_parquet(file)
    except ImportError:
        raise FedaxError(f"{file} cannot be read without pyarrow: pip install 'fedax[parquet]'") from None
    except (ValueError, OSError) as error:  # pyarrow's errors are ValueErrors and OSErrors
        raise FedaxError(f"{file} is not a Parquet file: {reason(error)}") from error
    return from_frame(frame, str(file), **columns)


def huggingface(path: str, **columns: Any) -> dict[str, Array]:
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
            arrays = {key: stored[key] for key in stored}
    except (ValueError, OSError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
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
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise FedaxError(f"{file} has NaN or infinity in {asked[key]}: all must be finite")
    return chosen


def from_frame(
    frame: Any,
    owner: str,
    *,
    label: str,
    client: str | None = None,
    features: Sequence[str] | None = None,
    categorical: Sequence[str] | None = None,
) -> dict[str, Array]:
    """The arrays of a pandas table; `owner` is named in the errors.

    >>> import pandas
    >>> table = pandas.DataFrame({"age": [30, 50], "city": ["oslo", "bodo"], "ill": ["no", "yes"]})
    >>> from_frame(table, "table", label="ill", categorical=["city"])["x"].tolist()
    [[-1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    """
    features, categorical = _columns(list(frame.columns), owner, label, client, features, categorical)
    if not len(frame):
        raise FedaxError(f"{owner} has no rows")
    for name in [*features, label, *([client] if client is not None else [])]:
        _check_full(frame[name], name, owner)
    blocks = [_one_hot(frame[name], name) if name in categorical else _number(frame[name], name) for name in features]
    arrays = {"x": np.concatenate(blocks, axis=1), "y": _label(frame[label])}
    return arrays if client is None else {**arrays, "client": frame[client].astype(str).to_numpy(np.str_)}


def from_huggingface(
    dataset: Any, owner: str, *, label: str, features: Sequence[str] | None = None, **columns: Any
) -> dict[str, Array]:
    """The arrays of a Hugging Face dataset: as of a table, or of one column of images or arrays as they are."""
    names = list(dataset.column_names)
    if label not in names:
        raise unknown(f"column of {owner}", label, names)
    chosen = [name for name in names if name not in (label, columns.get("client"))] if features is None else features
    scalar = ("Value", "ClassLabel")
    whole = [name for name in chosen if name in names and type(dataset.features[name]).__name__ not in scalar]
    if not whole:
        return from_frame(dataset.to_pandas(), owner, label=label, features=features, **columns)
    if len(chosen) > 1:
        raise FedaxError(f"features is {list(chosen)}: {whole[0]} holds arrays, so it must be the only one")
    import pandas

    scalars = {name: list(dataset[name]) for name in (label, columns.get("client")) if name in names}
    frame = pandas.DataFrame({**scalars, chosen[0]: 0.0})
    rest = from_frame(frame, owner, label=label, features=chosen, **columns)
    feature = dataset.features[chosen[0]]
    image = type(feature).__name__ == "Image"
    kind = None if image else getattr(feature, "feature", feature).dtype
    rows = [np.asarray(row, kind) for row in dataset[chosen[0]]]
    if len({row.shape for row in rows}) > 1:
        raise FedaxError(f"{owner} has arrays of different shapes in {chosen[0]}: all must have the same")
    return {**rest, "x": np.stack(rows)}


def _columns(
    known: list[Any], owner: str, label: str, client: str | None, features: Any, categorical: Any
) -> tuple[list[str], list[str]]:
    """The feature columns and the categorical ones among them; a wrong name raises."""
    twice = {name for name in known if known.count(name) > 1}
    if twice:
        raise FedaxError(f"{owner} has two columns named {min(twice)!r}: names must be distinct")
    for field, names in (("features", features), ("categorical", categorical)):
        if names is not None and (isinstance(names, str) or not np.iterable(names)):
            raise FedaxError(f"{field} is {names!r}: it must be a list of columns")
    held = [label, *([client] if client is not None else [])]
    chosen = [name for name in known if name not in held] if features is None else list(features)
    for name in [*held, *chosen, *(categorical or [])]:
        if name not in known:
            raise unknown(f"column of {owner}", name, [str(name) for name in known])
    for name in categorical or []:
        if name not in chosen:
            raise FedaxError(f"categorical names {name!r}: it must be one of the features {', '.join(chosen)}")
    if not chosen or set(chosen) & set(held) or len(set(held)) < len(held):
        raise FedaxError(f"features is {chosen}: there must be at least 1, none of them the label or the client column")
    return chosen, list(categorical or [])


def _check_full(column: Any, name: str, owner: str) -> None:
    empty = column.isna().to_numpy()
    if empty.any():
        raise FedaxError(
            f"{owner} has nothing in column {name!r} at row {1 + int(empty.argmax())}: "
            "fill it in, or leave the row or the column out"
        )


def _number(column: Any, name: str) -> Array:
    """One standardised column of numbers."""
    import pandas

    if not pandas.api.types.is_numeric_dtype(column.dtype):  # bool counts as numeric
        numbers = pandas.to_numeric(column.astype(str), errors="coerce")
        row = int(numbers.isna().to_numpy().argmax())
        raise FedaxError(
            f"column {name!r} has {str(column.iloc[row])!r} at row {row + 1}: "
            "it must be a number, or the column be named in categorical"
        )
    values = column.to_numpy(np.float64)
    if not np.isfinite(values).all():
        raise FedaxError(f"column {name!r} is infinite at row {1 + int((~np.isfinite(values)).argmax())}")
    return standardised(values)[:, None]


def _one_hot(column: Any, name: str) -> Array:
    """A column of 0 and 1 for each value."""
    values, code = np.unique(column.astype(str).to_numpy(np.str_), return_inverse=True)
    if len(values) > MANY:
        raise FedaxError(f"categorical names {name!r}, which has {len(values)} values: at most {MANY} are allowed")
    return np.eye(len(values), dtype=np.float32)[code]


def _label(column: Any) -> Array:
    import pandas

    kind = pandas.api.types
    if kind.is_float_dtype(column.dtype):
        return np.asarray(column.to_numpy(np.float32))
    if kind.is_integer_dtype(column.dtype) or kind.is_bool_dtype(column.dtype):
        return np.asarray(column.to_numpy(np.int64))
    return np.asarray(column.astype(str).to_numpy(np.str_))
