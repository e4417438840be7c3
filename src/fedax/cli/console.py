"""The console that the command line prints to, and its tables. A command that only prints loads nothing else."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table

WIDE = 110  # columns of a terminal that has room for everything


def console() -> Console:
    """Standard output; wide enough for the tables where there is no terminal to fit."""
    return Console(width=None if sys.stdout.isatty() else 140)


def say(words: str, style: str | None = None) -> None:
    """Print a sentence: wrapped between words on a terminal, on one line elsewhere."""
    console().print(words, style=style, markup=False, highlight=False, soft_wrap=not sys.stdout.isatty())


def table(
    title: str | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[str] = (),
    whole: Collection[str] = (),
    spare: Collection[str] = (),
    caption: str | None = None,
) -> Table:
    """A table of plain words, without bars between its columns: on a narrow terminal the words need the room.

    right: columns of numbers. whole: columns that stay on one line. spare: columns that a narrow terminal leaves
    out; the caption then names them.
    """
    narrow = console().width < WIDE
    shown = [place for place, column in enumerate(columns) if not (narrow and column in spare)]
    said = [caption] if caption else []
    if len(shown) < len(columns):
        missing = [column for place, column in enumerate(columns) if place not in shown]
        names = " and ".join(filter(None, [", ".join(missing[:-1]), missing[-1]]))
        said.append(f"a terminal of {WIDE} columns shows {names} too")
    made = Table(
        title=title and escape(title),
        title_style="bold",
        title_justify="left",
        caption=escape("; ".join(said)) or None,
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for place in shown:
        column = columns[place]
        justify: JustifyMethod = "right" if column in right else "left"
        made.add_column(escape(column), justify=justify, no_wrap=column in whole, overflow="fold")
    for row in rows:
        made.add_row(*(escape(row[place]) for place in shown))
    return made
