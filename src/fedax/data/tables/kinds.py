"""The kinds of a table's columns, recognised by their cells, and what becomes of each.

    number      standardised                    boolean     true and false or yes and no, as 1 and 0, standardised
    category    a column of 0 and 1 a value     date        left out, unless `dates` asks for it: days, standardised
    id          left out                        text        left out
    constant    left out

A column of whole numbers is an id if all differ and its name says so, or they count the rows; one of words if all
differ. Categories repeat: at most 20 of them, or one for each 10 rows, up to 1000. Other words are text. A column is
one of numbers or dates if more than half of its cells are; the others are then mistakes, and told with their number.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from fedax.data.checks import Array
from fedax.data.tables.applying import MISSING, a_date, absurd, booleans, dates, first_row, is_missing, numbers, texts

Kind = Literal["number", "category", "boolean", "date", "id", "constant", "text"]
MANY = 1000  # values of a categorical column; more of them are likely names, not categories
KEPT = 50  # categories of a column that have a feature of their own, unless `categorical` names it
FEW = 20  # values that are categories in a table of any length
LONG = 1e15  # whole numbers above this that all differ are likely codes, not amounts
#: Words that say, in a column of words, that a cell has none; "none" and "-" may well be values there.
NO_WORD = frozenset(("na", "n/a", "nan", "null", "?", "#n/a", "<na>", "nat"))
SAMPLE = 1000  # rows that are looked at before all are
FORMS = ("ISO8601", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d", "%d.%m.%y", "%d %b %Y", "%d %B %Y")
_ID = re.compile(r"(?i:(^|[^a-z])(id|ids|uuid|guid|key|nr|no|number|index|row|code))$|[a-z]I[dD]$")
#: Spellings of a boolean column, in small letters; 0 and 1 alone are numbers.
_PAIRS = ({"true", "false"}, {"yes", "no"}, {"t", "f"}, {"y", "n"})
#: Numbers with a unit, a sign of a currency, decimal commas or marks between thousands: "48%", "4,97", "3,090.47".
_LIKE_A_NUMBER = re.compile(r"\s*[-+]?[$€£]?\s*\d[\d.,' ]*(%|[$€£]|\s[a-zA-Z]{1,3}(/\w{1,3})?)?\s*")
_LIKE_A_DATE = re.compile(r"\s*\d{1,4}[-./ ]\w{1,9}[-./ ]\d{1,4}")


@dataclasses.dataclass(frozen=True)
class Column:
    """A column as it was recognised.

    missing: the number of missing cells. bad: the number of cells of another kind. values: the number of a category's
    values. form: the form of dates. span: the smallest and the largest number.
    """

    name: str
    kind: Kind
    rows: int
    missing: int = 0
    bad: int = 0
    values: int | None = None
    form: str | None = None
    span: tuple[float, float] | None = None

    @property
    def used(self) -> bool:
        """Whether it becomes features where nothing else is asked for."""
        return self.kind in ("number", "boolean", "category")


def recognise(name: Any, given: Any) -> Column:
    """Recognise a pandas column.

    >>> import pandas
    >>> recognise("age", pandas.Series(["30", "NA", "41.5"])).kind
    'number'
    >>> recognise("patient_id", pandas.Series([17, 4, 99])).kind
    'id'
    >>> recognise("admitted", pandas.Series(["2024-03-01", "2024-03-02"]))
    Column(name='admitted', kind='date', rows=2, missing=0, bad=0, values=None, form='ISO8601', span=None)
    """
    import pandas

    rows = len(given)
    if pandas.api.types.is_bool_dtype(given.dtype):
        return _boolean(name, given.to_numpy(np.float64, na_value=np.nan), rows)
    if pandas.api.types.is_numeric_dtype(given.dtype):
        return _numeric(name, numbers(given)[0], rows)
    if pandas.api.types.is_datetime64_any_dtype(given.dtype):
        return _dates(name, given, "ISO8601", rows)
    return _words(name, given, rows)


def _numeric(name: Any, values: Array, rows: int, bad: int = 0) -> Column:
    values = np.ascontiguousarray(values)  # a wide table's cells may be far apart: they are fetched once
    missing = int(is_missing(values).sum()) - bad
    if missing + bad == rows:
        return Column(name, "constant", rows, missing)
    low, high = (float(f(values)) for f in (np.fmin.reduce, np.fmax.reduce))
    if low == high and not bad:
        return Column(name, "constant", rows, missing, values=1)
    kind: Kind = "id" if not bad and not missing and _is_number_of_rows(name, values, low, high) else "number"
    return Column(name, kind, rows, missing, bad, span=(low, high))


def _is_number_of_rows(name: Any, values: Array, low: float, high: float) -> bool:
    """Whether whole numbers, all different, name rows: their column's name says so, or they count them."""
    some = values[:SAMPLE]
    if len(values) < 2 or not _distinct_and_whole(some):
        return False
    counts = len(values) >= FEW and high - low == len(values) - 1
    return (counts or low > LONG or bool(_ID.search(str(name)))) and _distinct_and_whole(values)


