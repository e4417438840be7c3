"""A table's label column: classes, or numbers to be predicted.

Words, true and false, and up to 20 different whole numbers are classes, and so are 0.0 and 1.0; other decimal numbers
are a regression. Of more whole numbers, and of whole numbers in a column that has lost its kind to missing cells,
`task` must say which. Rows without a label are left out where missing cells are filled, and refused otherwise. Among
words NA, nan, null and ? are no label.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Literal

import numpy as np

from fedax.data.checks import Array
from fedax.data.tables.applying import absurd, first_row, numbers, texts
from fedax.data.tables.kinds import FEW, NO_WORD

Task = Literal["classification", "regression"]
TASKS = ("classification", "regression")
_WHOLE = re.compile(r"\s*[+-]?\d+\s*")


@dataclasses.dataclass(frozen=True, eq=False)
class Labels:
    """y: a class's number or the target of each row that is kept; values: of the classes, None for a regression."""

    y: Array
    values: list[Any] | None
    keep: Array
    problems: list[str]

    @property
    def task(self) -> Task:
        return "regression" if self.values is None else "classification"


def read_labels(column: Any, name: str, task: Task | None, leave_out: bool) -> Labels:
    """The labels of a table's rows.

    >>> import pandas
    >>> found = read_labels(pandas.Series(["1.5", "NA", "2.5"]), "price", None, leave_out=True)
    >>> found.y.tolist(), found.keep.tolist(), found.task
    ([1.5, 2.5], [True, False, True], 'regression')
    """
    values, missing, kind, problems = _read(column, name)
    keep = ~missing
    if problems:
        return Labels(np.zeros(0), None, keep, problems)
    if missing.all():
        return Labels(np.zeros(0), [], keep, [f"the label {name!r} is missing in all {len(missing):,} rows"])
    if missing.any() and not leave_out:
        some = f"the label {name!r} is missing in {int(missing.sum()):,} of {len(missing):,} rows"
        problems.append(f'{some} (first row {first_row(missing)}): missing = "fill" leaves these rows out')
    known = values[keep]
    if kind in ("whole", "decimal"):
        far = absurd(known.astype(np.float64))
        if far.any():
            row = int(np.flatnonzero(keep)[far.argmax()])
            shown = float(known[far.argmax()])
            what = "infinity" if np.isinf(shown) else f"the absurd value {shown:g}"
            problems.append(f"the label {name!r} has {what} at row {row + 1}: correct it, or leave the row out")
            return Labels(np.zeros(0), None if task == "regression" else [], keep, problems)
    if task is None and not problems:
        task, why = _task(kind, known, bool(missing.any()), name)
        problems += why
    if task == "regression":
        if kind == "words":
            problems.append(f"task is 'regression': the label {name!r} has words such as {str(known[0])!r}")
            return Labels(np.zeros(0), None, keep, problems)
        return Labels(known.astype(np.float32), None, keep, problems)
    if kind == "decimal" and task == "classification" and not np.all(known == np.floor(known)):
        problems.append(f"task is 'classification': the label {name!r} has decimal numbers such as {known[0]:g}")
        return Labels(np.zeros(0), [], keep, problems)
    found, code = np.unique(known.astype(np.int64) if kind in ("whole", "decimal") else known, return_inverse=True)
    classes = [bool(v) for v in found] if kind == "boolean" else found.tolist()
    if kind == "words" and len(classes) > FEW and 2 * len(classes) > len(known):
        problems.append(f"the label {name!r} has {len(classes):,} values in {len(known):,} rows: classes must repeat")
    if len(classes) < 2 and not problems:
        problems.append(
            f"the label {name!r} is {str(classes[0])!r} in all {len(known):,} rows: there must be at least two values"
        )
    return Labels(code.astype(np.int32), classes, keep, problems)


def _read(column: Any, name: str) -> tuple[Array, Array, str, list[str]]:
    """The cells, which are missing, whether they are whole, decimal, boolean or words, and what is wrong."""
    import pandas

    api = pandas.api.types
    empty = column.isna().to_numpy()
    if api.is_bool_dtype(column.dtype):
        return column.fillna(False).to_numpy(bool), empty, "boolean", []
    if api.is_numeric_dtype(column.dtype):
        values = column.to_numpy(np.float64, na_value=np.nan)
        return values, empty, "whole" if api.is_integer_dtype(column.dtype) else "decimal", []
    values, bad = numbers(column)
    missing = np.isnan(values) & ~bad
    text, _ = texts(column)
    written = [value for value, gone in zip(text, missing, strict=True) if not gone and value is not None]
    if not bad.any() and not missing.all():
        return values, missing, "whole" if all(map(_WHOLE.fullmatch, written)) else "decimal", []
    decimal = sum(1 for v in written if not _WHOLE.fullmatch(v)) - int(bad.sum())
    many = decimal > 0 or len(np.unique(values[~np.isnan(values)])) > FEW
    if many and 2 * int(bad.sum()) < len(written):  # numbers with points, or many of them, and a few words among them
        shown = str(column.iloc[int(bad.argmax())])
        sentence = f"the label {name!r} has {shown!r} at row {first_row(bad)}: it must be a number, as the others are"
        return values, missing, "decimal", [f"{sentence} ({int(bad.sum()):,} of {len(values):,} are none)"]
    if set(column.dropna().map(type)) == {bool}:
        return column.fillna(False).to_numpy(bool), empty, "boolean", []
    gone = np.array([value is None or value.strip().lower() in NO_WORD for value in text])
    small = {str(value).strip().lower() for value in text[~gone]}
    if small == {"true", "false"}:
        return np.array([str(value).strip().lower() == "true" for value in text]), gone, "boolean", []
    return np.where(gone, "", text).astype(np.str_), gone, "words", []


def _task(kind: str, known: Array, some_missing: bool, name: str) -> tuple[Task | None, list[str]]:
    """The task for whole and decimal numbers; where it cannot be told, the sentence that asks for it."""
    if kind in ("words", "boolean"):
        return "classification", []
    different = len(np.unique(known))
    whole = bool(np.all(known == np.floor(known)))
    ask = 'task = "regression" or task = "classification" must say what it is'
    if kind == "whole":
        if different <= FEW:
            return "classification", []
        return None, [f"the label {name!r} has more than {FEW} different whole numbers: {ask}"]
    if whole and different <= 2:  # 0.0 and 1.0, as pandas writes whole numbers that had gaps
        return "classification", []
    if some_missing and whole and different <= FEW:  # missing cells make decimals of whole numbers
        return None, [f"the label {name!r} has {different} different whole numbers and missing cells: {ask}"]
    return "regression", []
