"""What was asked of a run: every option once. `simulate`, the experiment file and a run over a network share them."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Concatenate, Literal, ParamSpec, TypeVar

from annotated_types import Ge, Lt, MinLen

from fedax.algorithms.attacks import Attack
from fedax.algorithms.base import Algorithm
from fedax.client.availability import Availability
from fedax.client.plan import RoundWork
from fedax.data.federation import Federation
from fedax.data.generators.lazy import Lazy
from fedax.engine.store import byte_count
from fedax.errors import FedaxError
from fedax.options import Count, check_options, keywords
from fedax.problem import Problem
from fedax.runs.files import check_folder

Part = Literal["train", "validation", "test"]
P = ParamSpec("P")
R = TypeVar("R")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulatedWork(RoundWork):
    """The options that a simulation and an experiment file share.

    eval_on: parts to evaluate on, held-out rows by default.
    unseen: share of clients held out from training; when training is over they join, by the method's own rule.
    join_steps: local steps that they take then; by default as many as the others took on average.
    join_restarts: whether schedules of rates begin again for them, instead of going on from the last round.
    before_averaging: whether the protocol also judges clients' own models as they are before the server averages.
    executor: "auto", "batched", "looped" or "debug"; chunk: clients batched together; devices: how many to use.
    state_budget: memory for clients' states, such as "2GiB"; above it they are kept beside the devices or in a file.
    attack: what a share of the clients does instead of their part, such as `Attack("flip", share=0.2)`.
    patience: stop when this many evaluations in a row have not improved on the best; None to run all rounds.
    stop_by: the metric of the validation rows that early stopping watches; accuracy where there is one, else loss.
    """

    eval_on: Annotated[Sequence[Part], MinLen(1)] | None = None
    unseen: Annotated[float, Ge(0), Lt(1)] = 0.0
    join_steps: Count | None = None
    join_restarts: bool = False
    before_averaging: bool = False
    executor: Literal["auto", "batched", "looped", "debug"] = "auto"
    devices: Count | None = None
    chunk: Count | None = None
    state_budget: str | int | None = None
    attack: Attack | None = None
    patience: Count | None = None
    stop_by: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig(SimulatedWork):
    """What was asked of one run.

    eval_every: rounds between two evaluations.
    seed: the seed of everything that is random.
    label: the method's name in reports; its class's unless given.
    out: a directory for all that the command line would leave: metrics log, status, clients, models, report.
    checkpoint_every: seconds between two checkpoints in `out`; None for none. resume: go on from the last one there.
    protocol: whether to end with `result.by_client`, every client's metrics with the shared, the localised and its own
        model; by default where there are personal models or unseen clients.
    on_progress: called with the number of rounds done, about twice a second.

    >>> RunConfig(rounds=3, seed=-1)
    Traceback (most recent call last):
    fedax.errors.FedaxError: seed must be a whole number from 0 to 4294967295, not -1
    """

    eval_every: Count = 1
    seed: Annotated[int, Ge(0), Lt(2**32)] = 0
    label: str | None = None
    out: str | Path | None = None
    checkpoint_every: Annotated[float, Ge(0)] | None = None
    resume: bool = False
    protocol: bool | None = None
    on_progress: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        check_options(self)
        if self.eval_on is not None and len(set(self.eval_on)) < len(self.eval_on):
            raise FedaxError(f"eval_on is {list(self.eval_on)}: it names a part twice")
        if self.attack is not None and not isinstance(self.attack, Attack):
            raise FedaxError(f"attack must be fedax.Attack('flip', share=0.2) or the like, not {self.attack!r}")
        if self.availability is not None and not isinstance(self.availability, Availability):
            raise FedaxError(
                f"availability must be fedax.Availability(share=0.8) or the like, not {self.availability!r}"
            )
        if self.label is not None and not (isinstance(self.label, str) and self.label and self.label.isprintable()):
            raise FedaxError(f"label must be a name on one line, not {self.label!r}")
        if self.out is not None:
            check_folder("out", self.out)
        if self.on_progress is not None and not callable(self.on_progress):
            raise FedaxError(f"on_progress must be a function of the number of rounds done, not {self.on_progress!r}")
        if self.join_steps is not None and not self.unseen:
            raise FedaxError(f"join_steps is {self.join_steps}: it goes with unseen, the share of clients that join")
        if self.stop_by is not None and self.patience is None:
            raise FedaxError(f"stop_by is {self.stop_by!r}: it goes with patience")
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
