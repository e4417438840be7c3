"""The methods that a search tries, and the range in which it looks for each one's numbers.

There are three tracks, each judged by its purpose:

shared      one model for all: every method with a shared model, except those that are FedAvg without a regularizer
            and FedPD, which is FedADMM as long as no round skips
personal    a model for each client: the personal methods, FedAvg and SCAFFOLD fine-tuned by each client, LocalOnly
composite   a problem with a regularizer or a constraint: the methods that take it by its prox, and FedAvg with
            subgradients where there are any

A number's range is declared in its method's file by `tune=`: multiples of the default, of `around=`, or of the value
that the experiment gives. The search is logarithmic between the smallest and the largest multiple. Other numbers keep
their defaults.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fedax.algorithms import ALGORITHMS, build, method_class
from fedax.algorithms.base import RATE, Algorithm, Times, within
from fedax.algorithms.localised import OfBase
from fedax.errors import FedaxError, unknown
from fedax.outside import is_outside

Track = Literal["shared", "personal", "composite"]
TRACKS: tuple[Track, ...] = ("shared", "personal", "composite")
Numbers = dict[str, float]

#: Variants, by the names that papers give them: another method with one choice made.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "FedMiD-OSP": ("FedMiD", {"client_prox": False}),
    "FedDualAvg-OSP": ("FedDualAvg", {"client_prox": False}),
    "APFL-adaptive": ("APFL", {"adaptive": True}),
}
FINE_TUNED = {"FedAvg-fine-tuned": "FedAvg", "SCAFFOLD-fine-tuned": "SCAFFOLD"}
#: What the other methods of a track are measured against: the plain method, or training alone.
YARDSTICK = {"shared": "FedAvg", "composite": "FedAvg", "personal": "LocalOnly"}
WITH_PSI = ("FedMiD", "FedDualAvg")  #: methods that are FedAvg without a regularizer
SAME = ("FedPD",)  #: FedADMM unless rounds skip, which no range has
BOTH = ("FedDeper",)  #: a personal method whose paper judges its shared model


@dataclasses.dataclass(frozen=True)
class Span:
    """The range of a number: everything between two ends on a logarithmic scale, or a few values."""

    low: float
    high: float
    values: tuple[float, ...] = ()

    def at(self, share: float) -> float:
        """The number at a share of the way from the low end to the high one, to three digits.

        >>> Span(0.01, 1.0).at(0.5), Span(0.25, 0.75, (0.25, 0.5, 0.75)).at(0.9)
        (0.1, 0.75)
        """
        if self.values:
            return self.values[min(int(share * len(self.values)), len(self.values) - 1)]
        return float(f"{math.exp(math.log(self.low) * (1 - share) + math.log(self.high) * share):.3g}")


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A method with the numbers that a search may choose.

    >>> tried = candidate("FedProx", lr=0.1)
    >>> tried.make({"lr": 0.1, "mu": 1.0})
    FedProx(lr=0.1, mu=1.0, server_lr=1.0, norm='squared')
    >>> tried.draw(3)[0]
    {'lr': 0.1, 'mu': 0.1}
    """

    label: str
    name: str
    fixed: Mapping[str, Any]
    spans: Mapping[str, Span]
    base: str | None = None  #: the method that is fine-tuned, for `Localised`
    steps: int = 1  #: the steps of the fine-tuning

    def make(self, numbers: Numbers) -> Algorithm:
        """The method with these numbers."""
        if self.base is not None:
            return build(self.name, base=build(self.base, **self.fixed, **numbers), steps=self.steps)
        return build(self.name, **self.fixed, **numbers)

    def draw(self, count: int) -> list[Numbers]:
        """Settings that fill the ranges evenly. The first is the middle; a larger count begins with the same ones.

        Place n along axis j is the fraction of 1/2 + n / g^(j+1), where g^(d+1) = g + 1 for d numbers (the additive
        recurrence of the generalised golden ratio).
        """
        axes = len(self.spans)
        if not axes:
            return [{}]
        ratio = 2.0
        for _ in range(64):
            ratio = (1 + ratio) ** (1 / (axes + 1))
        found = [
            {
                name: span.at(math.fmod(0.5 + place / ratio ** (axis + 1), 1.0))
                for axis, (name, span) in enumerate(self.spans.items())
            }
            for place in range(count)
        ]
        return [numbers for place, numbers in enumerate(found) if numbers not in found[:place]]


