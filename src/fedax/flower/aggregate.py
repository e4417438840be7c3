"""Turns a round's answers into the input of the method's server step: clips, weighs and averages them, adds noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedax.engine.executors import diagnostics
from fedax.flower.agreement import Setting
from fedax.flower.evaluation import RoundCosts
from fedax.flower.messages import Answer, Hello, flatten, unflatten
from fedax.privacy.clipping import clip
from fedax.privacy.secure_noise import add_noise
from fedax.vectors import zeros


def aggregated(
    setting: Setting, costs: RoundCosts, clients: Mapping[int, Hello], answers: Mapping[int, Answer]
) -> tuple[Any, list[float] | None]:
    """The input of `update`, and the round's diagnostics: None under secure aggregation, which hides uploads."""
    total: Any = None
    weights, squares = 0.0, 0.0
    each: list[tuple[Any, float]] = []
    for client, answer in answers.items():
        assert answer.upload is not None
        flat = answer.upload
        if setting.privacy is not None and setting.secure is None:  # a client may not have
            flat = clip(flat, setting.privacy.clip, costs.public)
        upload = unflatten(flat, costs.upload, "the upload")
        weight = float(clients[client].rows[0]) if setting.weighted else 1.0
        total = zeros(upload) if total is None else total
        total = jax.tree.map(lambda t, u, w=weight: t + jnp.asarray(w, u.dtype) * u, total, upload)
        squares += weight * sum(float(np.sum(np.square(a, dtype=np.float64))) for a in flat.values())
        weights += weight
        each.append((upload, weight))
    rule = setting.algorithm.aggregate
    if rule == "mean":
        mean = jax.tree.map(lambda t: t / jnp.asarray(weights, t.dtype), total)
        mean = _noisy(setting, costs, mean, len(answers))
    else:
        uploads = jax.tree.map(lambda *u: jnp.stack(u), *(upload for upload, _ in each))
        mean = rule(uploads, jnp.asarray([weight for _, weight in each], jnp.float32))
    if setting.secure is not None:
        return mean, None
    seen = np.asarray(diagnostics(mean, jnp.asarray([squares / weights, 0.0])), np.float64)
    return mean, seen.tolist()


def _noisy(setting: Setting, costs: RoundCosts, mean: Any, cohort: int) -> Any:
    """The mean of a cohort's uploads, with the noise that was asked for."""
    asked = setting.privacy
    if asked is None or not asked.noise:
        return mean
    return unflatten(add_noise(flatten(mean), asked.noise * asked.clip / cohort, costs.public), mean, "the mean")
