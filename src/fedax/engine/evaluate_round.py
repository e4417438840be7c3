"""One evaluated round as a row of the history."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from fedax.algorithms.base import Context
from fedax.algorithms.with_model_state import SharedWithOwnState, clients_keep_state
from fedax.client.draws import participation
from fedax.engine.prepare import Prepared
from fedax.engine.result import unwrap
from fedax.engine.state import RunState
from fedax.evaluation import summary
from fedax.evaluation.structure import (
    mean_value,
    personal_prox_gradient,
    personal_structure,
    prox_gradient,
    structure,
    truth_of,
    value_at,
)
from fedax.model_state import parted
from fedax.privacy.accounting import Guarantee
from fedax.vectors import Mixture, Vector

DIAGNOSTICS = ("drift", "diversity", "residual")  # how a round went, see executors.diagnostics


def measure(run: Prepared, state: RunState) -> dict[str, Any]:
    """Evaluate a run's models as they are now; each client's metrics go to `state.per_client`."""
    row: dict[str, Any] = {"round": state.round}
    algorithm, psi = run.algorithm, run.problem.regularizer
    model = unwrap(algorithm.model(state.server))
    params = parted(model)[0]
    now = algorithm.at(Context(round=state.round, steps=run.plan.max_steps))
    penalty = value_at(run.problem, params) if algorithm.shared and psi is not None else None
    shared, own = {}, {}
    if clients_keep_state(algorithm):
        shared = run.meters.personal(SharedWithOwnState(now), state.server, state.clients, run.measured)
    elif algorithm.shared:
        shared = run.meters.shared(model, run.measured)
    if run.personal:
        own = run.meters.personal(now, state.server, state.clients, run.measured)
    for part in run.meters:
        if part in shared:
            state.per_client[part] = shared[part]
            row |= summary(f"{part}_", state.per_client[part], run.problem.metrics)
            if penalty is not None:
                row[f"{part}_objective"] = row[f"{part}_loss"] + penalty
        if part in own:
            state.per_client[f"personal_{part}"] = own[part]
            row |= summary(f"personal_{part}_", own[part], run.problem.metrics)
    if psi is not None and not psi.smooth:
        row |= _structure(run, state, psi, model)
    if state.diagnostics is not None:
        seen = np.nan_to_num(np.asarray(state.diagnostics, np.float64), nan=1.0)  # squares may be beyond a float
        row |= dict(zip(DIAGNOSTICS, seen.tolist(), strict=True))
    row |= spent(run, state.round)
    return row | {"gradients": state.gradients, "floats_up": state.floats_up, "floats_down": state.floats_down}


def spent(run: Prepared, rounds: int) -> dict[str, float]:
    """The epsilon of a client after some rounds, and that of a row, where there is noise on uploads or gradients."""
    rows = {} if run.row_account is None else {"row_epsilon": run.row_account.epsilon(rounds)}
    asked = run.algorithm.privacy
    if asked is None or not asked.noise:
        return rows
    plan = run.plan
    guarantee = Guarantee(float(asked.noise), float(asked.delta), asked.cohorts)
    most = int(participation(plan, run.engine.seed, rounds).max()) if rounds else 0
    if run.config.availability is not None:  # cohorts are no uniform samples then: count each client in every round
        most, guarantee = rounds, Guarantee(guarantee.noise, guarantee.delta)
    spent = guarantee.epsilon(uploads=most, rounds=rounds, cohort=plan.cohort, clients=plan.clients)
    return {"epsilon": spent, **rows}


def _structure(run: Prepared, state: RunState, psi: Any, model: Any) -> dict[str, float]:
    """The metrics of a problem with a regularizer: sparsity, rank, feasibility, distance from stationarity."""
    truth = truth_of(run.federation.info)
    row: dict[str, float] = {}
    if run.algorithm.shared:
        row |= structure(psi, jax.device_get(parted(model)[0]), truth, run.config.zero_below)
        row["prox_gradient"] = prox_gradient(run.problem, run.shown, run.measured, Vector(model))
    if run.personal:
        models = unwrap(run.own_models(state))
        own = parted(models)[0]
        found = personal_structure(run.problem, own, truth, run.config.zero_below)
        row |= {f"personal_{key}": value for key, value in found.items()}
        if not isinstance(own, Mixture):
            row["personal_prox_gradient"] = personal_prox_gradient(run.problem, run.shown, run.measured, models)
        value = mean_value(run.problem, own)
        for part in run.meters:
            row[f"personal_{part}_objective"] = state.per_client[f"personal_{part}"]["loss"].overall + value
    return row