def _distinct_and_whole(values: Array) -> bool:
    whole = values.dtype.kind in "iu" or bool(np.all(values == np.floor(values)))
    return whole and len(np.unique(values)) == len(values)


def _boolean(name: Any, values: Array, rows: int) -> Column:
    missing = int(np.isnan(values).sum())
    some = values[~np.isnan(values)]
    if not len(some) or some.min() == some.max():
        return Column(name, "constant", rows, missing, values=int(len(some) > 0))
    return Column(name, "boolean", rows, missing, values=2)


def _dates(name: Any, given: Any, form: str, rows: int) -> Column:
    values, bad = dates(given, form)
    return Column(name, "date", rows, int(np.isnan(values).sum() - bad.sum()), int(bad.sum()), form=form)


def _words(name: Any, given: Any, rows: int) -> Column:
    """Recognise a column of words: numbers, dates or true and false with some wrong cells, or really words."""
    text, _ = texts(given)
    known = [value for value in text if value is not None]
    if not known:
        return Column(name, "constant", rows, rows, values=0)
    if _true_or_false(known[:SAMPLE]) and _true_or_false(known):
        return _boolean(name, booleans(given)[0], rows)
    values, bad = numbers(given)
    if 2 * int((~np.isnan(values)).sum()) > rows - int((np.isnan(values) & ~bad).sum()):
        return _numeric(name, values, rows, int(bad.sum()))
    if sum(map(bool, map(_LIKE_A_DATE.match, known[:SAMPLE]))) * 2 > len(known[:SAMPLE]):
        found = [_dates(name, given, form, rows) for form in FORMS]
        best = min(found, key=lambda column: column.bad)
        no_date = np.logical_and.reduce([dates(given, form)[1] for form in FORMS]) if best.bad else np.zeros(0)
        if 2 * int(no_date.sum()) < rows - best.missing:  # dates of several forms are dates with mistakes
            return best
    different = len(set(known))
    missing = rows - len(known)
    about: dict[str, Any] = {"rows": rows, "missing": missing, "values": different}
    if different == 1:
        return Column(name, "constant", **about)
    if different == len(known) and (rows > FEW or _ID.search(str(name))) and not any(" " in v.strip() for v in known):
        return Column(name, "id", **about)
    if different <= max(FEW, min(MANY, len(known) // 10)) and np.mean([len(v) for v in known[:SAMPLE]]) <= 60:
        return Column(name, "category", **about)
    return Column(name, "text", **about)


def _true_or_false(known: Sequence[str]) -> bool:
    small = {value.strip().lower() for value in known} - MISSING
    return bool(small) and any(small <= pair for pair in _PAIRS)


def as_date(days: float) -> str:
    """Days since 1970 as a date.

    >>> as_date(19724.5)
    '2024-01-02'
    """
    return str(np.datetime64(int(np.floor(days)), "D"))


def no_words(given: Any) -> dict[str, int]:
    """Words such as NA among a column's words, which count as values of their own, and in how many cells.

    >>> import pandas
    >>> no_words(pandas.Series(["A", "?", "B", "?", None]))
    {'?': 2}
    """
    found = given.dropna().astype(str).value_counts()
    return {word: int(count) for word, count in found.items() if word.strip().lower() in NO_WORD}


def remarks(column: Column, given: Any) -> list[str]:
    """Remarks, a sentence each, on cells that are no mistakes but should be looked at: words that look missing or like
    numbers, and dates whose day could be the month.

    >>> import pandas
    >>> given = pandas.Series(["02/01/2024", "03/01/2024"])
    >>> remarks(recognise("seen", given), given)
    ["column 'seen' is read as day/month/year: '02/01/2024' is 2024-01-02"]
    """
    if column.kind == "date" and column.form == "%d/%m/%Y":
        if int(dates(given, "%m/%d/%Y")[1].sum()) > column.bad:
            return []
        days = dates(given, column.form)[0]
        first = int(np.argmax(~np.isnan(days)))
        shown = str(given.iloc[first])
        return [f"column {column.name!r} is read as day/month/year: {shown!r} is {as_date(days[first])}"]
    if column.kind not in ("category", "text", "id"):
        return []
    found = no_words(given) if column.kind == "category" else {}
    said = [
        f"column {column.name!r} has {word!r} in {count:,} cells: among words only an empty cell is missing, so it "
        "counts as a category"
        for word, count in found.items()
    ]
    known = [value for value in texts(given)[0] if value is not None]
    some = known[:SAMPLE]
    alike = [value for value in some if _LIKE_A_NUMBER.fullmatch(value) and not value.strip().isdigit()]
    if 2 * len(alike) > len(some) and len(set(known)) > FEW // 2:
        said.append(
            f"column {column.name!r} has words such as {alike[0]!r} that look like numbers: written with a decimal "
            "point and without a unit they would be numbers"
        )
    return said


def becomes(column: Column, dates: Sequence[str] | Literal["numbers"] | None = None) -> str:
    """The features that a column becomes, in words.

    >>> becomes(Column("note", "text", 9))
    'left out: free text'
    """
    if column.kind == "date":
        asked = dates == "numbers" or column.name in (dates or ())
        return "days, standardised" if asked else f"left out; dates = [{column.name!r}] makes it days"
    return {
        "number": "standardised",
        "boolean": "0 and 1, standardised",
        "category": f"{column.values} columns of 0 and 1"
        if (column.values or 0) <= KEPT
        else f"{KEPT + 1} columns of 0 and 1: the {KEPT} most frequent, and others",
        "id": "left out: it tells rows apart",
        "constant": "left out: it does not vary" if column.values else "left out: it is empty",
        "text": "left out: free text",
    }[column.kind]


def mistakes(column: Column, given: Any) -> list[str]:
    """What is wrong with a column's cells, apart from missing ones."""
    found = []
    if column.bad:
        values, bad = numbers(given) if column.kind == "number" else dates(given, str(column.form))
        shown = str(given.iloc[int(bad.argmax())])
        wanted = "a number" if column.kind == "number" else a_date(str(column.form))
        found.append(
            f"column {column.name!r} has {shown!r} at row {first_row(bad)}: it must be {wanted}, as the others are "
            f"({column.bad:,} of {column.rows:,} cells are none)"
        )
    if column.span is not None and (max(-column.span[0], column.span[1]) > 1e9):
        values, _ = numbers(given)
        far = absurd(values)
        if far.any():
            value = float(values[int(far.argmax())])
            what = "infinity" if np.isinf(value) else f"the absurd value {value:g}"
            found.append(
                f"column {column.name!r} has {what} at row {first_row(far)}: correct it, or leave the row out "
                f"({int(far.sum()):,} of {column.rows:,} cells)"
            )
    return found


def recognised(frame: Any) -> list[Column]:
    """Every column of a table."""
    return [recognise(name, frame.iloc[:, i]) for i, name in enumerate(frame.columns)]
