"""One method on one task: rounds by both budgets, settings on validation rows, the chosen ones with every seed."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from fedax.engine.config import RunConfig
from fedax.engine.prepare import Prepared
from fedax.engine.sweeps import Settings
from fedax.errors import FedaxError
from fedax.leaderboard.rules import BUDGETS, MOST, OVER, PARTS, TRIALS, TUNING_SEED
from fedax.leaderboard.source import source_hash
from fedax.leaderboard.tasks import Task
from fedax.report.columns import better
from fedax.selection.allowance import price
from fedax.selection.candidates import Candidate, candidate

Entry = dict[str, Any]  #: what is saved of a method on a task
Keep = Callable[[Entry], None]


class Ground:
    """A task with its problem and federation built, once for all methods."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.problem, self.federation = task.build()
        self._before: dict[bool, Prepared] = {}

    def prepared(self, method: Any, *, personal: bool) -> Prepared:
        """A method, prepared; raises where it does not fit."""
        how = {**self.task.how(), "personal": personal}
        config = RunConfig(rounds=self.task.rounds, **how)
        found = Prepared.of(self.problem, self.federation, method, config, self._before.get(personal))
        self._before[personal] = found  # the next method shares what does not depend on the method
        return found

    @functools.cached_property
    def yardstick(self) -> dict[str, float]:
        """What a round of FedAvg costs."""
        return price(self.prepared(candidate("FedAvg", lr=self.task.lr).make({"lr": self.task.lr}), personal=False))

    def rounds(self, one: Candidate) -> tuple[dict[str, int], dict[str, float]]:
        """A method's rounds on both boards, and what one of them costs; raises where a budget pays for too few."""
        run = self.prepared(one.make(one.draw(1)[0]), personal=self.task.track == "personal")
        costs, unit = price(run), self.task.rounds // PARTS
        found: dict[str, int] = {}
        for budget in BUDGETS:
            times = self.yardstick[budget] / costs[budget] if costs[budget] else 1.0
            found[budget] = math.floor(min(times, MOST) * PARTS * (1 + OVER)) * unit
            if not found[budget]:
                needed = math.ceil(costs[budget] * unit)
                raise FedaxError(
                    f"{self.task.name}: the budget of {self.yardstick[budget] * self.task.rounds:,.0f} {budget} is too "
                    f"small for {one.label}, which takes {needed:,} in {unit} of FedAvg's {self.task.rounds} rounds"
                )
        return found, {budget: costs[budget] for budget in BUDGETS} | {"kept": float(run.cost.kept)}


def named(task: Task, name: str) -> Candidate:
    """A method with the ranges that its settings fill on a task."""
    steps = task.experiment.local_steps or 1
    return candidate(name, lr=task.lr, steps=steps)


def label(name: str) -> str:
    """How a method is called on the board.

    >>> label("mine.py:Mine")
    'Mine'
    """
    return name.rpartition(":")[2] or name


def play(
    ground: Ground, one: Candidate, seeds: Sequence[int], entry: Entry | None, keep: Keep, say: Callable[[float], None]
) -> Entry:
    """Run what is not yet in the entry: the grid, then the chosen settings with each seed; `keep` is told of each step.

    say: told which part of the whole is done, from 0 to 1.
    """
    began = time.process_time()
    if entry is None:
        entry = _empty(ground, one)
    spent = entry["cpu_seconds"]

    def done(share: float) -> None:
        entry["cpu_seconds"] = round(spent + time.process_time() - began, 2)
        keep(entry)
        say(share)

    methods = [one.make(numbers) for numbers in entry["settings"]]
    weight = len(methods) / (len(methods) + 1.5 * len(seeds))
    if not entry["grid"]:
        entry["grid"] = _grid(ground, entry, methods, lambda share: say(share * weight))
        done(weight)
    for place, seed in enumerate(seeds):
        for number, needed in chosen_settings(ground.task, entry).items():
            runs = entry["runs"].setdefault(str(number), {})
            known = runs.get(str(seed))
            if known is None or known["rounds"] < needed:
                runs[str(seed)] = _reported(ground, entry, methods[number], seed, needed)
        done(weight + (1 - weight) * (place + 1) / len(seeds))
    return entry


def _empty(ground: Ground, one: Candidate) -> Entry:
    rounds, costs = ground.rounds(one)
    spans = {name: list(span.values) or [span.low, span.high] for name, span in one.spans.items()}
    return {
        "method": one.name.partition(":")[2] or one.name,
        "source": source_hash(one.make(one.draw(1)[0])),
        "spans": spans,
        "settings": one.draw(TRIALS),
        "rounds": rounds,
        "price": costs,
        "grid": {},
        "runs": {},
        "cpu_seconds": 0.0,
    }


def chosen_settings(task: Task, entry: Entry) -> dict[int, int]:
    """The numbers of the settings that the boards have chosen, with the rounds that are needed of each."""
    found: dict[int, int] = {}
    for budget in BUDGETS:
        number = chosen(task, entry, budget)
        found[number] = max(found.get(number, 0), entry["rounds"][budget])
    return found


def chosen(task: Task, entry: Entry, budget: str) -> int:
    """The number of the setting with the best validation score; the first of equals, and of those that diverged."""
    sign = -1.0 if better(task.column("validation")) == "max" else 1.0
    scores = [math.inf if score is None else sign * score for score in entry["grid"][budget]]
    return scores.index(min(scores))


def _grid(ground: Ground, entry: Entry, methods: Sequence[Any], say: Callable[[float], None]) -> dict[str, Any]:
    """Every setting's validation score at the end of each budget, all side by side where the model is small."""
    ends, column = entry["rounds"], ground.task.column("validation")
    most = max(ends.values())
    how: dict[str, Any] = {"eval_on": ["validation"], "eval_every": math.gcd(*ends.values()), "seed": TUNING_SEED}
    settings = Settings(ground.problem, ground.federation, methods, rounds=most, **ground.task.how(), **how)
    found: list[dict[int, Any]] = []
    for block in settings.blocks:
        settings.run(
            block,
            keep=lambda number, result, metrics: found.append({row["round"]: row for row in result.history}),
            say=lambda rounds: say(rounds / (most * len(methods))),
        )
    return {budget: [_plain(rows.get(end, {}).get(column)) for rows in found] for budget, end in ends.items()}


def _reported(ground: Ground, entry: Entry, method: Any, seed: int, rounds: int) -> dict[str, Any]:
    """One run with test rows: scores after every part; shorter where it diverged."""
    every, task = ground.task.rounds // PARTS, ground.task
    how: dict[str, Any] = {"eval_on": ["validation", "test"], "eval_every": every, "seed": seed}
    whole = max(entry["rounds"].values())  # one program for all runs of the method
    settings = Settings(
        ground.problem, ground.federation, [method], rounds=min(rounds, whole), mode="sequence", **task.how(), **how
    )
    found: list[Any] = []
    began = time.process_time()
    settings.run(settings.blocks[0], keep=lambda number, result, metrics: found.append(result))
    rows = [row for row in found[0].history if row["round"] % every == 0]
    prefix = "personal_" if task.track == "personal" else ""
    columns = {"test": task.column("test"), "worst": f"{task.column('test')}_worst", "density": f"{prefix}density"}
    curves = {name: [_plain(row.get(key)) for row in rows] for name, key in columns.items() if key in rows[0]}
    return {"rounds": rounds, "cpu_seconds": round(time.process_time() - began, 3), **curves}


def _plain(value: Any) -> float | None:
    """A score to five digits; None where there is none."""
    if value is None or not math.isfinite(float(value)):
        return None
    return float(f"{float(value):.5g}")
