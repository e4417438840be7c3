"""How the data were dealt out: rows and labels client by client, and how far the clients are from each other."""

from __future__ import annotations

import json
import math
import statistics
from typing import Any

import numpy as np

from fedax.report.columns import number
from fedax.report.honest import assessment
from fedax.report.summary import Group
from fedax.runs.reading import RecordedRun


def partitions(groups: list[Group]) -> list[dict[str, Any]]:
    """The distinct ways the data were dealt out, each with the runs that share it and a few words."""
    found: dict[str, dict[str, Any]] = {}
    for group in groups:
        for run in group.runs:
            told = {key: run.clients.get(key) for key in ("names", "label_counts", "rows", "zeta")}
            told["classes"] = _classes(run)
            if isinstance(told["rows"], dict) or isinstance(told["label_counts"], list):
                of = found.setdefault(json.dumps(told), told | {"labels": [], "seeds": []})
                of["labels"].append(group.label)
                of["seeds"].append(run.seed)
    for of in found.values():
        seeds = ", ".join(dict.fromkeys("?" if seed is None else str(seed) for seed in of.pop("seeds")))
        of["title"] = f"{', '.join(dict.fromkeys(of.pop('labels')))}; seed {seeds}"
        said = (_sizes(of["rows"]), _labels(of["label_counts"]), _gradients(of.pop("zeta")))
        of["words"] = " ".join(words for words in said if words)
    return list(found.values())


def _classes(run: RecordedRun) -> list[str] | None:
    """The names of the classes of a run on a table."""
    quality = assessment(run).get("quality")
    labels = quality.get("labels") if isinstance(quality, dict) else None
    return [str(label) for label in labels] if isinstance(labels, list) else None


def _sizes(rows: Any) -> str:
    """The training rows of the clients, in a sentence."""
    train = rows.get("train") if isinstance(rows, dict) else None
    held = [number(n) for n in train] if isinstance(train, list) else []
    if not held or not all(n >= 0 for n in held):
        return ""
    found = (min(held), statistics.median(held), max(held))
    least, middle, most = (f"{n:,.1f}".removesuffix(".0") for n in found)
    spread = f"{least} each" if least == most else f"from {least} to {most} each, median {middle}"
    return f"{len(held)} clients train on {math.fsum(held):,.0f} rows, {spread}."


def _labels(counts: Any) -> str:
    """How the labels differ between clients, in a sentence; clients without rows are left out.

    >>> _labels([[5, 0], [0, 5], [0, 0]])[:37]
    'A client holds 1 of 2 labels (median)'
    """
    try:
        table = np.array([[number(n) for n in row] for row in counts])
        held = table[table.sum(axis=1) > 0]
        if not len(held) or not np.isfinite(table).all() or (table < 0).any():
            return ""
    except (TypeError, ValueError):
        return ""
    from fedax.data.heterogeneity import total_variation

    return (
        f"A client holds {np.median((held > 0).sum(axis=1)):g} of {held.shape[1]} labels (median). The mean total "
        f"variation to the average client's labels is {total_variation(held):.3f}: at 0 all clients are alike, "
        "towards 1 they share no label."
    )


def _gradients(zeta: Any) -> str:
    """How the first gradients differ between clients, in a sentence.

    >>> print(_gradients(1.25))
    The clients' first gradients differ by zeta = 1.25 (logistic regression at zero weights).
    """
    if isinstance(zeta, bool) or not isinstance(zeta, int | float) or not math.isfinite(zeta):
        return ""
    return f"The clients' first gradients differ by zeta = {zeta:.4g} (logistic regression at zero weights)."
