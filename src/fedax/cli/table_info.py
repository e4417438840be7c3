"""`fedax data info FILE`: what a table's columns are, and all that is wrong with it, before any run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedax.data.tables.kinds import Column

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".pq")
SHOWN = 100  # columns


def is_table(name: str) -> bool:
    """Whether a name is a file rather than a dataset's.

    >>> is_table("patients.csv"), is_table("mnist")
    (True, False)
    """
    return name.endswith(SUFFIXES) or "/" in name or Path(name).is_file()


def show_table_file(path: str) -> None:
    """Print a table's columns, and its problems with their counts."""
    from fedax.cli.console import console, say, table
    from fedax.data.tables.kinds import becomes, mistakes, recognised, remarks
    from fedax.data.tables.own_rows import read_table
    from fedax.errors import FedaxError

    frame = read_table(path)
    if not len(frame):
        raise FedaxError(f"{path} has no rows")
    columns = recognised(frame)
    rows = [(str(c.name), c.kind, _missing(c), _values(c, frame.iloc[:, i]), becomes(c)) for i, c in enumerate(columns)]
    kind = "parquet" if path.endswith((".parquet", ".pq")) else "csv"
    title = f"{path}: {len(frame):,} rows, {len(columns):,} columns"
    heads = ("column", "kind", "missing", "values", "becomes")
    console().print(table(title, heads, rows[:SHOWN], right=["missing"], whole=["column", "kind"]))
    if len(rows) > SHOWN:
        print(f"and {len(rows) - SHOWN:,} more columns")
    problems = [sentence for i, c in enumerate(columns) for sentence in mistakes(c, frame.iloc[:, i])]
    problems += _gaps(columns)
    problems += [sentence for i, c in enumerate(columns) for sentence in remarks(c, frame.iloc[:, i])]
    for sentence in problems:
        say(f"- {sentence}")
    names = "The label and the client column are among these: an experiment file names them, as `label` and `client`"
    say(f'{names} in its [data] table, with name = "{kind}" and path = "{path}".')


def _missing(column: Column) -> str:
    return f"{column.missing:,} ({column.missing / column.rows:.1%})" if column.missing else "–"


def _values(column: Column, given: Any) -> str:
    import numpy as np

    from fedax.data.tables.applying import dates, texts
    from fedax.data.tables.kinds import as_date

    if column.kind == "number" and column.span is not None:
        return f"{column.span[0]:g} to {column.span[1]:g}"
    if column.kind in ("category", "boolean"):
        counts: dict[str, int] = {}
        for value in texts(given)[0]:
            if value is not None:
                counts[value] = counts.get(value, 0) + 1
        first = sorted(counts, key=lambda value: -counts[value])[:3]
        shown = ", ".join(f"{value} {counts[value] / column.rows:.0%}" for value in first)
        return shown + (" ..." if len(counts) > 3 else "")
    if column.kind == "date":
        days = dates(given, str(column.form))[0]
        return f"{as_date(np.nanmin(days))} to {as_date(np.nanmax(days))}"
    shown = str(given.dropna().iloc[0]) if given.notna().any() else ""
    return shown if len(shown) <= 24 else f"{shown[:21]}..."


def _gaps(columns: Sequence[Column]) -> list[str]:
    some = [c for c in columns if c.missing and c.used]
    if not some:
        return []
    total = sum(c.missing for c in some)
    names = ", ".join(f"{c.name!r} {c.missing:,}" for c in some[:20]) + (" ..." if len(some) > 20 else "")
    return [f'{total:,} cells are missing: {names}; missing = "fill" fills them in, "flag" also marks where']
