"""What an experiment file can name, with the options of each: the tables of `fedax list`."""

from __future__ import annotations

from rich.table import Table


def page() -> str:
    """The whole page."""
    from fedax.cli.listing import KINDS

    head = "# What can be named\n\n`fedax list` shows the same. [Methods](methods/index.md) have pages of their own.\n"
    return head + "\n".join(_section(make(())) for kind, make in KINDS.items() if kind != "algorithms")


def _section(table: Table) -> str:
    titles = [str(column.header) for column in table.columns]
    rows = zip(*(column.cells for column in table.columns), strict=True)
    lines = [f"\n## {table.title}\n", _line(titles), "|" + "---|" * len(titles)]
    return "\n".join(lines + [_line([f"`{first}`", *rest]) for first, *rest in rows]) + "\n"


def _line(cells: list[object]) -> str:
    escaped = (str(cell).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*") for cell in cells)
    return "| " + " | ".join(escaped) + " |"
