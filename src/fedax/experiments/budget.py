"""The same budget for every method: as many rounds as fit into what the first method of the file uses.

A budget is counted as in a metrics log: gradients of single rows, or floats sent down and up. Clients that differ in
size count with their mean cost, so that all seeds have the same rounds.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedax.algorithms.base import Context
from fedax.engine.prepare import Prepared
from fedax.errors import FedaxError
from fedax.experiments.building import config_of
from fedax.experiments.file_tables import AlgorithmTable
from fedax.experiments.schema import Experiment

UNITS = {"gradients": "gradients of single rows", "floats": "floats sent, up and down", "rounds": "rounds"}
MOST = 1000  # times the rounds of the first method


@dataclasses.dataclass(frozen=True)
class Share:
    """One method's part of a budget: its rounds, and what one of them costs in the mean; 0 where it is free."""

    label: str
    rounds: int
    each: float

    def sentence(self, kind: str, first: Share) -> str:
        """The share as a sentence, compared with the method that sets the budget.

        >>> Share("SCAFFOLD", 50, 400.0).sentence("floats", Share("FedAvg", 100, 200.0))
        "SCAFFOLD: 50 rounds, half of FedAvg's, because a round sends twice as much"
        """
        shown = f"{self.label}: {self.rounds} round{'' if self.rounds == 1 else 's'}"
        costs = {"gradients": "takes {} as many gradients", "floats": "sends {} as much"}
        if self == first:
            return f"{shown}, which set the budget of {first.rounds * first.each:,.0f} {UNITS[kind]}"
        if not self.each:
            return f"{shown}, as {first.label}, because it sends nothing, so that a budget of floats does not limit it"
        if self.rounds == first.rounds:
            return f"{shown}, as {first.label}"
        why = costs[kind].format(_times(self.each / first.each))
        return f"{shown}, {_part(self.rounds / first.rounds)} {first.label}'s, because a round {why}"


def hold_equal(experiment: Experiment, problem: Any, federation: Any) -> tuple[Experiment, list[str]]:
    """The experiment with the rounds of each method that its budget allows, and a sentence on each.

    An experiment whose budget is rounds, or whose methods have theirs, stays as it is.
    """
    kind, tables = experiment.budget, experiment.algorithm
    given = [table for table in tables if table.rounds is not None]
    if kind in (None, "rounds") or len(given) == len(tables):
        return experiment, []
    if given:
        raise FedaxError(f"budget is {kind!r} and the rounds of {given[0].label} are given: give one of them")
    costs = [_costs(experiment, table, problem, federation) for table in tables]
    total = sum(itertools.islice(costs[0][str(kind)], experiment.rounds))
    if not total:
        raise FedaxError(
            f"budget is {kind!r}: the first method, {tables[0].label}, sends nothing, so put another first"
        )
    shares = [_share(table, cost[str(kind)], total, experiment) for table, cost in zip(tables, costs, strict=True)]
    held = [
        AlgorithmTable(name=table.name, label=table.label, rounds=share.rounds, **table.options)
        for table, share in zip(tables, shares, strict=True)
    ]
    sentences = [share.sentence(str(kind), shares[0]) for share in shares]
    return experiment.model_copy(update={"algorithm": held}), sentences


def _share(table: AlgorithmTable, costs: Iterator[float], total: float, experiment: Experiment) -> Share:
    """The number of rounds that fits the budget: for the first method its own, and for any at least one."""
    spent, rounds = 0.0, 0
    for each in itertools.islice(costs, MOST * experiment.rounds):
        free = not spent and rounds == experiment.rounds
        if free or spent + each > total * (1 + 1e-9):
            break
        spent, rounds = spent + each, rounds + 1
    label = str(table.label)
    if not spent and rounds:
        return Share(label, experiment.rounds, 0.0)
    if not rounds:
        raise FedaxError(
            f"budget is {experiment.budget!r}: a round of {label} takes more than the {total:,.0f} that "
            f"{experiment.algorithm[0].label} uses in all of its rounds, {experiment.rounds}: give it more rounds"
        )
    return Share(label, rounds, spent / rounds)


def _costs(experiment: Experiment, table: AlgorithmTable, problem: Any, federation: Any) -> dict[str, Iterator[float]]:
    """The cost of each round, in their order, as the mean over the seeds."""
    run = Prepared.of(problem, federation, table.build(), config_of(experiment, experiment.seeds[0]))
    cost, cohort = run.cost, run.plan.cohort
    gradients = cohort * float(np.mean(cost.gradients(run.rows, run.steps, run.plan.batch)))

    def sent(round: int, seed: int) -> float:
        down, up = run.algorithm.traffic(Context(round=round, seed=seed))
        return float(cohort * (cost.down * int(down) + cost.up * int(up)))

    floats = (float(np.mean([sent(r, seed) for seed in experiment.seeds])) for r in itertools.count())
    return {"gradients": itertools.repeat(gradients), "floats": floats}


def _times(ratio: float) -> str:
    """A ratio in words.

    >>> _times(2.0), _times(0.5), _times(1.5)
    ('twice', 'half', '1.5 times')
    """
    return {"2": "twice", "0.5": "half"}.get(f"{ratio:.3g}", f"{ratio:.3g} times")


def _part(ratio: float) -> str:
    """A share of rounds in words.

    >>> _part(0.5), _part(3.0), _part(0.333)
    ('half of', '3 times', '0.333 of')
    """
    shown = _times(ratio)
    return shown if ratio > 1 else f"{shown.removesuffix(' times')} of"
