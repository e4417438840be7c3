"""The schedule of a run, checked against its federation before any work."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Gt, Lt

from fedax.client.availability import Availability
from fedax.data.federation import Federation
from fedax.data.generators.lazy import Lazy
from fedax.errors import FedaxError
from fedax.options import Count
from fedax.randomness import Sampling


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundWork:
    """What is done in every round: the options that a simulation, an experiment file and a run over a network share.

    rounds: communication rounds.
    cohort: clients a round, drawn without replacement; None for all.
    local_steps, local_epochs: a client's work a round, in steps (default 1) or passes over its rows.
    batch_size: rows a minibatch; None for the full local gradient.
    sampling: "epochs" (reshuffled) or "iid" (with replacement).
    weighted: average by clients' rows instead of uniformly.
    model_state: on a model with state, such as BatchNorm's statistics, what clients do with it: "average" it with their
        uploads, or keep it by the "client" (FedBN), whose metrics are then with its own.
    personal: whether to evaluate clients' own models, where the method makes them, beside the shared one.
    zero_below: on a problem with a regularizer, what counts as zero in density, support and rank.
    availability: when clients are there and who is slow, such as `Availability(leave=0.1, come=0.3, drop_out=0.05)`.
    """

    rounds: Annotated[int, Ge(1), Lt(2**31)]
    cohort: Count | None = None
    local_steps: Annotated[int, Ge(1), Lt(2**31)] | None = None
    local_epochs: Annotated[float, Gt(0)] | None = None
    batch_size: Annotated[int, Ge(1), Lt(2**31)] | None = None
    sampling: Sampling = "epochs"
    weighted: bool = False
    model_state: Literal["average", "client"] | None = None
    personal: bool = True
    zero_below: Annotated[float, Ge(0)] = 0.01
    availability: Availability | None = None


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
    sometimes: bool = False  #: a place of the cohort may be empty, and is then ~c

    @property
    def equal_rows(self) -> bool:
        return self.min_rows == self.max_rows


def make_plan(
    federation: Federation | Lazy, work: RoundWork, *, cohort: int | None
) -> tuple[Plan, np.ndarray[Any, np.dtype[np.int64]]]:
    """Check the work of a round against the federation; the plan, and each client's local steps."""
    if work.local_steps is not None and work.local_epochs is not None:
        raise FedaxError("give local_steps or local_epochs, not both")
    clients, count = federation.clients, federation.train.count
    if cohort is not None and cohort > clients:
        raise FedaxError(f"cohort={cohort} is larger than the federation of {clients} clients")
    if (empty := np.flatnonzero(count < 1)).size:
        raise FedaxError(f"client {int(empty[0])} has no training rows")
    if work.local_epochs is None:
        steps = np.full(clients, work.local_steps or 1, np.int64)
    else:
        batch = count if work.batch_size is None else np.minimum(work.batch_size, count)
        found = np.maximum(1.0, np.ceil(work.local_epochs * count / batch))
        if found.max() >= 2**31:
            raise FedaxError(f"local_epochs={work.local_epochs:g} is {found.max():.3g} local steps: at most 2**31 - 1")
        steps = found.astype(np.int64)
    plan = Plan(
        clients=clients,
        cohort=clients if cohort is None else cohort,
        batch=work.batch_size,
        max_steps=int(steps.max()),
        equal_steps=bool(steps.min() == steps.max()),
        min_rows=int(count.min()),
        max_rows=int(count.max()),
        sampling=work.sampling,
        weighted=work.weighted,
    )
    return plan, steps
