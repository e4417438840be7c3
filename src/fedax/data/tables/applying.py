"""From a table's cells to a model's inputs, by a preparation that was computed from training rows.

    number, boolean, date    (value - mean) / scale, with `fill` for a missing value; a date counts in days
    category                 a column of 0 and 1 for each value seen in training; another value goes to the last
                             column, "other", where training rows were in it, and else is 0 in all of them
    flag                     a further column, 1 where the cell is missing

This file needs only NumPy and pandas, and nothing of Fedax, because an exported model contains a copy of it. So
problems are returned as sentences, for the caller to raise.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Cells = dict[str, Any]  #: a column's parsed cells: numbers with NaN for missing ones, or texts with None
Column = Mapping[str, Any]  #: name, kind, and what `fedax.data.tables.preparation` found for it

#: What a column of numbers, dates, true and false may have for a missing cell, in small letters.
MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "-", "--", "?", ".", "#n/a", "<na>", "nat"))
TRUE, FALSE = frozenset(("true", "yes", "t", "y", "1", "1.0")), frozenset(("false", "no", "f", "n", "0", "0.0"))
DAY = 86400e9  # nanoseconds
LARGEST = 1e18  # a value beyond this is a slip, whatever the column
LARGE = 1e9  # no value below this is a slip
FAR = 1e6  # and a large value is a slip if it is this many times the 90th percentile of the cells
NUMERIC = ("number", "boolean", "date")


def numbers(column: Any) -> tuple[Any, Any]:
    """A column's numbers, NaN where a cell is missing, and which cells are neither.

    >>> import pandas
    >>> values, bad = numbers(pandas.Series(["1.5", "NA", "forty"]))
    >>> values.tolist(), bad.tolist()
    ([1.5, nan, nan], [False, False, True])
    """
    import pandas

    if column.dtype.kind in "iuf" and isinstance(column.dtype, np.dtype):
        return column.to_numpy(), _none(column)
    if pandas.api.types.is_numeric_dtype(column.dtype):  # true and false too
        return column.to_numpy(np.float64, na_value=np.nan), _none(column)
    if pandas.api.types.is_datetime64_any_dtype(column.dtype):
        return np.full(len(column), np.nan), column.notna().to_numpy()
    text, missing = _stripped(column)
    values = pandas.to_numeric(text, errors="coerce").to_numpy(np.float64)
    return values, np.isnan(values) & ~missing


def booleans(column: Any) -> tuple[Any, Any]:
    """1 for true, 0 for false, NaN where a cell is missing, and which cells are none of these.

    >>> import pandas
    >>> booleans(pandas.Series([True, None, "false", "Yes"]))[0].tolist()
    [1.0, nan, 0.0, 1.0]
    """
    import pandas

    if pandas.api.types.is_numeric_dtype(column.dtype):
        values = column.to_numpy(np.float64, na_value=np.nan)
        return values, ~np.isnan(values) & (values != 0) & (values != 1)
    text, missing = _stripped(column)
    true, false = text.isin(TRUE).to_numpy(), text.isin(FALSE).to_numpy()
    return np.where(true, 1.0, np.where(false, 0.0, np.nan)), ~(true | false | missing)


def dates(column: Any, form: str) -> tuple[Any, Any]:
    """Days since 1970, NaN where a cell is missing, and which cells are no date of this form.

    form: "ISO8601", or as `strptime` has it.

    >>> import pandas
    >>> values, bad = dates(pandas.Series(["02.01.1970", "tomorrow"]), "%d.%m.%Y")
    >>> values.tolist(), bad.tolist()
    ([1.0, nan], [False, True])
    """
    import pandas

    if pandas.api.types.is_datetime64_any_dtype(column.dtype):
        found, missing = column, column.isna().to_numpy()
    else:
        text, missing = _stripped(column, lower=False)
        found = pandas.to_datetime(text, format=form, errors="coerce", utc=True)
    if found.dt.tz is not None:
        found = found.dt.tz_convert("UTC").dt.tz_localize(None)
    stamps = found.to_numpy("datetime64[ns]")
    none = np.isnat(stamps)
    return np.where(none, np.nan, stamps.astype(np.int64) / DAY), none & ~missing


def texts(column: Any) -> tuple[Any, Any]:
    """A column's cells as text, None where one is empty; whole numbers are written without a point.

    >>> import pandas
    >>> texts(pandas.Series([1.0, None]))[0].tolist(), texts(pandas.Series(["NA", ""]))[0].tolist()
    (['1', None], ['NA', None])
    """
    import pandas

    empty = column.isna().to_numpy()
    if pandas.api.types.is_float_dtype(column.dtype):
        floats = column.to_numpy(np.float64, na_value=np.nan)
        finite = np.isfinite(floats)
        whole = bool(np.all(~finite | (floats == np.floor(floats))))
        shown = finite & whole
        found = [None if e else str(int(v)) if w else str(v) for v, e, w in zip(floats, empty, shown, strict=True)]
    else:
        found = [None if e else str(v) for v, e in zip(column.to_numpy(object), empty, strict=True)]
        found = [None if v is None or not v.strip() else v for v in found]
    return np.array(found, object), _none(column)


def parse(columns: Sequence[Column], frame: Any) -> tuple[Cells, list[str]]:
    """The cells of a table's columns, and a sentence for everything that is wrong with them.

    A column whose `fill` is None may have no missing cells.
    """
    if not len(frame):
        return {}, ["the table has no rows: there must be at least 1"]
    cells: Cells = {}
    problems = []
    known = dict(zip(frame.columns, range(len(frame.columns)), strict=True))
    absent = [str(c["name"]) for c in columns if c["name"] not in known]
    if absent:
        problems.append(f"{_columns(absent)} {'is' if len(absent) == 1 else 'are'} missing from the table")
    empty = []
    for column in columns:
        name = column["name"]
        if name not in known:
            continue
        values, bad = parse_column(column, frame.iloc[:, known[name]])
        missing = is_missing(values) & ~bad
        problems += [f"column {name!r} has {sentence}" for sentence in _wrong(column, values, bad, frame)]
        if column.get("fill") is None and missing.any():
            empty.append(f"{name!r} in {_rows(missing)}")
        cells[name] = values
    if empty:
        problems.append(f"cells are missing: column {', '.join(empty)}")
    return cells, problems


def parse_column(column: Column, given: Any) -> tuple[Any, Any]:
    """One column's cells, and which of them are of another kind than the column."""
    kind = column["kind"]
    if kind == "date":
        return dates(given, column["form"])
    if kind == "category" and given.dtype.kind in "iuf" and column.get("values") and not _any_number(column["values"]):
        return texts(given)[0], given.notna().to_numpy()  # the cells are numbers where training rows have words
    return {"number": numbers, "boolean": booleans, "category": texts}[kind](given)


