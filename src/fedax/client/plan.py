"""The schedule of a run, checked against its federation before any work."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fedax.data.federation import Federation
from fedax.data.generators.lazy import Lazy
from fedax.errors import FedaxError, unknown
from fedax.randomness import Sampling


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is fixed for a whole run, and so for the compiled program."""

    clients: int
    cohort: int
    batch: int | None  #: rows a minibatch, None for the full local gradient
    max_steps: int  #: local steps of the busiest client
    equal_steps: bool  #: every client takes max_steps
    min_rows: int  #: training rows of the smallest client
    max_rows: int  #: and of the largest
    sampling: Sampling
    weighted: bool  #: mean by rows rather than by clients

    @property
    def equal_rows(self) -> bool:
        return self.min_rows == self.max_rows


def make_plan(
    federation: Federation | Lazy,
    rounds: int,
    cohort: int | None,
    local_steps: int | None,
    local_epochs: float | None,
    batch_size: int | None,
    sampling: Sampling,
    weighted: bool,
) -> tuple[Plan, np.ndarray[Any, np.dtype[np.int64]]]:
    """Check the schedule of a run against its federation; the plan, and each client's local steps."""
    check_positive("rounds", rounds)
    for name, value in (("cohort", cohort), ("local_steps", local_steps), ("batch_size", batch_size)):
        if value is not None:
            check_positive(name, value)
    if local_steps is not None and local_epochs is not None:
        raise FedaxError("give local_steps or local_epochs, not both")
    if local_epochs is not None and not local_epochs > 0:
        raise FedaxError(f"local_epochs must be above 0, not {local_epochs}")
    if sampling not in ("epochs", "iid"):
        raise unknown("sampling", sampling, ("epochs", "iid"))
    clients, count = federation.clients, federation.train.count
    if cohort is not None and cohort > clients:
        raise FedaxError(f"cohort={cohort} is larger than the federation of {clients} clients")
    if (empty := np.flatnonzero(count < 1)).size:
        raise FedaxError(f"client {int(empty[0])} has no training rows")
    if local_epochs is None:
        steps = np.full(clients, 1 if local_steps is None else local_steps, np.int64)
    else:
        batch = count if batch_size is None else np.minimum(batch_size, count)
        steps = np.maximum(1, np.ceil(local_epochs * count / batch)).astype(np.int64)
    plan = Plan(
        clients=clients,
        cohort=clients if cohort is None else cohort,
        batch=batch_size,
        max_steps=int(steps.max()),
        equal_steps=bool(steps.min() == steps.max()),
        min_rows=int(count.min()),
        max_rows=int(count.max()),
        sampling=sampling,
        weighted=weighted,
    )
    return plan, steps


def check_positive(name: str, value: Any) -> None:
    """Refuse what is no whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise FedaxError(f"{name} must be a whole number from 1 on, not {value!r}")
