"""What a comparison found, in a sentence or two made from its numbers: who is ahead, by how much, whether that is
beyond the spread over seeds, and at what cost."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from fedax.evaluation.metrics import main
from fedax.report.columns import PARTS, MetricColumn, better, parse, text
from fedax.report.honest import constant_row
from fedax.report.sentences import obstacles
from fedax.report.summary import Group, Spread, final, rows, spread
from fedax.runs.reading import RecordedRun

COSTS = {"gradients": "gradients", "floats": "floats sent"}
MODELS = {False: "shared model", True: "personal models"}
PLAIN = {"0.5": "half", "2": "twice"}
ALIKE = 0.02  # costs within two per cent are told as the same


class Contender(NamedTuple):
    """A method with a metric's final value by seed."""

    group: Group
    values: dict[int | None, float]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values.values())


def conclusion(groups: Sequence[Group]) -> list[str]:
    """A sentence on the shared model and one on the clients' own, each where runs that finished have one; none where
    the runs cannot be compared."""
    done = [group for group in groups if group.finished]
    if not done or obstacles(list(groups)):
        return []
    keys = dict.fromkeys(key for row in rows(done) for key in row)
    metrics = {key: metric for key in keys if (metric := parse(key)) and not metric.statistic}
    name = main(metric.name for metric in metrics.values())
    said = []
    for personal in (False, True):
        key = next((k for k, m in metrics.items() if m.name == name and m.personal == personal), None)
        entries = [entry for group in done if key and (entry := _entry(group, key))]
        if key and entries:
            ranked = sorted(entries, key=lambda entry: entry.mean, reverse=better(key) == "max")
            said.append(_sentence(key, metrics[key], ranked, done))
    return said


def _entry(group: Group, key: str) -> Contender | None:
    values = {run.seed: final(run, key) for run in group.runs}
    known = {seed: value for seed, value in values.items() if value is not None and math.isfinite(value)}
    return Contender(group, known) if known and len(known) == len(values) else None


def _sentence(key: str, metric: MetricColumn, ranked: list[Contender], groups: Sequence[Group]) -> str:
    first = ranked[0]
    level = [entry for entry in ranked if _same(entry, first)]
    who, models = _listed([entry.group.label for entry in level]), MODELS[metric.personal]
    value = f"{PARTS[metric.part].lower()} {metric.words} {text(key, first.mean)}{' %' if metric.percent else ''}"
    rest = [entry for entry in ranked if not _same(entry, first)]
    seeds = len(first.values)
    over = f" over {seeds} seeds" if seeds > 1 else " with one seed"
    constant = _constant(key, metric, first.mean, groups, alone=not rest)
    if not rest:
        told = f"{value} with its {models}" if len(level) == 1 else f"{value} with their {models.removesuffix('s')}s"
        reach = "reaches" if len(level) == 1 else "reach"
        return f"{who} {reach} {told}{', the mean' if seeds > 1 else ','}{over}{constant}."
    behind = sorted(
        (entry for entry in rest if _same(entry, rest[0])), key=lambda entry: _spent(entry.group, "gradients") or 0
    )
    ahead = f"{_difference(key, metric, first, behind[0])} {_listed([entry.group.label for entry in behind])}"
    proven = _beyond(first, behind[0])
    if proven is False:
        return (
            f"No method is shown to have the best {models}: {who}'s {value} is {ahead}, which is within the "
            f"spread{over}{constant}."
        )
    beyond = f"(beyond the spread{over})" if proven else f"({over.strip()}, which says nothing about other seeds)"
    has = "has" if len(level) == 1 else "have"
    return f"{who} {has} the best {models}: {value}, {ahead} {beyond}{_cost(first.group, behind[0].group)}{constant}."


def _same(one: Contender, other: Contender) -> bool:
    """Whether two methods' values are the same, seed by seed, up to rounding."""
    near = functools.partial(math.isclose, rel_tol=1e-6)
    return one.values.keys() == other.values.keys() and all(near(one.values[s], other.values[s]) for s in one.values)


def _difference(key: str, metric: MetricColumn, first: Contender, behind: Contender) -> str:
    """
    >>> a, b = (Contender(Group(label, ()), {0: value}) for label, value in (("A", 0.91), ("B", 0.9)))
    >>> _difference("test_accuracy", MetricColumn("test", "accuracy"), a, b)
    '1.00 points above'
    """
    ahead = abs(first.mean - behind.mean)
    side = "above" if better(key) == "max" else "below"
    return f"{100 * ahead:.2f} points {side}" if metric.percent else f"{ahead:.3g} {side}"


def _beyond(first: Contender, behind: Contender) -> bool | None:
    """Whether the interval of the differences, taken seed by seed, leaves out 0; None where there are too few seeds."""
    seeds = first.values.keys() & behind.values.keys()
    paired = [first.values[seed] - behind.values[seed] for seed in seeds]
    if len(paired) < 2:
        return None
    mean = statistics.fmean(paired)
    return abs(mean) > (Spread(mean, statistics.stdev(paired), len(paired)).half or 0.0)


def _cost(first: Group, behind: Group) -> str:
    """What the lead cost, in gradients and floats against the runner-up's.

    >>> from pathlib import Path
    >>> def spent(gradients, floats):
    ...     return Group("A", (RecordedRun(Path("a"), ({"gradients": gradients, "floats_up": floats},)),))
    >>> _cost(spent(1, 4), spent(2, 4)), _cost(spent(2, 4), spent(2, 4))
    (', with half the gradients and as many floats sent', ', with as many gradients and floats sent')
    """
    told = []
    for key, noun in COSTS.items():
        mine, other = (_spent(group, key) for group in (first, behind))
        if mine is None or other is None or mine == other == 0:
            continue
        if other == 0:
            told.append(f"{text('floats_up', mine)} {noun} against none")
        elif mine == 0:
            told.append(f"no {noun} against {text('floats_up', other)}")
        elif abs(mine / other - 1) <= ALIKE:
            told.append(f"as many {noun}")
        else:
            times = f"{mine / other:.2g}"
            told.append(f"{PLAIN.get(times, f'{times} times')} the {noun}")
    if told == [f"as many {noun}" for noun in COSTS.values()]:
        told = [f"as many {' and '.join(COSTS.values())}"]
    return f", with {' and '.join(told)}" if told else ""


def _spent(group: Group, key: str) -> float | None:
    def of(run: RecordedRun) -> float | None:
        parts = [final(run, name) for name in (("floats_up", "floats_down") if key == "floats" else (key,))]
        known = [part for part in parts if part is not None]
        return sum(known) if known else None

    found = spread(of(run) for run in group.runs)
    return None if found is None or not math.isfinite(found.mean) else found.mean


def _constant(key: str, metric: MetricColumn, mean: float, groups: Sequence[Group], *, alone: bool) -> str:
    """What the constant predictor has, if there is nothing else to compare with or the best method is no better."""
    row = constant_row(groups)
    if row is None or key not in row:
        return ""
    against: float = row[key].mean
    worse = mean <= against if better(key) == "max" else mean >= against
    value = f"{text(key, against)}{' %' if metric.percent else ''}"
    return f"; the {row['algorithm'].lower()}, which learns nothing, has {value}" if worse or alone else ""


def _listed(names: Sequence[str]) -> str:
    """
    >>> _listed(["A"]), _listed(["A", "B", "C"])
    ('A', 'A, B and C')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
