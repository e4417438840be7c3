"""Metrics of numbers: records of (outputs, targets) on the device, statistics of records, and their values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedax.metrics.base import Floats, Metric, flatten


def _pairs(z: Any, y: Any) -> Any:
    """Outputs, then targets."""
    import jax.numpy as jnp

    return jnp.concatenate([flatten(z), y.reshape(y.shape[0], -1).astype(z.dtype)], axis=1)


def _absolute(z: Any, y: Any) -> Any:
    import jax.numpy as jnp

    return jnp.mean(jnp.abs(flatten(z) - y.reshape(y.shape[0], -1)), axis=1)


def _squares(z: Any, y: Any) -> Any:
    import jax.numpy as jnp

    return jnp.mean((flatten(z) - y.reshape(y.shape[0], -1)) ** 2, axis=1)


def _mean(records: Floats) -> Floats:
    return np.array([records.sum(), len(records)])


def _moments(records: Floats) -> Floats:
    """For each target: the number of rows, their mean, squared deviations from it, squared errors."""
    z, y = np.split(records, 2, axis=1)
    centre = y.mean(axis=0)
    return np.stack([np.full(len(centre), len(y)), centre, ((y - centre) ** 2).sum(0), ((z - y) ** 2).sum(0)])


def _together(a: Floats, b: Floats) -> Floats:
    """Two groups' moments as one's (Chan, Golub and LeVeque)."""
    rows = a[0] + b[0]
    apart = b[1] - a[1]
    between = apart**2 * a[0] * b[0] / rows
    return np.stack([rows, a[1] + apart * b[0] / rows, a[2] + b[2] + between, a[3] + b[3]])


def _r2(table: Floats) -> float:
    """NaN where a target does not vary."""
    return float(np.mean(1 - table[3] / table[2])) if (table[2] > 0).all() else math.nan


REGRESSION = (
    Metric("mae", _absolute, higher=False, title="MAE", fits="numbers"),
    Metric(
        "rmse",
        _squares,
        higher=False,
        title="RMSE",
        fits="numbers",
        statistic=_mean,
        finish=lambda sums: math.sqrt(sums[0] / sums[1]),
    ),
    Metric(
        "r2",
        _pairs,
        higher=True,
        title="R2",
        fits="numbers",
        statistic=_moments,
        finish=_r2,
        merge=_together,
    ),
)
