"""The allowance of each run of a search: gradients of single rows, floats sent both ways, or rounds of FedAvg.

Every method has as many rounds as its allowance pays for, so methods with more expensive rounds have fewer of them.
"""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np

from fedax.engine.prepare import Prepared
from fedax.errors import FedaxError

UNITS = ("rounds", "gradients", "floats", "minutes")
_WRITTEN = re.compile(r"\s*([0-9][0-9_,.]*(?:[eE][+-]?[0-9]+)?)\s*([a-z]+)\s*")


@dataclasses.dataclass(frozen=True)
class Allowance:
    """An amount of something; `minutes` are those of the whole search, the others those of one run.

    >>> Allowance.of("2e6 gradients"), Allowance.of("10 minutes")
    (Allowance(amount=2000000.0, unit='gradients'), Allowance(amount=10.0, unit='minutes'))
    """

    amount: float
    unit: str

    @classmethod
    def of(cls, written: str) -> Allowance:
        """A budget as a user writes it, a number and a unit."""
        match = _WRITTEN.fullmatch(written)
        unit = "" if match is None else match[2] if match[2].endswith("s") else f"{match[2]}s"
        if match is None or unit not in UNITS:
            raise FedaxError(
                f"budget is {written!r}: it must be a number and one of {', '.join(UNITS)}, such as '2e6 gradients'"
            )
        amount = float(match[1].replace("_", "").replace(",", ""))
        if not 0 < amount < 1e18:
            raise FedaxError(f"budget is {written!r}: the number must be above 0 and below 1e18")
        return cls(amount, unit)

    def rounds(self, run: Prepared, label: str) -> int:
        """The number of rounds of a prepared method that the allowance pays for; raises if that is 0."""
        each = price(run)[self.unit]
        if not each:  # it sends nothing: no budget of floats limits it
            raise FedaxError(f"{label} has no {self.unit} to count")
        count = math.floor(self.amount / each * (1 + 1e-9))
        if count < 1:
            raise FedaxError(
                f"budget is {self.amount:,.0f} {self.unit}: one round of {label} takes {each:,.0f}, so give at least "
                "that many"
            )
        return count


def price(run: Prepared) -> dict[str, float]:
    """The cost of a round of a prepared method; clients of unequal size count with their mean cost."""
    cost, cohort = run.cost, run.plan.cohort
    gradients = cohort * float(np.mean(cost.gradients(run.rows, run.steps, run.plan.batch)))
    return {"rounds": 1.0, "gradients": gradients, "floats": float(cohort * (cost.down + cost.up))}
