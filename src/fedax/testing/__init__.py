"""The conformance suite: check that a method, Fedax's or yours, is what it says it is.

fedax.testing.check_algorithm(Mine(lr=0.05)).raise_if_failed()
"""

from __future__ import annotations

from fedax.testing.claim_checks import Task
from fedax.testing.findings import Check, Report
from fedax.testing.measured_cost import Costs, costs
from fedax.testing.problems import QUADRATIC, quadratics
from fedax.testing.suite import check_algorithm
from fedax.testing.targets import check_target, load_class, make

__all__ = [
    "QUADRATIC",
    "Check",
    "Costs",
    "Report",
    "Task",
    "check_algorithm",
    "check_target",
    "costs",
    "load_class",
    "make",
    "quadratics",
]
