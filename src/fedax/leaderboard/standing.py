"""From saved results to places: scores, pairs, ranks on a task, mean ranks over tasks and their critical difference."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedax.evaluation.protocol import interval
from fedax.leaderboard.playing import Entry, chosen
from fedax.leaderboard.rules import LEVEL, PARTS, SEEDS
from fedax.leaderboard.saved_tasks import Saved
from fedax.leaderboard.tasks import Task
from fedax.report.columns import better
from fedax.selection.candidates import YARDSTICK
from fedax.selection.ranking import ahead


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A method on a task with one of the budgets: its chosen setting's runs, in the order of the seeds."""

    label: str
    rounds: int
    scores: list[float]  #: on test rows at the end; NaN where it diverged
    curve: list[float]  #: the mean over seeds after each part, from before the first round on
    worst: float  #: the mean over seeds of the worst tenth of clients
    density: float
    seconds: float  #: of the CPU for a run, the median over seeds, because the first one compiles
    floats: float  #: of a run
    diverged: int
    tried: list[float]  #: the validation scores of all settings

    @property
    def mean(self) -> float:
        """Over seeds; NaN where one diverged."""
        return float(np.mean(self.scores))


class Table:
    """All outcomes of a task with one of the budgets."""

    def __init__(self, saved: Saved, budget: str) -> None:
        self.task, self.budget = saved.task, budget
        done = {label: entry for label, entry in saved.entries.items() if entry["grid"]}
        self.seeds = common_seeds(saved.task, done)
        self.outcomes = {label: _outcome(saved.task, label, entry, budget, self.seeds) for label, entry in done.items()}
        self.higher = better(saved.task.column("test")) == "max"

    @functools.cached_property
    def ranks(self) -> dict[str, float]:
        """1, plus 1 for each that is ahead, plus 1/2 for each that is tied."""
        return pair_ranks({k: o.scores for k, o in self.outcomes.items()}, higher=self.higher)

    @property
    def yardstick(self) -> Outcome | None:
        """FedAvg, or training alone."""
        return self.outcomes.get(YARDSTICK[self.task.track])

    @functools.cached_property
    def point(self) -> float:
        """What one point is."""
        if self.higher:
            return 0.01
        known = self.yardstick
        return (known.curve[0] - known.mean) / 100 if known is not None and math.isfinite(known.mean) else math.nan

    def wins(self, label: str) -> bool:
        """Whether nobody is ahead."""
        return not any(self.pair(other, label)[0] == "ahead" for other in self.outcomes if other != label)

    def pair(self, first: str, second: str) -> tuple[str, float, float]:
        """Whether the first is "ahead", "behind" or "tied", by how many points, and the half-width of that."""
        a, b = (self.outcomes[label].scores for label in (first, second))
        sign = 1.0 if self.higher else -1.0
        mean, half = interval([sign * (x - y) / self.point for x, y in zip(a, b, strict=True)])
        if ahead(a, b, higher=self.higher):
            return "ahead", mean, half
        return ("behind" if ahead(b, a, higher=self.higher) else "tied"), mean, half

    def near_best(self, label: str) -> float:
        """The share of settings within one point of the best, on validation rows."""
        found = np.array(self.outcomes[label].tried)
        if not np.isfinite(found).any():
            return 0.0
        apart = np.nanmax(found) - found if self.higher else found - np.nanmin(found)
        return float(np.mean(np.nan_to_num(apart, nan=np.inf) <= self.point * (1 + 1e-9)))

    def to_target(self, label: str, target: float) -> float | None:
        """The share of the run after which the mean score is at the target; None if it never is."""
        curve = self.outcomes[label].curve
        reached = [i for i, v in enumerate(curve) if (v >= target if self.higher else v <= target)]
        return reached[0] / (len(curve) - 1) if reached and math.isfinite(self.outcomes[label].mean) else None


def common_seeds(task: Task, entries: Mapping[str, Entry]) -> list[int]:
    """The seeds with which all of the entries were run."""
    return [
        seed
        for seed in SEEDS["full"]
        if entries
        and all(
            str(seed) in entry["runs"].get(str(chosen(task, entry, budget)), {})
            for entry in entries.values()
            for budget in ("gradients", "floats")
        )
    ]


def _outcome(task: Task, label: str, entry: Entry, budget: str, seeds: Sequence[int]) -> Outcome:
    number, rounds = chosen(task, entry, budget), entry["rounds"][budget]
    end = rounds // (task.rounds // PARTS)
    runs = [entry["runs"][str(number)][str(seed)] for seed in seeds]

    def curves(name: str) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        rows = [[math.nan if v is None else v for v in run.get(name, [])][: end + 1] for run in runs]
        return np.array([row + [math.nan] * (end + 1 - len(row)) for row in rows]).reshape(len(runs), end + 1)

    test, tried = curves("test"), [math.nan if v is None else v for v in entry["grid"][budget]]
    return Outcome(
        label=label,
        rounds=rounds,
        scores=test[:, -1].tolist(),
        curve=test.mean(axis=0).tolist() if runs else [],
        worst=float(curves("worst")[:, -1].mean()) if runs else math.nan,
        density=float(curves("density")[:, -1].mean()) if runs else math.nan,
        seconds=float(np.median([run["cpu_seconds"] * rounds / run["rounds"] for run in runs])) if runs else math.nan,
        floats=entry["price"]["floats"] * rounds,
        diverged=int(np.isnan(tried).sum() + np.isnan(test[:, -1]).sum()),
        tried=tried,
    )


