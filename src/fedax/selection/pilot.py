"""The gradients that fit into a time limit, estimated by a short, timed run of the first method."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fedax.engine.prepare import Prepared
from fedax.engine.sweeps import sweep
from fedax.errors import FedaxError
from fedax.selection.allowance import Allowance, price
from fedax.selection.candidates import Candidate
from fedax.selection.contest import STAGES


def gradients_in(
    minutes: float,
    problem: Any,
    federation: Any,
    tried: Sequence[Candidate],
    prepared: Mapping[str, Prepared],
    how: Mapping[str, Any],
    trials: int,
    finals: int,
) -> Allowance:
    """The gradients that each run may take so that the whole search fits into a time, by a pilot of the first method.

    Compiling is paid once a method; finals: how many runs the final has.
    """
    first = tried[0]
    methods = [first.make(numbers) for numbers in first.draw(trials)]
    seconds = []
    for rounds in (1, 4, 8):  # the first compiles
        began = time.perf_counter()
        sweep(problem, federation, methods, rounds=rounds, eval_on=["validation"], eval_every=rounds, **how)
        seconds.append(time.perf_counter() - began)
    each = max((seconds[2] - seconds[1]) / 4, 1e-4) / trials  # a round of one setting
    compiling = max(seconds[0] - seconds[1], 0.0)
    unit = each / price(prepared[first.label])["gradients"]  # seconds a gradient
    whole = len(tried) * trials * (1 / STAGES[0] + 1 / STAGES[1]) + len(tried) / 2 * trials + finals
    left = 60 * minutes - compiling * (len(tried) + min(finals, 4))
    gradients = left / (unit * whole)
    dearest = max(price(run)["gradients"] for run in prepared.values())
    if gradients < dearest * STAGES[0]:
        needed = compiling * (len(tried) + min(finals, 4)) + unit * whole * dearest * STAGES[0]
        raise FedaxError(
            f"budget is {minutes:g} minutes: {len(tried)} methods with {trials} settings each need about "
            f"{math.ceil(needed / 60)} here, so give more, fewer methods or fewer trials"
        )
    return Allowance(gradients, "gradients")
