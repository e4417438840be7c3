"""A run's two moments, client by client: its last round, and the round that validation rows chose."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from fedax.algorithms import Localized
from fedax.algorithms.base import Algorithm, Context
from fedax.algorithms.with_model_state import SharedWithOwnState, WithModelState, clients_keep_state
from fedax.evaluation import Measurement
from fedax.evaluation.metrics import METRICS
from fedax.evaluation.protocol import Clients, Floats, Moment

if TYPE_CHECKING:
    from fedax.engine.loop import Simulation

Metrics = dict[str, dict[str, Measurement]]  # by part, "personal_" before it for clients' own models; then by metric


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """What a moment's models are made from."""

    round: int
    server: Any
    metrics: Metrics


class Watch:
    """Keeps the evaluated round with the best validation accuracy, else loss, whatever other metrics there are; the
    first of equals."""

    def __init__(self) -> None:
        self.best: Snapshot | None = None
        self.score = -np.inf

    def see(self, round: int, server: Any, metrics: Metrics) -> None:
        """Compare a round that was just evaluated with the best so far."""
        judged = metrics.get("personal_validation") or metrics.get("validation")
        if judged is None:
            return
        name = "accuracy" if "accuracy" in judged else "loss"
        score = judged[name].overall * (1 if METRICS[name].higher else -1)
        if score > self.score:
            # a copy: the compiled rounds reuse the memory of what they are given
            self.score, self.best = float(score), Snapshot(round, jax.tree.map(jnp.copy, server), dict(metrics))


def moments(run: Simulation) -> Clients:
    """Every client's metrics at the run's moments: shared, localised and personal models, newcomers' too."""
    last = Snapshot(run.state.round, run.state.server, dict(run.per_client))
    chosen = run.watch.best
    found = {"last": _moment(run, last)}
    if chosen is not None:
        found["chosen"] = found["last"] if chosen.round == last.round else _moment(run, chosen)
    whole = run.whole
    joined = np.zeros(whole.clients, np.int64)
    joined[run.seen] = run.joined[: len(run.seen)]  # of clients made as needed, those that are shown
    unseen = np.zeros(whole.clients, bool)
    unseen[run.unseen] = True
    rows = {part: whole.part(part).count for part in ("train", "validation", "test")}
    return Clients(whole.names, rows, joined, unseen, found)


def _moment(run: Simulation, at: Snapshot) -> Moment:
    values: dict[str, dict[str, dict[str, Floats]]] = {}

    def note(model: str, part: str, where: Any, metrics: dict[str, Measurement]) -> None:
        for metric, measured in metrics.items():
            kept = values.setdefault(model, {}).setdefault(part, {})
            whole = kept.setdefault(metric, np.full(run.whole.clients, np.nan))
            whole[where] = np.where(measured.rows > 0, measured.values, np.nan)

    for name, metrics in at.metrics.items():
        part = name.removeprefix("personal_")
        note("shared" if part == name else "personal", part, run.seen, metrics)
    algorithm = run.algorithm
    local = localised(algorithm, run.steps, at.round)
    if local is not None:
        for part, meter in run.meters.items():
            note("localised", part, run.seen, meter.personal(local, at.server, run.state.clients, run.measured))
    if run.newcomers is not None:
        new = run.newcomers
        state = new.join(algorithm, at.server, at.round)
        if run.personal:
            for part, metrics in new.measure(algorithm, state).items():
                note("personal", part, run.unseen, metrics)
        if local is not None:
            for part, metrics in new.measure(local, state).items():
                note("localised", part, run.unseen, metrics)
        if clients_keep_state(algorithm):
            for part, metrics in new.measure(SharedWithOwnState(algorithm), state).items():
                note("shared", part, run.unseen, metrics)
        elif algorithm.shared:
            model = new.engine.place(algorithm.model(at.server).tree)
            for part, meter in new.meters.items():
                note("shared", part, run.unseen, meter.shared(model, new.data))
    return Moment(at.round, values)


def localised(algorithm: Algorithm, steps: Any, round: int) -> Algorithm | None:
    """The method whose personal models are its shared one after K local steps (their mean over clients)."""
    if isinstance(algorithm, WithModelState):
        inner = localised(algorithm.base, steps, round)
        return None if inner is None else WithModelState(inner, algorithm.keep)
    if not algorithm.shared or not hasattr(algorithm, "lr"):
        return None
    count = int(max(1, np.rint(np.mean(steps))))
    base = algorithm.base if isinstance(algorithm, Localized) else algorithm
    made: Algorithm = Localized(base=base, steps=count).at(Context(round=round, steps=count))
    return made