def pair_ranks(scores: Mapping[str, Sequence[float]], *, higher: bool) -> dict[str, float]:
    """Each one's rank by pairs; they add up as ranks do.

    >>> pair_ranks({"A": [0.9, 0.91, 0.92], "B": [0.91, 0.9, 0.92], "C": [0.7, 0.71, 0.72]}, higher=True)
    {'A': 1.5, 'B': 1.5, 'C': 3.0}
    """
    found = {}
    for label, mine in scores.items():
        others = [theirs for other, theirs in scores.items() if other != label]
        better_ones = sum(ahead(theirs, mine, higher=higher) for theirs in others)
        worse_ones = sum(ahead(mine, theirs, higher=higher) for theirs in others)
        found[label] = 1 + better_ones + (len(others) - better_ones - worse_ones) / 2
    return found


@dataclasses.dataclass(frozen=True)
class Board:
    """The methods of a track with one of the budgets, over the tasks on which all of them were run."""

    track: str
    budget: str
    tables: list[Table]
    mean_ranks: dict[str, float]  #: best first
    wins: dict[str, int]
    p: float  #: Friedman's
    difference: float  #: Nemenyi's critical difference; NaN for one task

    def apart(self, first: str, second: str) -> bool:
        """Whether two mean ranks differ beyond noise."""
        return self.p < LEVEL and abs(self.mean_ranks[first] - self.mean_ranks[second]) >= self.difference

    @functools.cached_property
    def first(self) -> list[str]:
        """Those within noise of the best mean rank; with one task, on which no ranks can differ so, those that win."""
        order = list(self.mean_ranks)
        if len(self.tables) == 1:
            return [label for label in order if self.wins[label]]
        return [label for label in order if not self.apart(order[0], label)]

    @property
    def groups(self) -> list[list[str]]:
        """The largest groups of neighbours that cannot be told apart."""
        order, found = list(self.mean_ranks), list[list[str]]()
        for i in range(len(order)):
            group = [label for label in order[i:] if not self.apart(order[i], label)]
            if len(group) > 1 and not any(set(group) <= set(known) for known in found):
                found.append(group)
        return found


def complete(saved: Saved) -> bool:
    """Whether every method of the track was run, with the quick suite's seeds at least, or left out."""
    done = {label: entry for label, entry in saved.entries.items() if entry["grid"]}
    known = set(done) | set(saved.left_out)
    return set(saved.task.methods) <= known and len(common_seeds(saved.task, done)) >= len(SEEDS["quick"])


def board(results: Sequence[Saved], track: str, budget: str) -> Board | None:
    """The board of a track; None without a task that is complete."""
    tables = [Table(saved, budget) for saved in results if saved.task.track == track and complete(saved)]
    if not tables:
        return None
    labels = set.intersection(*(set(table.outcomes) for table in tables))
    kept = {t.task.name: {k: o.scores for k, o in t.outcomes.items() if k in labels} for t in tables}
    ranks = [pair_ranks(kept[table.task.name], higher=table.higher) for table in tables]
    means = {label: float(np.mean([found[label] for found in ranks])) for label in labels}
    p, difference = friedman([[found[label] for label in sorted(labels)] for found in ranks])
    order = sorted(labels, key=lambda label: (means[label], label))
    wins = {label: sum(table.wins(label) for table in tables) for label in order}
    return Board(track, budget, tables, {label: means[label] for label in order}, wins, p, difference)


def friedman(ranks: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Friedman's p-value of ranks [tasks, methods], in Conover's form, which ties do not spoil; Nemenyi's difference.

    Demsar (2006), "Statistical Comparisons of Classifiers over Multiple Data Sets", section 3.2.2: 4 classifiers on 14
    sets have a critical difference of 1.25 at 0.05.

    >>> round(friedman([[1, 2, 3, 4]] * 14)[1], 2)
    1.25
    """
    from scipy.special import chdtrc
    from scipy.stats import studentized_range

    found = np.asarray(ranks, float)
    n, k = found.shape
    if n < 2 or k < 2:
        return 1.0, math.nan
    middle = (k + 1) / 2
    spread = float(((found - middle) ** 2).sum())
    between = float((n * (found.mean(axis=0) - middle) ** 2).sum()) * n
    p = float(chdtrc(k - 1, (k - 1) * between / spread)) if spread else 1.0
    q = float(studentized_range.ppf(1 - LEVEL, k, np.inf)) / math.sqrt(2)
    return p, q * math.sqrt(k * (k + 1) / (6 * n))
