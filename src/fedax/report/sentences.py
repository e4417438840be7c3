"""The sentences of a report: what was run, what went wrong, what cannot be compared."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedax.report.columns import parse
from fedax.report.summary import Group, differing, setting
from fedax.runs.files import EXPERIMENT
from fedax.runs.reading import RecordedRun

#: Fields that say what is being solved: runs that differ here have nothing in common to compare.
PROBLEM = ("data", "model", "problem")


def title(runs: list[RecordedRun]) -> str:
    """The experiment's name, else its algorithms."""
    names = dict.fromkeys(str(name) for run in runs if (name := run.get("name")))
    return ", ".join(names) or ", ".join(dict.fromkeys(run.label for run in runs))


def summary(runs: list[RecordedRun]) -> str:
    """The setting in a few sentences; what is not known is left out.

    >>> from pathlib import Path
    >>> summary([RecordedRun(Path("a"), (), {"rounds": 5, "cohort": 2, "local_steps": 1, "seed": 0})])
    'Each round 2 clients take part; each takes 1 local step. 5 rounds, seed 0.'
    """
    return " ".join(sentence for sentence in (_data(runs), _work(runs), _extent(runs)) if sentence)


def _data(runs: list[RecordedRun]) -> str:
    name, partition = _agreed(runs, "data", "name"), _agreed(runs, "data", "partition")
    model = _agreed(runs, "model")
    if isinstance(partition, dict):
        partition = {key: value for key, value in partition.items() if key != "clients"}
    clients = {len(names) for run in runs if isinstance(names := run.clients.get("names"), list)}
    words = []
    table = _agreed(runs, "data", "path")
    if isinstance(table, str):
        words.append(f"The table {Path(table).name}")
    elif name:
        preset = _agreed(runs, "data", "preset")
        words.append(f"The {name} data{f' {preset}' if preset else ''}")
    if len(clients) == 1:
        words.append(f"{'over' if name else 'There are'} {_several(clients.pop(), 'client')}")
    if name and partition:
        words.append(f"(partition {_call(partition)})")
    if model:
        words.append(f"with the model {_call(model)}" if words else f"The model is {_call(model)}")
    psi = _agreed(runs, "problem", "regularizer")
    return " ".join(words) + f"{f', regularised by {_call(psi)}' if psi else ''}." if words else ""


def _work(runs: list[RecordedRun]) -> str:
    steps, epochs = _agreed(runs, "local_steps"), _agreed(runs, "local_epochs")
    if not steps and not epochs:
        return ""
    cohort, batch = _agreed(runs, "cohort"), _agreed(runs, "batch_size")
    everyone, full = (
        all(run.experiment.get(key, 0) is None for run in runs if run.experiment) for key in ("cohort", "batch_size")
    )
    who = f"{_several(cohort, 'client')} take" if cohort else "all clients take" if everyone else "clients take"
    if cohort == 1:
        who = "1 client takes"
    work = f"takes {_several(steps, 'local step')}" if steps else f"makes {_several(epochs, 'local epoch')}"
    rows = f" on batches of {batch}" if batch else " on its full local gradient" if full else ""
    weighted = _agreed(runs, "weighted")
    weights = "by their rows" if weighted is True else "equally" if weighted is False else ""
    mean = f"; the server weighs clients {weights}" if weights else ""
    return f"Each round {who} part; each {work}{rows}{mean}."


def _extent(runs: list[RecordedRun]) -> str:
    rounds = None if any(run.get("algorithm", "rounds") for run in runs) else _agreed(runs, "rounds")
    seeds = dict.fromkeys(str(run.seed) for run in runs if run.seed is not None)
    parts = [_several(rounds, "round")] if rounds else []
    if seeds:
        parts.append(f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}")
    said = ", ".join(parts)
    return f"{said[0].upper()}{said[1:]}." if said else ""


def _agreed(runs: Iterable[RecordedRun], *path: str) -> Any:
    """The value of a field on which all recorded experiments agree, or None."""
    values = [run.get(*path) for run in runs if run.experiment]
    return values[0] if values and all(value == values[0] for value in values) else None


def _several(count: Any, noun: str) -> str:
    shown = f"{count:g}" if isinstance(count, float) else count
    return f"{shown} {noun}" if count == 1 else f"{shown} {noun}s"


def _call(value: Any) -> str:
    """A named choice with its parameters.

    >>> _call({"name": "ByLabel", "clients": 20, "labels": 2})
    'ByLabel, clients 20, labels 2'
    >>> _call({"name": "L1Ball", "radius": 5, "each": True}), _call({"name": "L1Ball", "radius": 5, "each": False})
    ('L1Ball, radius 5, each', 'L1Ball, radius 5')
    """
    if not isinstance(value, dict):
        return str(value)
    said = {k: v for k, v in value.items() if k not in ("name", "seed") and v is not None and v is not False}
    parameters = [k if v is True else f"{k} {v}" for k, v in said.items()]
    return ", ".join([str(value.get("name", "")), *parameters]).strip(", ")


