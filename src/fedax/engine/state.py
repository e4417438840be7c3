"""The state that changes from round to round: the content of a checkpoint."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedax.evaluation import Measurement
from fedax.evaluation.metrics import BALANCED, METRICS, main
from fedax.evaluation.protocol import Clients
from fedax.runs.files import History

Metrics = dict[str, dict[str, Measurement]]  # by part, "personal_" before it for clients' own models; then by metric


@dataclasses.dataclass
class State:
    """The part of a run's state that a round changes."""

    server: Any
    clients: Any  #: every client's state, stacked on the devices, or a `Store`
    round: int = 0
    diagnostics: Any = None  #: drift, diversity and residual of the last round


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The states that the models of one snapshot are made from."""

    round: int
    server: Any
    metrics: Metrics


class Watch:
    """Keeps the evaluated round with the best validation accuracy, else loss; the first of equals. Where the problem
    asks for AUC or the like, that decides."""

    def __init__(self) -> None:
        self.best: Snapshot | None = None
        self.score = -np.inf

    def see(self, round: int, server: Any, metrics: Metrics) -> None:
        """Compare a round that was just evaluated with the best so far."""
        judged = metrics.get("personal_validation") or metrics.get("validation")
        if judged is None:
            return
        name = main(judged)
        if name not in ("accuracy", *BALANCED) or not np.isfinite(judged[name].overall):
            name = "loss"
        score = judged[name].overall * (1 if METRICS[name].higher else -1)
        if score > self.score:
            # a copy: the compiled rounds reuse the memory of what they are given
            self.score, self.best = float(score), Snapshot(round, jax.tree.map(jnp.copy, server), dict(metrics))


@dataclasses.dataclass
class RunState(State):
    """The whole state of a run: the models, the history, and the counters."""

    joined: NDArray[np.int64] = dataclasses.field(
        default_factory=lambda: np.zeros(0, np.int64)
    )  #: each client's first round, from 1 on; 0 if it had none
    history: History = dataclasses.field(default_factory=History)
    gradients: int = 0
    floats_up: int = 0
    floats_down: int = 0
    seconds: float = 0.0
    watch: Watch = dataclasses.field(default_factory=Watch)
    per_client: Metrics = dataclasses.field(default_factory=dict)  #: of the last evaluation
    good: Any = None  #: the shared model of the last evaluation
    by_client: Clients | None = None  #: known when the run is over

    def moved(self, now: State) -> None:
        """Take over the state after some rounds."""
        self.server, self.clients, self.round, self.diagnostics = now.server, now.clients, now.round, now.diagnostics