def is_missing(values: Any) -> Any:
    """Which parsed cells are missing.

    >>> is_missing(np.array([1.0, np.nan])).tolist(), is_missing(np.array(["a", None], object)).tolist()
    ([False, True], [False, True])
    """
    if values.dtype.kind == "O":
        return np.fromiter((v is None for v in values), bool, len(values))
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)


def encode(columns: Sequence[Column], cells: Cells) -> Any:
    """The inputs of a model, [rows, features] as float32; `feature_names` says what each is.

    >>> age = {"name": "age", "kind": "number", "fill": 40.0, "flag": True, "mean": 40.0, "scale": 10.0}
    >>> encode([age], {"age": np.array([30.0, np.nan])}).tolist()
    [[-1.0, 0.0], [0.0, 1.0]]
    """
    rows = len(next(iter(cells.values())))
    made = np.zeros((rows, sum(map(_width, columns))), np.float32)
    at = 0
    for column in columns:
        values = cells[column["name"]]
        missing = is_missing(values)
        if column["kind"] in NUMERIC:
            filled = np.where(missing, column["fill"] or 0.0, values) if missing.any() else values
            made[:, at] = (filled - column["mean"]) / column["scale"]
        else:
            place = {value: i for i, value in enumerate(column["values"])}
            other = len(place) if column["other"] else -1
            fill = place.get(column["fill"], other)
            code = np.fromiter((fill if v is None else place.get(v, other) for v in values), np.int64, rows)
            some = np.flatnonzero(code >= 0)
            made[some, at + code[some]] = 1
        at += _width(column)
        if column["flag"]:
            made[:, at - 1] = missing
    return made


def feature_names(columns: Sequence[Column]) -> list[str]:
    """The names of a model's inputs.

    >>> feature_names([{"name": "blood", "kind": "category", "values": ["A", "B"], "other": False, "flag": True}])
    ['blood = A', 'blood = B', 'blood missing']
    """
    names = []
    for column in columns:
        name = column["name"]
        if column["kind"] in NUMERIC:
            names.append(str(name))
        else:
            names += [f"{name} = {value}" for value in (*column["values"], *(["other"] if column["other"] else []))]
        names += [f"{name} missing"] if column["flag"] else []
    return names