def warnings(groups: list[Group], folders: Iterable[Path] = ()) -> list[str]:
    """Where runs stopped early, which have not begun, what could not be read, and why runs should not be compared.

    folders: the comparisons that the runs are of.
    """
    found = []
    for group in groups:
        for run in group.runs:
            who = group.label if run.seed is None else f"{group.label}, seed {run.seed}"
            found += [f"{who} {sentence}" for sentence in (stop(run),) if sentence]
            found += [f"{who}: {note}." for note in run.notes]
        again = f"is a run of {group.label} that is here already, and counts once."
        found += [f"{run.folder} {again}" for run in group.again]
    runs = [run for group in groups for run in (*group.runs, *group.again)]
    found += [sentence for folder in folders if (sentence := _waiting(folder, runs))]
    return found + incomparable(groups)


def _waiting(folder: Path, runs: Iterable[RecordedRun]) -> str:
    """A sentence on the planned runs of a comparison that have no results; empty if there are none."""
    try:
        planned = [str(name) for name in json.loads((folder / EXPERIMENT).read_bytes())["runs"]]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    there = {run.folder.resolve() for run in runs}
    left = [name for name in planned if (folder / "runs" / name).resolve() not in there]
    if not left:
        return ""
    some = f"{len(left)} of the {_several(len(planned), 'planned run')} of {folder.resolve().name}"
    return f"{some} left nothing to show: {', '.join(left)}."


def stop(run: RecordedRun) -> str:
    """How an unfinished run ended, or nothing for one that finished."""
    if run.finished:
        return ""
    how = {
        "diverged": "diverged",
        "interrupted": "was interrupted",
        "failed": "failed",
        "running": "has not finished: it is still running or was stopped without warning",
        "unknown": "has left no word of how it ended: its log stops",
    }.get(run.status, f"has the status {run.status}:")
    where = "before the first evaluated round" if run.round is None else f"at round {run.round}"
    of = f" of {run.rounds}" if run.rounds and run.round is not None else ""
    message = str(run.state.get("message") or "").strip().rstrip(".")
    return f"{how} {where}{of}{': ' + message if message else ''}."


def incomparable(groups: list[Group]) -> list[str]:
    """Why runs cannot be compared, and what else differs besides the algorithm."""
    why, care, known = apart(groups), _differences(groups), obstacles(groups)
    rest = {field: shown for field, shown in care.items() if field not in known}
    said = [why] if why else []
    if rest:
        said.append(f"These runs differ in more than the algorithm, so compare them with care: {_listed(rest)}.")
    return said


def apart(groups: list[Group]) -> str:
    """Why runs cannot be compared at all; nothing where they can."""
    if found := obstacles(groups):
        return f"These runs cannot be compared, for their data or models are not the same: {_listed(found)}."
    measured = [
        (group.label, {key for run in group.runs for row in run.rows for key in row if parse(key)}) for group in groups
    ]
    measured = [(label, keys) for label, keys in measured if keys]
    if len(measured) < 2 or set.intersection(*({_meaning(key) for key in keys} for _, keys in measured)):
        return ""
    shown = "; ".join(f"{label} {', '.join(sorted(keys))}" for label, keys in measured)
    return f"These runs cannot be compared, for they have no metric in common: {shown}."


def _meaning(key: str) -> str:
    """What a metric tells: a shared model's and the clients' own can be compared."""
    return key.removeprefix("personal_")


def _listed(fields: dict[str, str]) -> str:
    """Fields with their values. Where a name differs, so does the rest of its table, which is left out.

    >>> _listed({"data.name": "digits, lasso", "data.noise": "None, 1.0", "model.name": "mlp, linear"})
    'data.name (digits, lasso), model.name (mlp, linear)'
    """
    other = [field.removesuffix("name") for field in fields if field.endswith(".name")]
    kept = [
        field for field in fields if not any(field.startswith(table) and field != f"{table}name" for table in other)
    ]
    return ", ".join(f"{field} ({fields[field]})" for field in kept)


def obstacles(groups: list[Group]) -> dict[str, str]:
    """The fields of the data, the model or the loss in which groups differ, with their values: the numbers of such
    runs do not measure the same thing."""
    return {field: shown for field, shown in _differences(groups).items() if field.split(".")[0] in PROBLEM}


def _differences(groups: list[Group]) -> dict[str, str]:
    """The fields besides the algorithm in which groups differ, with their values."""
    known = [setting(group.runs[0]) | _drawn(group) for group in groups if group.runs[0].experiment]
    fields = [field for field in differing(known) if not field.startswith("algorithm.")]
    return {field: ", ".join(dict.fromkeys(str(one.get(field)) for one in known)) for field in fields}


def _drawn(group: Group) -> dict[str, Any]:
    """The seeds that the data were drawn with: runs of other seeds share them, or they are another federation."""
    seeds = dict.fromkeys(str(seed) for run in group.runs if (seed := run.get("data", "seed")) is not None)
    return {"data.seed": " and ".join(seeds)} if seeds else {}
