"""Robust: any method with its cohort's uploads combined by a rule that a few wrong ones do not move far.

Objective:  the base's

    the base's rounds, unchanged but for                                    fedax.algorithms.aggregation
    server:  upload = rule(u_1, ..., u_m)  in place of  mean_i u_i

A rule acts on one vector: methods that send several (SCAFFOLD, FedMiD's companions) are refused before a run.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms import aggregation
from fedax.algorithms.base import algorithm, choice, integer, method, number
from fedax.algorithms.localised import OfBase
from fedax.errors import FedaxError
from fedax.vectors import Vector


@algorithm
class Robust(OfBase):
    """The base's objective, with the uploads of a round combined by a robust rule.

    base: a method whose upload is one vector.
    rule: "median", "trimmed_mean", "geometric_median" or "krum"; or a function (uploads, weights) of your own,
        "mymodule:my_rule".
    trim: the share of values that trimmed_mean leaves out at either end, in [0, 0.5).
    attackers: how many wrong uploads krum reckons with, from 0 to 1e9.

    Sends and keeps what the base does.

    >>> from fedax.algorithms import FedAvg
    >>> Robust(FedAvg(lr=0.1), rule="median")
    Robust(base=FedAvg(lr=0.1, server_lr=1.0), rule='median', trim=0.1, attackers=1)
    """

    base: Any = method()
    rule: str = choice(*aggregation.RULES, default="trimmed_mean", outside=True)
    trim: float = number("[0, 0.5)", default=0.1)
    attackers: int = integer("[0, 1e9]", default=1)

    reference = "Yin et al. 2018; Blanchard et al. 2017; Pillutla, Kakade and Harchaoui 2022"

    def __post_init__(self) -> None:
        super().__post_init__()
        aggregation.named(self.rule)

    def aggregate(self, uploads: Any, weights: Any) -> Any:
        if not isinstance(uploads, Vector):
            name = type(self.base).__name__
            raise FedaxError(f"Robust: {self.rule} combines uploads of one vector, and {name} sends several")
        if self.rule == "trimmed_mean":
            return aggregation.trimmed_mean(uploads, weights, self.trim)
        if self.rule == "krum":
            return aggregation.krum(uploads, weights, self.attackers)
        return aggregation.named(self.rule)(uploads, weights)
