"""The rule: when a figure agrees with the paper's, when it stands in the same order, and when it does not.

A figure **agrees** if it lies within the tolerance of the paper's: one percentage point for an accuracy unless the
reproduction states another (absolute, or a factor), or the half-width of the 95 % interval over seeds if that is wider.
It stands in the **same order** if it does not agree, but lies above and below the other figures of its table as
printed; pairs that the paper sets apart by no more than the tolerance do not count. Else it **does not** agree.

A claim holds if the means over seeds stand as it says, and neither side diverged. It is **within the spread** if the
difference is less than the root of the summed squares of the two half-widths.

A reproduction **agrees** if every figure agrees and every claim holds, has the **same order** if every claim holds
(and, where no claim is made in words, every figure agrees or stands in order), and else **does not**.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Literal

from fedax.papers.reproductions.description import Figure, PaperClaim, Quantity, Reproduction, Scale

Verdict = Literal["agrees", "same order", "does not", "not measured"]
POINT = 1.0  # the tolerance of an accuracy, in percentage points


@dataclasses.dataclass(frozen=True)
class Measured:
    """A mean over seeds, NaN if one diverged, and the half-width of its 95 % interval; None for a single seed."""

    mean: float
    half: float | None = None
    runs: int = 1


def seeds(measured: Mapping[str, Measured]) -> int:
    """So many seeds everything was measured with, at least.

    >>> seeds({"FedAvg (f1)": Measured(0.9, 0.1, 3), "FedAc (f1)": Measured(0.8)})
    1
    """
    return min((ours.runs for ours in measured.values()), default=1)


@dataclasses.dataclass(frozen=True)
class Row:
    """A figure of the paper beside ours."""

    figure: Figure
    ours: Measured | None
    verdict: Verdict


@dataclasses.dataclass(frozen=True)
class Judged:
    """A claim, whether it holds (None if it was not measured), by how much, and whether that is clear."""

    claim: PaperClaim
    holds: bool | None
    difference: float = math.nan
    clear: bool = True


@dataclasses.dataclass(frozen=True)
class Judgement:
    """What came out of a reproduction."""

    rows: list[Row]
    claims: list[Judged]

    @property
    def verdict(self) -> Verdict:
        """In two words, of what was measured."""
        holding = [one.holds for one in self.claims if one.holds is not None]
        found = {row.verdict for row in self.rows} - {"not measured"}
        if not (holding or found):
            return "not measured"
        if not all(holding):
            return "does not"
        if found <= {"agrees"}:
            return "agrees"
        return "same order" if holding or "does not" not in found else "does not"

    @property
    def missing(self) -> int:
        """How many figures and claims were not measured."""
        return sum(row.ours is None for row in self.rows) + sum(one.holds is None for one in self.claims)

    @property
    def counts(self) -> str:
        """In numbers: how many figures agree or stand in order, how many claims hold."""
        words = []
        if self.rows:
            agree, order = (sum(row.verdict == v for row in self.rows) for v in ("agrees", "same order"))
            words.append(
                f"{agree} of {len(self.rows)} figures agree" + (f", {order} in the same order" if order else "")
            )
        if self.claims:
            words.append(f"{sum(one.holds is True for one in self.claims)} of {len(self.claims)} claims hold")
        if self.missing:
            words.append(f"{self.missing} not measured")
        return "; ".join(words)


def judge(reproduction: Reproduction, scale: Scale, measured: Mapping[str, Measured]) -> Judgement:
    """Every figure and claim of a scale, given what was measured by the names of the quantities."""
    figures, claims = reproduction.asked(scale)
    rows = [_row(figure, figures, measured) for figure in figures]
    return Judgement(rows, [_claim(claim, measured) for claim in claims])


def agrees(figure: Figure, ours: Measured) -> bool:
    """Whether a figure lies within the tolerance of the paper's.

    >>> accuracy = Figure(quantity=Quantity(method="FedAvg"), value=90.0)
    >>> agrees(accuracy, Measured(89.2)), agrees(accuracy, Measured(88.5)), agrees(accuracy, Measured(88.5, half=2.0))
    (True, False, True)
    """
    if not math.isfinite(ours.mean):
        return False
    return abs(ours.mean - figure.value) <= (ours.half or 0.0) or near(figure, ours.mean)


def near(figure: Figure, other: float) -> bool:
    """Whether a number is the figure's but for the tolerance."""
    if figure.factor is not None:
        if figure.value <= 0 or other <= 0:
            return figure.value == other
        return max(figure.value, other) <= figure.factor * min(figure.value, other)
    return abs(other - figure.value) <= (POINT if figure.tolerance is None else figure.tolerance) * (1 + 1e-9)


def in_order(figure: Figure, ours: float, others: Sequence[tuple[Figure, float]]) -> bool:
    """Whether ours lies above and below the others as the paper's does.

    >>> best, worst = (Figure(quantity=Quantity(method=m), value=v) for m, v in (("A", 90.0), ("B", 80.0)))
    >>> in_order(best, 70.0, [(worst, 60.0)]), in_order(best, 50.0, [(worst, 60.0)])
    (True, False)
    """
    apart = [(other, theirs) for other, theirs in others if not near(figure, other.value)]
    return bool(apart) and all((ours > theirs) == (figure.value > other.value) for other, theirs in apart)


def _row(figure: Figure, figures: Sequence[Figure], measured: Mapping[str, Measured]) -> Row:
    ours = measured.get(str(figure.quantity))
    if ours is None:
        return Row(figure, None, "not measured")
    if agrees(figure, ours):
        return Row(figure, ours, "agrees")
    beside = [
        (other, measured[str(other.quantity)].mean)
        for other in figures
        if other is not figure and _table(other) == _table(figure) and str(other.quantity) in measured
    ]
    ordered = not math.isnan(ours.mean) and in_order(figure, ours.mean, beside)
    return Row(figure, ours, "same order" if ordered else "does not")


def _table(figure: Figure) -> Quantity:
    """What the figures of one table have in common: all but the method, and whose model it is."""
    return figure.quantity.model_copy(update={"method": "", "model": None})


def _claim(claim: PaperClaim, measured: Mapping[str, Measured]) -> Judged:
    sides = [measured.get(str(s)) if isinstance(s, Quantity) else Measured(s) for s in (claim.left, claim.right)]
    left, right = sides
    if left is None or right is None:
        return Judged(claim, None)
    if math.isnan(left.mean) or math.isnan(right.mean):
        return Judged(claim, False)
    if left.mean == right.mean:
        return Judged(claim, False, 0.0, clear=False)
    difference = left.mean - right.mean
    clear = abs(difference) > math.hypot(left.half or 0.0, right.half or 0.0)
    return Judged(claim, (difference > 0) == (claim.relation == "larger"), difference, clear)
