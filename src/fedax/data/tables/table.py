"""A user's table, checked: all of its problems are raised as one error, before any work."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from fedax.data.checks import Array
from fedax.data.tables.applying import Cells, first_row, is_missing, numbers, parse_column, texts
from fedax.data.tables.kinds import KEPT, MANY, Column, becomes, mistakes, recognise, remarks
from fedax.data.tables.labels import TASKS, Task, read_labels
from fedax.errors import FedaxError, nearest, unknown

log = logging.getLogger("fedax")
MOST = 40  # names of columns that an error lists
FILLS = ("error", "fill", "flag")
BY_COLUMN = ("error", "median", "most_frequent", "fill", "flag")
Missing = str | Mapping[str, str]


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """A checked table: parsed cells, labels, and how its columns are to be prepared.

    columns: name, kind, form of dates, `by` (how missing cells are filled), `flag`; as `fitting.fit` takes them.
    weight: each row's weight; "balanced" for classes that count the same; None for no weights.
    """

    columns: list[dict[str, Any]]
    cells: Cells
    label: str
    y: Array
    labels: list[Any] | None
    client: str | None
    clients: Array | None
    weight: Array | Literal["balanced"] | None
    left_out: dict[str, str]

    @property
    def task(self) -> Task:
        return "regression" if self.labels is None else "classification"


def refuse(owner: str, problems: Sequence[str]) -> None:
    """Raise if there are problems: a single one as its sentence, several as a numbered list.

    >>> refuse("a.csv", ["column 'age' is missing", "column 'sex' is missing"])
    Traceback (most recent call last):
    fedax.errors.FedaxError: a.csv has 2 problems: (1) column 'age' is missing; (2) column 'sex' is missing
    """
    if len(problems) == 1:
        raise FedaxError(problems[0] if owner in problems[0] else f"{owner}: {problems[0]}")
    if problems:
        listed = "; ".join(f"({i}) {sentence}" for i, sentence in enumerate(problems, 1))
        raise FedaxError(f"{owner} has {len(problems)} problems: {listed}")


def check(
    frame: Any,
    owner: str,
    *,
    label: str,
    client: str | None = None,
    features: Sequence[str] | None = None,
    categorical: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    dates: Sequence[str] | Literal["numbers"] | None = None,
    missing: Missing = "error",
    weights: str | None = None,
    task: Task | None = None,
) -> Table:
    """The table that a frame holds, or one error with all that is wrong; `owner` is named in it.

    >>> import pandas
    >>> frame = pandas.DataFrame({"age": [30, None, 9], "sex": ["f", "m", None], "ill": [0, 1, 1]})
    >>> check(frame, "a.csv", label="ill")
    Traceback (most recent call last):
    fedax.errors.FedaxError: a.csv: cells are missing: 'age' in 1 of 3 rows (first row 2), 'sex' in 1 of 3 rows ...
    """
    asked = _Asked(owner, frame, label, client, features, categorical, drop, dates, missing, weights, task)
    chosen = asked.names()
    refuse(owner, asked.problems)
    if not len(frame):
        raise FedaxError(f"{owner} has no rows")
    places = {name: i for i, name in enumerate(frame.columns)}
    found = read_labels(frame.iloc[:, places[label]], label, task, leave_out=asked.fills)
    asked.problems += found.problems
    if not found.keep.all() and found.keep.any() and not found.problems:
        log.warning("%s: %d rows without the label %r are left out", owner, int((~found.keep).sum()), label)
        frame = frame.iloc[np.flatnonzero(found.keep)]
    columns, cells, left_out = _features(asked, frame, chosen, places)
    clients = None if client is None else _clients(asked, frame.iloc[:, places[client]], client)
    weight = _weights(asked, frame, places, found.task)
    if not columns and not asked.problems:
        asked.problems.append("no column is left to learn from: " + _said(left_out))
    refuse(owner, asked.problems)
    for sentence in [*([_said(left_out)] if left_out else []), *asked.remarks]:
        log.warning("%s: %s", owner, sentence)
    return Table(columns, cells, label, found.y, found.values, client, clients, weight, left_out)


@dataclasses.dataclass(eq=False)
class _Asked:
    """The options given for a table, and the problems and remarks found so far."""

    owner: str
    frame: Any
    label: str
    client: str | None
    features: Any
    categorical: Any
    drop: Any
    dates: Any
    missing: Any
    weights: Any
    task: Any
    problems: list[str] = dataclasses.field(default_factory=list)
    remarks: list[str] = dataclasses.field(default_factory=list)

    @property
    def fills(self) -> bool:
        """Whether missing cells are filled."""
        return bool(self.missing != "error")

    @property
    def weight_column(self) -> str | None:
        return None if self.weights in (None, "balanced") else str(self.weights)

    def names(self) -> list[str]:
        """The columns that may become features; what is wrong with names goes to `problems`."""
        known = list(self.frame.columns)
        whole = set(known)
        if len(whole) < len(known):
            seen: set[Any] = set()
            twice = min(str(name) for name in known if name in seen or seen.add(name))  # type: ignore[func-returns-value]
            self.problems.append(f"{self.owner} has two columns named {twice!r}: names must be distinct")
            return []
        for field in ("features", "categorical", "drop", "dates"):
            names = getattr(self, field)
            words = field == "dates" and names == "numbers"
            if names is not None and not words and (isinstance(names, str) or not np.iterable(names)):
                self.problems.append(f"{field} is {names!r}: it must be a list of columns")
                setattr(self, field, None)
            elif names is not None and not words and (again := [n for n in names if list(names).count(n) > 1]):
                self.problems.append(f"{field} names {again[0]!r} twice: names must be distinct")
        if self.task not in (None, *TASKS):
            self.problems.append(str(unknown("task", self.task, TASKS)))
        self._check_missing(whole)
        held = [name for name in (self.label, self.client, self.weight_column) if name is not None]
        left = {*held, *(self.drop or [])}
        chosen = [name for name in known if name not in left] if self.features is None else list(self.features)
        listed = [] if self.dates in (None, "numbers") else list(self.dates)
        named = dict.fromkeys([*held, *chosen, *(self.categorical or []), *(self.drop or []), *listed, *self._ways()])
        self._refuse_unknown([name for name in named if name not in whole], known)
        inside = set(chosen)
        for name in self.categorical or []:
            if name in whole and name not in inside:
                some = ", ".join(map(str, chosen[:20]))
                self.problems.append(f"categorical names {name!r}: it must be one of the features {some}")
        if len(set(held)) < len(held):
            self.problems.append(
                f"label, client and weights are {', '.join(map(repr, held))}: each must be a column of its own"
            )
        if not chosen or inside & set(held):
            few = f"{chosen[:20]}"
            self.problems.append(
                f"features is {few}: there must be at least 1, none of them the label or the client column"
            )
        if self.drop and set(self.drop) & set(held):
            self.problems.append(f"drop names {min(set(self.drop) & set(held))!r}, which is needed")
        return chosen

    def by(self, column: Column) -> tuple[str | None, bool]:
        """How a column's missing cells are filled, and whether a further column marks them."""
        given = self.missing
        how = given if isinstance(given, str) else given.get(column.name, given.get("*", "error"))
        if how == "error":
            return None, False
        usual = "most_frequent" if column.kind in ("category", "boolean") else "median"
        return (how if how in ("median", "most_frequent") else usual), how == "flag" and column.missing > 0

    def _check_missing(self, known: set[Any]) -> None:
        given = self.missing
        if isinstance(given, str) and given in FILLS:
            return
        if not isinstance(given, Mapping):
            wanted = "'error', 'fill', 'flag', or a table of columns"
            self.problems.append(f"missing is {given!r}: it must be {wanted}")
            self.missing = "fill"
            return
        for name, how in given.items():
            if how not in BY_COLUMN:
                self.problems.append(f"missing.{name}: {unknown('way to fill', how, BY_COLUMN)}")

    def _ways(self) -> list[str]:
        """The columns that `missing` names."""
        return [name for name in self.missing if name != "*"] if isinstance(self.missing, Mapping) else []

    def _refuse_unknown(self, names: Sequence[Any], known: Sequence[Any]) -> None:
        """One sentence for all names that no column has."""
        if len(names) == 1 and len(known) <= MOST:
            self.problems.append(str(unknown(f"column of {self.owner}", names[0], [str(one) for one in known])))
        elif names:
            guesses = {name: nearest(str(name), map(str, known)) for name in names}
            said = [f"{name!r}" + (f" (did you mean {guess!r}?)" if guess else "") for name, guess in guesses.items()]
            some = ", ".join(map(str, known[:MOST])) + (f" and {len(known) - MOST:,} more" if len(known) > MOST else "")
            one = "column" if len(names) == 1 else "columns"
            self.problems.append(f"unknown {one} of {self.owner}: {', '.join(said)}; its columns are {some}")


