"""The rule: when a figure agrees with the paper's, when it stands in the same order, and when it does not.

A figure **agrees** if it lies within the tolerance of the paper's: one percentage point for an accuracy unless the
reproduction states another (absolute, or a factor), or the half-width of the 95 % interval over seeds if that is wider.
It stands in the **same order** if it does not agree, but lies above and below the other figures of its table as
printed; pairs that the paper sets apart by no more than the tolerance do not count. Else it **does not** agree.

A claim holds if the means over seeds stand as it says, and neither side diverged. Its difference is taken seed by seed,
for both sides of a seed see the same data, start and draws: the number after ± is the half-width of the 95 % interval
of the mean of these differences, and the claim is **within the spread** if that interval contains 0. (Where a saved
result lacks its seeds' numbers, the interval is that of two independent means.) A difference from one seed has no
interval, and says nothing about other seeds. What stands **aside** is shown and judged, but not counted.

A reproduction **agrees** if every figure agrees and every claim holds, has the **same order** if every claim holds
(and, where no claim is made in words, every figure agrees or stands in order), and else **does not**.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Literal

from fedax.evaluation.protocol import interval
from fedax.papers.reproductions.description import Figure, PaperClaim, Quantity, Reproduction, Scale

Verdict = Literal["agrees", "same order", "does not", "not measured"]
POINT = 1.0  # the tolerance of an accuracy, in percentage points


@dataclasses.dataclass(frozen=True)
class Measured:
    """A mean over seeds, NaN if one diverged, and the half-width of its 95 % interval; None for a single seed.

    values: each seed's number, in the order of the seeds; empty in results that were saved without them.
    """

    mean: float
    half: float | None = None
    runs: int = 1
    values: tuple[float, ...] = ()


def seeds(measured: Mapping[str, Measured]) -> int:
    """The smallest number of seeds that any quantity was measured with.

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
    """A claim, whether it holds (None if it was not measured), by how much, and how sure that is.

    half: the half-width of the 95 % interval of the difference over seeds; None where there is none.
    clear: whether the interval leaves 0 out; None where there was one seed.
    """

    claim: PaperClaim
    holds: bool | None
    difference: float = math.nan
    half: float | None = None
    clear: bool | None = None


@dataclasses.dataclass(frozen=True)
class Judgement:
    """What came out of a reproduction."""

    rows: list[Row]
    claims: list[Judged]

    @property
    def verdict(self) -> Verdict:
        """In two words, of what was measured and counts."""
        holding = [one.holds for one in self.claims if one.holds is not None and not one.claim.aside]
        found = {row.verdict for row in self.rows if not row.figure.aside} - {"not measured"}
        if not (holding or found):
            return "not measured"
        if not all(holding):
            return "does not"
        if found <= {"agrees"}:
            return "agrees"
        return "same order" if holding or "does not" not in found else "does not"

    @property
    def missing(self) -> int:
        """How many figures and claims that count were not measured."""
        rows = [row for row in self.rows if not row.figure.aside]
        claims = [one for one in self.claims if not one.claim.aside]
        return sum(row.ours is None for row in rows) + sum(one.holds is None for one in claims)

    @property
    def counts(self) -> str:
        """In numbers: how many figures agree or stand in order, how many claims hold."""
        words = []
        rows = [row for row in self.rows if not row.figure.aside]
        claims = [one for one in self.claims if not one.claim.aside]
        if rows:
            agree, order = (sum(row.verdict == v for row in rows) for v in ("agrees", "same order"))
            words.append(f"{agree} of {len(rows)} figures agree" + (f", {order} in the same order" if order else ""))
        if claims:
            unsure = sum(one.holds is True and one.clear is False for one in claims)
            words.append(f"{sum(one.holds is True for one in claims)} of {len(claims)} claims hold")
            words[-1] += f", {unsure} of them within the spread" * bool(unsure)
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
    left, right = (measured.get(str(s)) if isinstance(s, Quantity) else s for s in (claim.left, claim.right))
    if left is None or right is None:
        return Judged(claim, None)
    assert isinstance(left, Measured)
    there = right.mean if isinstance(right, Measured) else right
    if math.isnan(left.mean) or math.isnan(there):
        return Judged(claim, False)
    if left.mean == there:
        return Judged(claim, claim.relation in ("at_least", "at_most"), 0.0)
    difference = left.mean - there
    holds = (difference > 0) == (claim.relation in ("larger", "at_least"))
    return Judged(claim, holds, difference, *_sureness(left, right))


def _sureness(left: Measured, right: Measured | float) -> tuple[float | None, bool | None]:
    """The half-width of the difference's interval, and whether the interval leaves 0 out."""
    if left.runs == 1:
        return None, None
    other = right.values if isinstance(right, Measured) else (right,) * len(left.values)
    if not left.values or len(left.values) != len(other):  # not paired: the seeds' numbers are not there
        halves = (left.half, right.half if isinstance(right, Measured) else 0.0)
        if None in halves:
            return None, None
        half = math.hypot(*(one or 0.0 for one in halves))
        return half, abs(left.mean - (right.mean if isinstance(right, Measured) else right)) > half
    apart = [0.0 if a == b else a - b for a, b in zip(left.values, other, strict=True)]
    if not all(map(math.isfinite, apart)):  # a target that some seed never reaches: an order, but no mean
        return None, all(d > 0 for d in apart) or all(d < 0 for d in apart)
    mean, half = interval(apart)
    return half, abs(mean) > half
