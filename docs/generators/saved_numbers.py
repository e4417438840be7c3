"""Measured numbers in pages, from benchmarks/results: `python docs/generators/saved_numbers.py` writes them again.

<!-- number: side_by_side A FedJAX -->2.3<!-- /number -->     the median of FedJAX's time over Fedax's on workload A
<!-- numbers: speed.json -->                                  before a table: its numbers are those of the file
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "benchmarks" / "results"
NUMBER = re.compile(r"(<!-- number: (\w+) (\w+) (.+?) -->)(.*?)(<!-- /number -->)")


def rewritten(text: str) -> str:
    """A page with each marked number as it is saved."""

    def replaced(mark: re.Match[str]) -> str:
        saved = json.loads((RESULTS / f"{mark[2]}.json").read_text())
        median = saved[mark[3]]["times Fedax's"][mark[4]][1]
        return f"{mark[1]}{median:.1f}{mark[6]}"

    return NUMBER.sub(replaced, text)


def numbers(saved: Any) -> Iterator[float]:
    """All numbers of a saved result."""
    if isinstance(saved, dict):
        for value in saved.values():
            yield from numbers(value)
    elif isinstance(saved, list):
        for value in saved:
            yield from numbers(value)
    elif isinstance(saved, int | float) and not isinstance(saved, bool):
        yield float(saved)


def is_shown(written: str, found: set[float]) -> bool:
    """Whether a number of a page is one of a result's, rounded to the digits that the page shows.

    >>> is_shown("1.16", {1.164}), is_shown("97", {96.51}), is_shown("1.17", {1.164})
    (True, True, False)
    """
    places = len(written.partition(".")[2])
    significant = len(written.replace(".", "").lstrip("0"))
    return any(
        abs(value - float(written)) <= 0.5000001 * 10.0**-places
        or float(f"{value:.{max(1, significant)}g}") == float(written)
        for value in found
    )


if __name__ == "__main__":
    page = ROOT / "README.md"
    page.write_text(rewritten(page.read_text()))