def _features(
    asked: _Asked, frame: Any, chosen: Sequence[str], places: Mapping[Any, int]
) -> tuple[list[dict[str, Any]], Cells, dict[str, str]]:
    """The columns to prepare, their cells, and those left out with the reason."""
    columns, cells, left_out = [], Cells(), {}
    forced, named = set(asked.categorical or []), asked.features is not None
    listed = set() if asked.dates in (None, "numbers") else set(asked.dates)
    empty = []
    for name in chosen:
        given = frame.iloc[:, places[name]]
        column = recognise(name, given)
        if name in forced:
            values = texts(given)[0]
            different = len({value for value in values if value is not None})
            gone = int(is_missing(values).sum())
            column = Column(name, "category", len(values), gone, values=different)
            endless = np.array([value in ("inf", "-inf") for value in values])
            if endless.any():
                asked.problems.append(f"column {name!r} has infinity at row {first_row(endless)}: correct it")
            if different > MANY:
                asked.problems.append(
                    f"categorical names {name!r}, which has {different} values: at most {MANY} are allowed"
                )
        elif name in listed and column.kind != "date":
            asked.problems.append(
                f"dates names {name!r}, which is a column of kind {column.kind}: it must be one of dates"
            )
        elif named and column.kind == "id" and column.span is not None:
            column = dataclasses.replace(column, kind="number")
        elif named and column.kind in ("text", "id"):
            asked.problems.append(
                f"features names {name!r}, which is {column.kind}: name it in categorical, or leave it out"
            )
        wanted = column.used or (column.kind == "date" and (named or asked.dates == "numbers" or name in listed))
        if name not in forced and (wanted or column.kind != "date"):
            asked.remarks += remarks(column, given)
        if not wanted:
            left_out[str(name)] = becomes(column).removeprefix("left out").lstrip(":; ")
            continue
        asked.problems += mistakes(column, given)
        by, flag = asked.by(column)
        made: dict[str, Any] = {"name": name, "kind": column.kind, "by": by, "flag": flag}
        if column.kind == "date":
            made["form"] = column.form
        if column.kind == "category" and name not in forced:
            made["most"] = KEPT
        cells[name] = parse_column(made, given)[0]
        if by is None and column.missing:
            first = first_row(is_missing(cells[name]))
            empty.append(f"{name!r} in {column.missing:,} of {column.rows:,} rows (first row {first})")
        columns.append(made)
    if empty:
        some = ", ".join(empty[:20]) + (f" and {len(empty) - 20} more columns" if len(empty) > 20 else "")
        asked.problems.append(f'cells are missing: {some}; missing = "fill" fills them in, drop leaves columns out')
    return columns, cells, left_out


