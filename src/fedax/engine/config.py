"""What was asked of a run: every option once. `simulate`, the experiment file and a run over a network share them."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Concatenate, Literal, ParamSpec, TypeVar

from annotated_types import Ge, Lt, MinLen

from fedax.algorithms.base import Algorithm
from fedax.client.plan import Work
from fedax.data.federation import Federation
from fedax.data.generators.lazy import Lazy
from fedax.engine.store import byte_count
from fedax.errors import FedaxError
from fedax.options import Count, check_options, keywords
from fedax.problem import Problem

Part = Literal["train", "validation", "test"]
P = ParamSpec("P")
R = TypeVar("R")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulatedWork(Work):
    """The options that a simulation and an experiment file share.

    eval_on: parts to evaluate on, held-out rows by default.
    unseen: share of clients held out from training; when it is over they join, by the method's own rule.
    join_steps: local steps of theirs; as many as the others took on average unless given.
    executor: "auto", "batched", "looped" or "debug"; chunk: clients batched together; devices: how many to use.
    state_budget: memory for clients' states, such as "2GiB"; above it they are kept beside the devices or in a file.
    """

    eval_on: Annotated[Sequence[Part], MinLen(1)] | None = None
    unseen: Annotated[float, Ge(0), Lt(1)] = 0.0
    join_steps: Count | None = None
    executor: Literal["auto", "batched", "looped", "debug"] = "auto"
    devices: Count | None = None
    chunk: Count | None = None
    state_budget: str | int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig(SimulatedWork):
    """What was asked of one run.

    eval_every: rounds between two evaluations.
    seed: of everything random.
    label: the method's name in reports; its class's unless given.
    out: a directory for all that the command line would leave: metrics log, status, clients, models, report.
    checkpoint_every: seconds between two checkpoints in `out`; None for none. resume: go on from the last one there.
    protocol: whether to end with `result.by_client`, every client's metrics with the shared, the localised and its own
        model; by default where there are personal models or unseen clients.
    on_progress: called with the number of rounds done, about twice a second.

    >>> RunConfig(rounds=3, seed=-1)
    Traceback (most recent call last):
    fedax.errors.FedaxError: seed must be a whole number from 0 on, not -1
    """

    eval_every: Count = 1
    seed: Annotated[int, Ge(0)] = 0
    label: str | None = None
    out: str | Path | None = None
    checkpoint_every: Annotated[float, Ge(0)] | None = None
    resume: bool = False
    protocol: bool | None = None
    on_progress: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        check_options(self)
        if self.state_budget is not None:
            byte_count(self.state_budget)
        if self.checkpoint_every is not None and self.out is None:
            raise FedaxError("checkpoint_every needs out, a directory for the checkpoints")
        if self.resume and (self.out is None or self.checkpoint_every is None):
            raise FedaxError("resume needs out and checkpoint_every: the directory and the pace of the checkpoints")

    @property
    def folder(self) -> Path | None:
        """The run's directory."""
        return None if self.out is None else Path(self.out)


def takes_options(
    config: Callable[P, RunConfig],
) -> Callable[[Callable[..., R]], Callable[Concatenate[Problem, Federation | Lazy, Algorithm, P], R]]:
    """Let a function of (problem, federation, algorithm, **options) show which options there are."""

    def explicit(function: Callable[..., R]) -> Callable[Concatenate[Problem, Federation | Lazy, Algorithm, P], R]:
        @functools.wraps(function)
        def same(*what: Any, **options: Any) -> R:
            return function(*what, **options)

        shown = inspect.signature(function)
        named = [p for p in shown.parameters.values() if p.kind is not p.VAR_KEYWORD]
        same.__signature__ = shown.replace(parameters=[*named, *keywords(config)])  # type: ignore[attr-defined, arg-type]
        return same

    return explicit
