"""What a method says of itself, for the conformance suite to check.

A claim is data: `fedax.testing.check_algorithm` runs the method on random problems and shows the numbers
where the claim fails.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class Reduction:
    """With `when` set, the method is another one, round for round; rates of the same name are shared.

    local_steps: the number of local steps for which it holds, None for any.
    participation: "full" if it holds only when every client takes part in every round.
    other: parameters of the other method that have no namesake here.
    model: "shared", or "personal" for the clients' own models.

    >>> Reduction("FedAvg", when={"mu": 0.0}).text
    'is FedAvg when mu = 0.0'
    """

    to: str
    when: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    other: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    local_steps: int | None = None
    participation: Literal["any", "full"] = "any"
    model: Literal["shared", "personal"] = "shared"

    @property
    def text(self) -> str:
        conditions = [f"{k} = {v}" for k, v in self.when.items()]
        if self.local_steps is not None:
            conditions.append(f"{self.local_steps} local step")
        if self.participation == "full":
            conditions.append("all clients take part")
        whose = " (personal models)" if self.model == "personal" else ""
        return f"is {self.to}{whose} when {', '.join(conditions) or 'always'}"


@dataclasses.dataclass(frozen=True)
class Optimum:
    """On noise-free heterogeneous quadratics with K > 1 it reaches the minimiser of the mean objective.

    >>> Optimum("partial").text
    'reaches the optimum of heterogeneous quadratics, partial participation'
    """

    participation: Literal["full", "partial"]
    when: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    local_steps: int = 5
    rounds: int = 3000

    @property
    def text(self) -> str:
        setting = "".join(f", {k} = {v}" for k, v in self.when.items())
        return f"reaches the optimum of heterogeneous quadratics, {self.participation} participation{setting}"


Claim = Reduction | Optimum
