"""What was held equal in a comparison, and how its methods were tuned, in sentences."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedax.runs.reading import RecordedRun

TUNING = "tuning.json"
UNITS = {"gradients": "gradient evaluations", "floats": "floats sent, up and down", "rounds": "rounds"}


def held_equal(runs: Sequence[RecordedRun]) -> str:
    """What every method had the same of; nothing for a single method, or where the runs do not say.

    >>> def run(label, **fields):
    ...     return RecordedRun(Path("."), (), {"rounds": 9, "algorithm": {"label": label, **fields}})
    >>> held_equal([run("FedAvg"), run("SCAFFOLD")])
    'Held equal: 9 rounds.'
    """
    methods = {run.label: run.get("algorithm", "rounds") for run in runs}
    kinds = {run.get("budget") or "rounds" for run in runs}
    planned = {run.get("rounds") for run in runs}
    if len(methods) < 2 or len(kinds) > 1 or len(planned) > 1 or None in planned:
        return ""
    (kind,), (rounds,) = kinds, planned
    if kind not in UNITS:
        return ""
    if not any(methods.values()):
        return f"Held equal: {rounds} rounds."
    each = ", ".join(f"{label} {own or rounds}" for label, own in methods.items())
    if kind == "rounds":
        return f"Rounds: {each}."
    first = next(iter(methods))
    return f"Held equal: {UNITS[kind]}, as {first} uses in {rounds} rounds. Rounds: {each}."


def tuned(folder: Path) -> list[str]:
    """How the methods of a comparison were tuned, a sentence each; empty if they were not, or if it is not recorded."""
    try:
        found = json.loads((folder / TUNING).read_text())
        sentences = [_sentence(one) for one in found]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
    seeds = ", ".join(str(seed) for seed in dict.fromkeys(one["seed"] for one in found))
    rows = "validation rows alone; test rows were not looked at before the settings were chosen"
    return [f"Tuned with seed {seeds}, which is not reported on, on {rows}.", *sentences]


def _sentence(one: dict[str, Any]) -> str:
    """One method's tuning.

    >>> _sentence({"label": "FedAvg", "how": "grid", "tried": {"lr": [0.1, 1.0]}, "runs": 2, "diverged": 0,
    ...     "chosen": {"lr": 0.1}, "metric": "validation_accuracy", "score": 0.9, "seed": 1, "edge": ["lr"]})
    'FedAvg: lr 0.1, the best validation_accuracy (0.9) of 2 runs over lr 0.1, 1. lr is at the edge of what was tried.'
    """
    if not one["tried"]:
        return f"{one['label']}: nothing was tuned, as no values are declared for it."
    chosen = ", ".join(f"{name} {value:.4g}" for name, value in one["chosen"].items())
    joint = " to " if one["how"] == "searched" else ", "
    tried = "; ".join(f"{name} {joint.join(f'{v:g}' for v in values)}" for name, values in one["tried"].items())
    lost = f", {one['diverged']} of which diverged," if one["diverged"] else ""
    best = f"the best {one['metric']} ({one['score']:.4g}) of {one['runs']} runs{lost} over {tried}"
    edge = " and ".join(one["edge"])
    warning = f" {edge} {'is' if len(one['edge']) == 1 else 'are'} at the edge of what was tried." if edge else ""
    return f"{one['label']}: {chosen}, {best}.{warning}"
