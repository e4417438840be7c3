"""When a run stops before its last round: a function of its history, the same over a network and in a simulation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from fedax.errors import FedaxError, unknown
from fedax.metrics import Metric


def judged(
    metrics: Mapping[str, Metric], by: str | None, parts: Collection[str], *, personal: bool
) -> tuple[str, bool]:
    """The column of the history that early stopping watches, and whether higher is better there.

    by: the metric that was asked for; parts: those that are evaluated; personal: whether to judge clients' own models.

    >>> from fedax.metrics import METRICS
    >>> judged({"loss": METRICS["loss"]}, None, ["validation"], personal=False)
    ('validation_loss', False)
    """
    name = by or ("accuracy" if "accuracy" in metrics else "loss")
    if name not in metrics:
        raise unknown("metric of stop_by", name, metrics)
    if "validation" not in parts:
        raise FedaxError("patience needs validation rows that are evaluated: split must leave some, as eval_on must")
    return f"{'personal_' if personal else ''}validation_{name}", metrics[name].higher


def stopped(history: Sequence[Mapping[str, Any]], judged: tuple[str, bool], patience: int) -> str:
    """Why a run stops: none of the last `patience` evaluations improved on the best before; nothing if one did.

    judged: a column of the history, and whether higher is better. A run that goes on from a checkpoint stops where it
    would have stopped. An evaluation without the column, because no client answered, does not count.

    >>> rows = [{"round": r, "loss": loss} for r, loss in enumerate([3.0, 2.0, 2.5, 2.0])]
    >>> stopped(rows, ("loss", False), 2), stopped(rows, ("loss", False), 3)
    ('validation has not improved since round 1: loss was 2', '')
    """
    name, higher = judged
    rows = [row for row in history if name in row]
    scores = [row[name] if higher else -row[name] for row in rows]
    best = int(np.argmax(scores)) if scores else 0
    if len(scores) - 1 - best < patience:
        return ""
    return f"validation has not improved since round {rows[best]['round']}: {name} was {rows[best][name]:g}"
