"""The picture of a reproduction: its paper's figure from our runs, else our numbers beside the paper's."""

from __future__ import annotations

from fedax.papers.reproductions import svg
from fedax.papers.reproductions.description import SCALES, Quantity, Reproduction, Scale
from fedax.papers.reproductions.saving import ReproductionResult, saved
from fedax.papers.reproductions.verdict import Measured
from fedax.report.columns import AXES, title

MANY = 26  # figures, above which they are points in a square


def picture(one: Reproduction) -> tuple[str, str] | None:
    """The SVG, and what it shows in a sentence; None without a saved result.

    >>> from fedax.papers.reproductions.library import load
    >>> made, shows = picture(load("apfl-table1"))
    >>> made[:4], shows
    ('<svg', "Our numbers at small scale beside the paper's.")
    """
    known: dict[Scale, ReproductionResult] = {s: found for s in reversed(SCALES) if (found := saved(one.id, s))}
    for scale, found in known.items():
        if one.picture is not None and found.curves:
            axes = AXES.get(one.picture.x, one.picture.x), title(one.picture.y).lower()
            ours = f"{one.where.split(',')[0]} redrawn from our runs at {_named(scale)}, means over seeds."
            return svg.panels(found.curves, *axes, one.picture.log), ours
    for scale, found in known.items():
        return _numbers(one, scale, found.measured)
    return None


def _numbers(one: Reproduction, scale: Scale, measured: dict[str, Measured]) -> tuple[str, str]:
    figures, _ = one.asked(scale)
    printed = {str(figure.quantity): figure.value for figure in figures}
    tables: dict[str, list[svg.Number]] = {}
    for quantity in one.quantities(scale):
        name = str(quantity)
        if name in measured and (not printed or name in printed):
            ours = measured[name]
            line = svg.Number(_whose(quantity), ours.mean, ours.half, printed.get(name))
            tables.setdefault(_title(quantity), []).append(line)
    if len(printed) > MANY:
        return svg.against(
            tables
        ), f"The paper's numbers across, ours at {_named(scale)} up; on the line they are equal."
    whose = " beside the paper's" if printed else ""
    return svg.beside(tables), f"Our numbers at {_named(scale)}{whose}."


def _whose(quantity: Quantity) -> str:
    """Whose number it is, without what is measured."""
    whose = f"{quantity.part}: " * bool(quantity.part) + quantity.method
    return whose + (f", {quantity.model}" if quantity.model not in (None, "own", "personal") else "")


def _title(quantity: Quantity) -> str:
    """What is measured, whosever model it is."""
    words = quantity.model_copy(update={"model": None}).words
    words += f", less that of {', '.join(map(str, quantity.minus.values()))}" if quantity.minus else ""
    return f"{words}, %" if quantity.percent else words


def _named(scale: Scale) -> str:
    return "small scale" if scale == "small" else "the paper's scale"
