"""The gradients that fit into a time limit, estimated by short, timed runs of the first method."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fedax.engine.prepare import Prepared
from fedax.engine.sweeps import Settings
from fedax.errors import FedaxError
from fedax.selection.allowance import Allowance, price
from fedax.selection.candidates import Candidate
from fedax.selection.contest import STAGES, work

ENOUGH = 1.0  #: seconds of rounds, after which their speed is known
MOST = 4096  #: rounds of a timed run


def gradients_in(
    minutes: float,
    problem: Any,
    federation: Any,
    tried: Sequence[Candidate],
    prepared: Mapping[str, Prepared],
    how: Mapping[str, Any],
    trials: int,
    finalists: int,
    seeds: int,
) -> Allowance:
    """The gradients that each run may take so that the whole search fits into a time."""
    first = tried[0]
    methods = [first.make(numbers) for numbers in first.draw(trials)]
    fixed, each, batched = _timed(problem, federation, methods, how)
    programs, runs = work(len(tried), trials=trials, finalists=finalists, seeds=seeds, batched=batched)
    unit = each / price(prepared[first.label])["gradients"]  # seconds a gradient
    left = 60 * minutes - fixed * programs
    gradients = left / (unit * runs)
    dearest = max(price(run)["gradients"] for run in prepared.values())
    if gradients < dearest * STAGES[0]:
        needed = math.ceil((fixed * programs + unit * runs * dearest * STAGES[0]) / 60)
        raise FedaxError(
            f"budget is {minutes:g} minutes: {len(tried)} methods with {trials} settings each need about {needed} "
            f"minute{'s' if needed > 1 else ''} here, so give more, fewer methods or fewer trials"
        )
    return Allowance(gradients, "gradients")


def _timed(problem: Any, federation: Any, methods: Sequence[Any], how: Mapping[str, Any]) -> tuple[float, float, bool]:
    """Seconds that a method's first run takes beside its rounds, seconds of one setting's round, whether batched."""
    fixed, rounds = 0.0, 2
    while True:
        began = time.perf_counter()
        settings = Settings(
            problem, federation, methods, rounds=rounds, eval_on=["validation"], eval_every=rounds, **how
        )
        marks = _marks(settings)
        seconds = marks[-1][1] - marks[0][1]
        each = seconds / (marks[-1][0] - marks[0][0])
        fixed = fixed or time.perf_counter() - began - each * marks[-1][0]
        if seconds >= ENOUGH or rounds >= MOST:
            return max(fixed, 0.0), max(each, 1e-9), settings.mode == "batched"
        rounds *= 4


def _marks(settings: Settings) -> list[tuple[int, float]]:
    """The rounds of all settings that were done, and when; of settings one after the other the first alone runs."""
    found: list[tuple[int, float]] = []
    for block in settings.blocks[:1] if settings.mode == "sequence" else settings.blocks:
        settings.run(
            block,
            keep=lambda number, result, metrics: None,
            say=lambda done: found.append((done, time.perf_counter())),
        )
    return found
