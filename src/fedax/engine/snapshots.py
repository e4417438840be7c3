"""A run's two snapshots, client by client: at its last round, and at the round that validation rows chose."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedax.algorithms.base import Algorithm, Context
from fedax.algorithms.before_averaging import BeforeAveraging
from fedax.algorithms.localised import GivenCompositeModel, GivenModel, Localised
from fedax.algorithms.with_model_state import SharedWithOwnState, WithModelState, bare, clients_keep_state
from fedax.engine.prepare import Prepared
from fedax.engine.state import RunState, Snapshot, State
from fedax.evaluation import Measurement
from fedax.evaluation.protocol import Clients, Floats, Moment


def snapshots(run: Prepared, state: RunState) -> Clients:
    """Every client's metrics at the run's snapshots: shared, localised and personal models, newcomers' too."""
    last = Snapshot(state.round, state.server, dict(state.per_client))
    chosen = state.watch.best
    found = {"last": _moment(run, state, last)}
    if chosen is not None:
        found["chosen"] = found["last"] if chosen.round == last.round else _moment(run, state, chosen)
    whole = run.whole
    joined = np.zeros(whole.clients, np.int64)
    joined[run.seen] = state.joined[: len(run.seen)]  # where clients are made as needed, those that are evaluated
    unseen = np.zeros(whole.clients, bool)
    unseen[run.unseen] = True
    rows = {part: whole.part(part).count for part in ("train", "validation", "test")}
    return Clients(whole.names, rows, joined, unseen, found)


def _moment(run: Prepared, state: RunState, at: Snapshot) -> Moment:
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
        made = run.meters.personal(local, *_seen_by(local, algorithm, at.server, state.clients), run.measured)
        for part, metrics in made.items():
            note("localised", part, run.seen, metrics)
    if run.config.before_averaging and algorithm.personalised:
        early = BeforeAveraging(base=algorithm, steps=_mean(run.steps)).at(Context(at.round, steps=_mean(run.steps)))
        for part, metrics in run.meters.personal(early, at.server, state.clients, run.measured).items():
            note("before", part, run.seen, metrics)
    if run.newcomers is not None:
        new = run.newcomers
        late = new.join(algorithm, at.server, at.round)
        if run.personal:
            for part, metrics in new.measure(algorithm, late).items():
                note("personal", part, run.unseen, metrics)
        local = localised(algorithm, run.steps, late.round)
        if local is not None:
            own = State(*_seen_by(local, algorithm, late.server, late.clients), late.round)
            for part, metrics in new.measure(local, own).items():
                note("localised", part, run.unseen, metrics)
        if clients_keep_state(algorithm):
            for part, metrics in new.measure(SharedWithOwnState(algorithm), late).items():
                note("shared", part, run.unseen, metrics)
        elif algorithm.shared:
            model = new.engine.place(algorithm.model(at.server).tree)
            for part, metrics in new.meters.shared(model, new.data).items() if new.meters else ():
                note("shared", part, run.unseen, metrics)
    return Moment(at.round, values)


def localised(algorithm: Algorithm, steps: Any, round: int) -> Algorithm | None:
    """The method whose personal models are a shared one after K local steps (their mean over clients)."""
    count = _mean(steps)
    base: Any = bare(algorithm)
    base = base.base if isinstance(base, Localised) else base
    if not base.shared or not hasattr(base, "lr"):
        return None
    if isinstance(algorithm, WithModelState):
        made: Any = WithModelState(Localised(base=base, steps=count), algorithm.keep)
    else:  # of the model alone, so that methods share the program
        made = Localised(base=(GivenCompositeModel if base.composite else GivenModel)(lr=base.lr), steps=count)
    now: Algorithm = made.at(Context(round=round, steps=count))
    return now


def _mean(steps: Any) -> int:
    return int(max(1, np.rint(np.mean(steps))))


def _seen_by(local: Algorithm, algorithm: Algorithm, server: Any, clients: Any) -> tuple[Any, Any]:
    """The server's and the clients' states as `localised` takes them."""
    return (server, clients) if isinstance(local, WithModelState) else (algorithm.model(server), ())