def candidate(name: str, *, lr: float, given: Mapping[str, Any] | None = None, steps: int = 1) -> Candidate:
    """A method by its name, a variant's, or "mymodule:MyMethod", with the ranges that its file declares.

    lr: the rate to search around. given: the experiment's options of the method: numbers to search around, choices to
        keep. steps: the steps of fine-tuning, for methods that are fine-tuned.
    """
    label = name.partition(":")[2] or name
    if name in FINE_TUNED:
        inner = candidate(FINE_TUNED[name], lr=lr)
        return Candidate(name, "Localised", inner.fixed, inner.spans, base=FINE_TUNED[name], steps=steps)
    told, fixed = VARIANTS.get(name, (name, {}))
    known = {*SAME, *(one for track in TRACKS for one in fitting(track))}
    if not is_outside(name) and name not in known:
        raise unknown("algorithm", name, sorted(known))
    fixed, options = dict(fixed), dict(given or {})
    cls: Any = method_class(told)
    spans: dict[str, Span] = {}
    for field in dataclasses.fields(cls):
        around = options.get(field.name, field.default)
        if field.name == "lr":
            around = options.get("lr", lr)
        if around is dataclasses.MISSING:
            around = field.metadata.get("around")
        if around is None and field.default is dataclasses.MISSING:
            raise FedaxError(
                f"{label} has a number {field.name} without a default and without a range to search: give it "
                f"`around=` in the method's file"
            )
        span = _span(field, around, fixed)
        if span is not None:
            spans[field.name] = span
        elif field.name in options or (field.default is dataclasses.MISSING and field.name not in fixed):
            fixed[field.name] = around
    return Candidate(label, told, fixed, spans)


def _span(field: dataclasses.Field[Any], around: Any, fixed: Mapping[str, Any]) -> Span | None:
    """The range of a number that is searched; None for one that stays as it is."""
    declared = field.metadata.get("tune") or (RATE if field.name == "lr" else None)
    if declared is None or field.name in fixed or isinstance(around, bool) or not isinstance(around, int | float):
        return None
    if not isinstance(declared, Times):
        return Span(min(declared), max(declared), tuple(declared))
    ends = [around * factor for factor in declared.factors]
    inside = [value for value in ends if within(value, field.metadata["interval"]) and value > 0]
    return Span(min(inside), max(inside)) if len(inside) > 1 else None


def track_of(problem: Any, methods: Sequence[Algorithm] = ()) -> Track:
    """The track of a problem: composite with a regularizer, personal if the experiment's own methods are.

    >>> import fedax
    >>> problem = fedax.Problem(fedax.models.model("logistic", outputs=2), loss="cross_entropy")
    >>> track_of(problem, [fedax.Ditto(0.1, 1.0)])
    'personal'
    """
    if problem.regularizer is not None:
        return "composite"
    return "personal" if any(method.personalised for method in methods) else "shared"


def fitting(track: Track) -> list[str]:
    """The names of the methods of a track; whether each can run on a problem is seen when it is prepared.

    >>> fitting("composite")
    ['FedADMM', 'FedDualAvg', 'FedMiD', 'FedMiD-OSP', 'FedDualAvg-OSP', 'FedAvg']
    """
    known = {name: cls for name, cls in ALGORITHMS.items() if not issubclass(cls, OfBase) and name not in SAME}
    if track == "composite":
        names = [name for name, cls in known.items() if cls.composite and not cls.personalised]
        return [*names, "FedMiD-OSP", "FedDualAvg-OSP", "FedAvg"]
    if track == "personal":
        return [*(name for name, cls in known.items() if cls.personalised), "APFL-adaptive", *FINE_TUNED]
    return [name for name, cls in known.items() if name in BOTH or (not cls.personalised and name not in WITH_PSI)]
