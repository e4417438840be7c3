"""What the tables of the page share: a method's colour, and a value with its spread, in bold if it is the best."""

from __future__ import annotations

import math
from collections.abc import Iterable

from fedax.report.columns import better, text

PALETTE, SYMBOLS = 8, 7  # colours of style.css, shapes of it and of charts.js


def swatch(place: int) -> str:
    """The colour and the shape of the page's method at a place.

    >>> swatch(7)
    '<span class="swatch c7 s0"></span>'
    """
    return f'<span class="swatch c{place % PALETTE} s{place % SYMBOLS}"></span>'


def best(key: str, values: Iterable[float]) -> str | None:
    """The best value of a column as printed; None if all are the same, or none is better.

    >>> best("test_accuracy", [0.9, 0.8]), best("train_loss", [2.0, 2.0])
    ('90.00', None)
    """
    known = [value for value in values if math.isfinite(value)]
    if not better(key) or len({text(key, value) for value in known}) < 2:
        return None
    return text(key, max(known) if better(key) == "max" else min(known))


def cell(key: str, mean: float | None, spread: float | None, best: str | None) -> str:
    """A value as a cell.

    >>> cell("test_accuracy", 0.9, 0.01, "90.00")
    '<td><strong>90.00</strong> <small>± 1.00</small></td>'
    """
    shown, plus, around = text(key, mean, spread).partition(" ± ")
    won = f"<strong>{shown}</strong>" if shown == best else shown
    return f"<td>{won}{f' <small>± {around}</small>' if plus else ''}</td>"
