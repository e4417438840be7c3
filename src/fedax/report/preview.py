"""A federation before any training, as one HTML file in the report's design."""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from fedax.report import packing
from fedax.report.chart_data import embed
from fedax.report.html import SCRIPTS, own
from fedax.runs.files import write_whole

if TYPE_CHECKING:
    from fedax.data.heterogeneity import Heterogeneity

SHOWN = 400  # clients: more columns cannot be told apart


def write_preview(seen: Heterogeneity, path: Path) -> None:
    """Write who holds what to an .html file, whole or not at all."""
    write_whole(path, preview(seen).encode("utf-8", errors="replace"))


def preview(seen: Heterogeneity) -> str:
    """The whole page.

    >>> from fedax.data import load
    >>> from fedax.data.heterogeneity import heterogeneity
    >>> preview(heterogeneity(load("iris"))).startswith("<!doctype html>")
    True
    """
    every = -(-len(seen.names) // SHOWN)
    parts = zip(("train", "validation", "test"), zip(*seen.rows[::every], strict=True), strict=True)
    part = {
        "names": seen.names[::every],
        "rows": {name: list(counts) for name, counts in parts},
        "label_counts": None if seen.label_counts is None else seen.label_counts[::every],
        "title": seen.title,
        "words": " ".join([f"Every {every}th client is shown."] * (every > 1) + _meanings(seen)),
    }
    nothing = {"groups": [], "axes": {}, "measures": [], "curves": [], "clients": [], "sweeps": [], "comparable": True}
    first, *rest = (f"{sentence[:1].upper()}{sentence[1:]}." for sentence in seen.sentences())
    return Template(own("preview.html")).substitute(
        title=escape(seen.title or "A federation"),
        style=own("style.css"),
        first=escape(first),
        rest=escape(" ".join(rest)),
        data=packing.pack(embed(nothing | {"partitions": [part]})),
        plotly=packing.plotly(),
        script="".join(map(own, SCRIPTS)),
    )


def _meanings(seen: Heterogeneity) -> list[str]:
    """What the numbers above the picture mean, as far as there are any."""
    words = []
    if seen.total_variation is not None:
        words.append("Total variation: at 0 all clients have the same labels, towards 1 they share none.")
    if seen.zeta is not None:
        words.append("Zeta: how far the clients' first gradients are from their mean, 0 where all are alike.")
    return words
