"""Ranks of methods, with ties where differences are within noise.

Methods are measured with the same seeds, so two of them are compared seed by seed. The difference is beyond noise where
Student's 95 % interval of its mean leaves out 0. A method's rank is one more than the number of methods that are ahead
of it beyond noise, so all methods that are within noise of the best are first. With one seed no difference is beyond
noise. A method that diverged with some seed ranks behind all that did not.

Seeds share the rows that judge them. An accuracy on few rows is therefore compared with the rows' own noise too: if two
models differ on fewer than six rows, the sign test rejects nothing, even where all of these rows speak for one model.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from fedax.evaluation.protocol import interval


@dataclasses.dataclass(frozen=True)
class Standing:
    """A method's place: mean and half-width over seeds, and the same of its distance to the best (positive: behind)."""

    label: str
    rank: int
    tied: bool  #: whether another has the same rank
    mean: float
    half: float
    behind: float
    behind_half: float


ROWS = 6  #: the fewest rows that can decide between two models: 2 (1/2)^6 < 0.05, and 2 (1/2)^5 > 0.05


def ahead(first: Sequence[float], second: Sequence[float], *, higher: bool, least: float = 0.0) -> bool:
    """Whether the first is ahead of the second beyond noise, seed by seed, and by `least` at least.

    >>> ahead([0.91, 0.92, 0.93], [0.90, 0.91, 0.92], higher=True), ahead([0.9, 0.7], [0.6, 0.8], higher=True)
    (True, False)
    """
    if _lost(first) or _lost(second):
        return _lost(second) and not _lost(first)
    mean, half = interval([a - b if higher else b - a for a, b in zip(first, second, strict=True)])
    return mean > half and mean >= least * (1 - 1e-9)  # NaN with one seed, and then it is not


def rank(scores: Mapping[str, Sequence[float]], *, higher: bool, least: float = 0.0) -> list[Standing]:
    """The methods, best first; each has a score a seed, in the same order of seeds. Differences below `least` tie.

    >>> scores = {"A": [0.90, 0.92, 0.91], "B": [0.91, 0.91, 0.92], "C": [0.70, 0.71, 0.72]}
    >>> [(place.label, place.rank, place.tied) for place in rank(scores, higher=True)]
    [('B', 1, True), ('A', 1, True), ('C', 3, False)]
    """
    sign = -1.0 if higher else 1.0
    means = {label: math.inf if _lost(found) else sign * interval(found)[0] for label, found in scores.items()}
    order = sorted(scores, key=lambda label: means[label])
    ranks = {
        label: 1
        + sum(ahead(scores[other], scores[label], higher=higher, least=least) for other in order if other != label)
        for label in order
    }
    best, places = scores[order[0]], list(ranks.values())
    found = []
    for label in order:
        apart = [sign * (mine - top) for mine, top in zip(scores[label], best, strict=True)]
        behind = (math.nan, math.nan) if _lost(scores[label]) else interval(apart)
        mean = (math.nan, math.nan) if _lost(scores[label]) else interval(scores[label])
        found.append(Standing(label, ranks[label], places.count(ranks[label]) > 1, *mean, *behind))
    return sorted(found, key=lambda place: (place.rank, means[place.label]))


def _lost(scores: Sequence[float]) -> bool:
    return len(scores) == 0 or not all(map(math.isfinite, scores))