def unseen(columns: Sequence[Column], cells: Cells) -> list[str]:
    """A sentence for each category column with values that no training row had: they have no coefficient of their own.

    >>> ward = {"name": "ward", "kind": "category", "values": ["A"], "other": False}
    >>> unseen([ward], {"ward": np.array(["A", "Z", "Z", None], object)})
    ["column 'ward' has values that the training rows did not have, in 2 of 4 rows: 'Z'"]
    """
    said = []
    for column in columns:
        if column["kind"] != "category" or column["other"]:
            continue  # "other" has values of training rows too
        known = set(column["values"])
        new = [value for value in cells[column["name"]] if value is not None and value not in known]
        if new:
            names = list(dict.fromkeys(new))
            some = ", ".join(map(repr, names[:5])) + (" ..." if len(names) > 5 else "")
            rows = f"{len(new):,} of {len(cells[column['name']]):,} rows"
            said.append(f"column {column['name']!r} has values that the training rows did not have, in {rows}: {some}")
    return said


def first_row(which: Any) -> int:
    """The first row of a table, counted from 1, that a mask names."""
    return 1 + int(np.argmax(which))


def absurd(values: Any) -> Any:
    """Which numbers are infinite or large enough to be slips, which would hide all other numbers of the column.

    >>> absurd(np.array([30.0, 1e160, 50.0, -np.inf])).tolist()
    [False, True, False, True]
    """
    if values.dtype.kind not in "iuf" or not len(values):
        return np.zeros(len(values), bool)
    with np.errstate(invalid="ignore"):
        low, high = (float(f(values)) for f in (np.fmin.reduce, np.fmax.reduce))
        if not max(-low, high) > LARGE:
            return np.zeros(len(values), bool)
        size = np.abs(values.astype(np.float64))
        known = size[size <= LARGEST]
        usual = float(np.quantile(known, 0.9)) if len(known) else 0.0
        return (size > LARGEST) | ((usual > 0) & (size > np.maximum(LARGE, FAR * usual)))


def _wrong(column: Column, values: Any, bad: Any, frame: Any) -> list[str]:
    """What is wrong with a column's cells, each after 'column ... has'."""
    kind, name = column["kind"], column["name"]
    words = {"number": "a number", "boolean": "true or false, or yes or no", "date": a_date(column.get("form"))}
    words["category"] = "a word, as in training"
    found = []
    if bad.any():
        shown = str(frame[name].iloc[int(np.argmax(bad))])
        found.append(f"{shown!r} at row {first_row(bad)}: it must be {words[kind]} ({_of(bad, len(values))})")
    far = absurd(values) if kind != "category" else np.zeros(0, bool)
    if kind != "category" and "scale" in column:  # one row has no others beside it: the training rows are
        with np.errstate(invalid="ignore"):
            far = far | (np.abs(values - column["mean"]) > LARGE * column["scale"])
    if far.any():
        value = float(values[int(np.argmax(far))])
        what = "infinity" if np.isinf(value) else f"the absurd value {value:g}"
        found.append(f"{what} at row {first_row(far)}: correct it, or leave the row out ({_of(far, len(values))})")
    return found


def a_date(form: str | None) -> str:
    """An example of a date in a form.

    >>> a_date("%d.%m.%Y")
    'a date such as 31.12.2024'
    """
    shown = "%Y-%m-%d" if form in (None, "ISO8601") else form
    return f"a date such as {datetime.date(2024, 12, 31).strftime(shown)}"


def _of(which: Any, rows: int) -> str:
    count = int(which.sum())
    return f"{count:,} of {rows:,} cells"


def _rows(which: Any) -> str:
    return f"{int(which.sum()):,} of {len(which):,} rows (first row {first_row(which)})"


def _columns(names: Sequence[str]) -> str:
    listed = ", ".join(map(repr, names[:10])) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    return f"column {listed}" if len(names) == 1 else f"columns {listed}"


def _any_number(values: Sequence[str]) -> bool:
    return any(value.strip().lstrip("+-").replace(".", "", 1).isdigit() for value in values)


def _none(column: Any) -> Any:
    return np.zeros(len(column), bool)


def _stripped(column: Any, lower: bool = True) -> tuple[Any, Any]:
    """The cells as text without spaces around them, and which are missing."""
    text = column.astype("string").str.strip().fillna("").astype(object)
    small = text.str.lower()
    return small if lower else text, small.isin(MISSING).to_numpy()


def _width(column: Column) -> int:
    values = 1 if column["kind"] in NUMERIC else len(column["values"]) + bool(column["other"])
    return values + bool(column["flag"])
