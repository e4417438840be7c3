"""Figures and claims in words, for the screen and the page."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fedax.papers.reproductions.description import Figure, Quantity, Reproduction, Scale
from fedax.papers.reproductions.verdict import POINT, Judged, Measured, Row

HEADINGS = ("what", "paper", "ours", "difference", "verdict")


def cells(row: Row) -> tuple[str, str, str, str, str]:
    """A figure's line: what it is, the paper's, ours with its spread, the difference, the verdict.

    >>> from fedax.papers.reproductions.description import Figure
    >>> figure = Figure(quantity=Quantity(method="FedAvg"), value=90.34)
    >>> cells(Row(figure, Measured(89.0, 0.5, 3), "same order"))
    ('FedAvg (test accuracy)', '90.34', '89.00 ± 0.50', '-1.34', 'same order')
    """
    quantity, theirs = row.figure.quantity, row.figure.value
    printed = number(quantity, theirs)
    if row.ours is None:
        return str(quantity), printed, "–", "–", row.verdict
    ours = row.ours.mean
    if row.figure.factor is not None and ours > 0 and theirs > 0:
        apart = f"x {ours / theirs:.2f}"
    else:
        apart = f"{ours - theirs:+.2f}" if quantity.percent else f"{ours - theirs:+.3g}"
    return str(quantity), printed, shown(quantity, row.ours), apart if math.isfinite(ours) else "–", row.verdict


def behind(reproduction: Reproduction, scale: Scale, measured: Mapping[str, Measured]) -> list[tuple[str, str]]:
    """Our numbers that the claims are about and the paper prints no figure of: what each is, and ours.

    >>> from fedax.papers.reproductions.library import load
    >>> behind(load("apfl-fig5"), "small", {"FedAvg (localised test accuracy)": Measured(97.5, 0.25, 3)})
    [('FedAvg (localised test accuracy)', '97.50 ± 0.25')]
    """
    printed = {str(figure.quantity) for figure in reproduction.asked(scale)[0]}
    asked = {str(quantity): quantity for quantity in reproduction.quantities(scale)}
    return [(what, shown(asked[what], measured[what])) for what in asked if what in measured and what not in printed]


def shown(quantity: Quantity, ours: Measured) -> str:
    """Our number with the half-width of its interval."""
    text = number(quantity, ours.mean)
    return text if ours.half is None else f"{text} ± {number(quantity, ours.half)}"


def number(quantity: Quantity, value: float) -> str:
    """A number as it is printed.

    >>> number(Quantity(method="FedMiD", metric="f1", reaches=1.0), math.inf)
    'never'
    """
    if math.isnan(value):
        return "diverged"
    if math.isinf(value):
        return "never" if quantity.reaches is not None else "infinite"
    return f"{value:.2f}" if quantity.percent else f"{value:.4g}"


def answer(judged: Judged) -> str:
    """Whether a claim holds, and by how much.

    >>> from fedax.papers.reproductions.description import PaperClaim
    >>> claim = PaperClaim(says="", left=Quantity(method="A"), relation="larger", right=Quantity(method="B"))
    >>> answer(Judged(claim, True, 3.21)), answer(Judged(claim, True, 3.21, 0.5, True)), answer(Judged(claim, None))
    ('yes (+3.21)', 'yes (+3.21 ± 0.50)', 'not measured')
    >>> answer(Judged(claim, False, -0.2, 0.3, clear=False))
    'no (-0.20 ± 0.30, within the spread)'
    """
    if judged.holds is None:
        return "not measured"
    word = "yes" if judged.holds else "no"
    if math.isnan(judged.difference):
        return f"{word} (diverged)"
    if math.isinf(judged.difference):
        return word
    percent = judged.claim.left.percent
    apart = f"{judged.difference:+.2f}" if percent else f"{judged.difference:+.3g}"
    if judged.half is not None:
        apart += f" ± {judged.half:.2f}" if percent else f" ± {judged.half:.2g}"
    return f"{word} ({apart}{', within the spread' if judged.clear is False else ''})"


def tolerance(figure: Figure) -> str:
    """What a figure may be off and still agree.

    >>> tolerance(Figure(quantity=Quantity(method="FedAvg"), value=90.0))
    '1 point'
    """
    if figure.factor is not None:
        return f"a factor of {figure.factor:g}"
    allowed = POINT if figure.tolerance is None else figure.tolerance
    unit = "" if not figure.quantity.percent else " point" if allowed == 1 else " points"
    return f"{allowed:g}{unit}"