def _clients(asked: _Asked, column: Any, name: str) -> Array:
    values = texts(column)[0]
    gone = is_missing(values)
    if gone.any():
        asked.problems.append(
            f"the client column {name!r} is empty in {int(gone.sum()):,} of {len(gone):,} rows "
            f"(first row {first_row(gone)}): every row needs its client, so fill these cells in or remove their rows"
        )
    return np.where(gone, "", values).astype(np.str_)


def _weights(asked: _Asked, frame: Any, places: Mapping[Any, int], task: Task) -> Any:
    if asked.weights is None:
        return None
    if asked.weights == "balanced":
        if task == "regression":
            asked.problems.append("weights is 'balanced': that is for classes, and the label is a number")
        return "balanced"
    name = asked.weights
    values, bad = numbers(frame.iloc[:, places[name]])
    values = np.asarray(values, np.float64)
    for wrong, what in ((bad | np.isnan(values), "no number"), (values < 0, "below 0"), (np.isinf(values), "infinite")):
        if wrong.any():
            count = f"{int(wrong.sum()):,} of {len(values):,} rows (first row {first_row(wrong)})"
            asked.problems.append(f"the weights in column {name!r} are {what} in {count}: they must be 0 or more")
    if not asked.problems and not values.any():
        asked.problems.append(f"the weights in column {name!r} are all 0: some rows must count")
    return values


def _said(left_out: Mapping[str, str]) -> str:
    """Which columns are left out and why, those of one reason together."""
    reasons: dict[str, list[str]] = {}
    for name, why in left_out.items():
        reasons.setdefault(
            why if not why.startswith("dates") else 'a date; dates = "numbers" makes it days', []
        ).append(name)
    parts = []
    for why, names in reasons.items():
        some = ", ".join(map(repr, names[:10])) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        parts.append(f"{some} ({why})")
    return f"left out {'; '.join(parts)}" if parts else "all columns are the label, the client or dropped"
