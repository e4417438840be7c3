"""What a method's numbers are compared with: the constant predictor, and how unbalanced the classes are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from fedax.evaluation.metrics import BALANCED
from fedax.report.columns import parse
from fedax.report.summary import Group, Spread, spread
from fedax.runs.files import ASSESSMENT
from fedax.runs.reading import RecordedRun

UNBALANCED = 0.8  # the share of rows in one class from which on accuracy says little
TELLING = (*BALANCED, "precision", "recall")


def assessment(run: RecordedRun) -> dict[str, Any]:
    """What a run's assessment.json says; empty if there is none, or if it cannot be read."""
    try:
        content = json.loads((run.folder / ASSESSMENT).read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def constant_row(groups: Iterable[Group]) -> dict[str, Any] | None:
    """The constant predictor as a line of the table: mean and spread over all runs; None where no run knows it."""
    found = [assessment(run).get("constant") for group in groups for run in group.runs]
    known = [one for one in found if isinstance(one, dict) and isinstance(one.get("values"), dict)]
    if not known:
        return None
    keys = dict.fromkeys(key for one in known for key in one["values"])
    row: dict[str, Any] = {"algorithm": str(known[0].get("name", "Constant")), "status": "finished"}
    for key in keys:
        values = spread(one["values"].get(key) for one in known)
        if values is not None:
            row[key] = Spread(values.mean, None, values.runs)
    return row


def unbalanced(groups: Sequence[Group]) -> list[str]:
    """A sentence where most rows are of one class and accuracy is all that was asked for."""
    said: dict[str, None] = {}
    for group in groups:
        run = group.runs[0]
        counts = run.clients.get("label_counts")
        measured = {metric.name for row in run.rows[-1:] for key in row if (metric := parse(key))}
        if not counts or "accuracy" not in measured or measured & set(TELLING):
            continue
        try:
            totals = [sum(column) for column in zip(*counts, strict=True)]
            share = max(totals) / sum(totals)
        except (TypeError, ValueError, ZeroDivisionError):
            continue
        if share >= UNBALANCED:
            said[
                f"{share:.0%} of the rows are of one class, and always predicting it is right as often: accuracy says "
                'little here, and metrics = ["auc", "average_precision"] in [problem] says more.'
            ] = None
    return list(said)
