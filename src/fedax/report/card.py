"""A model's card: what it is, how it was made, what it was measured on, and how to load it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from fedax.errors import FedaxError
from fedax.report.columns import STRUCTURE, number, parse, text
from fedax.report.fairness import tuned
from fedax.report.sentences import stop, summary
from fedax.report.summary import flat
from fedax.runs.files import CLIENTS, EXPERIMENT, HISTORY, PREPARATION
from fedax.runs.reading import RecordedRun

CARD, MODEL, PERSONAL, INFO = "README.md", "model.safetensors", "personal.safetensors", "result.json"
LOAD = """\
from pathlib import Path

import numpy

import fedax
from fedax.experiments import prepare
from fedax.experiments.resuming import recall

folder = Path()  # where this card is
result = fedax.load(folder)
{model}
problem, federation = prepare(recall(folder))  # the experiment's problem, and its data{lazy}
rows = federation.part("{part}")
index = numpy.unique(numpy.concatenate([numpy.arange(s, s + n) for s, n in zip(rows.start, rows.count)]))
batch = {{name: array[index] for name, array in federation.arrays.items()}}
print("outputs", problem.outputs(model, batch).shape)
print({{name: float(values.mean()) for name, values in problem.rows(model, batch).items()}})
"""
PREDICT = """\
```
pip install numpy pandas safetensors
python predict.py new.csv predictions.csv            # the shared model
python predict.py new.csv predictions.csv CLIENT     # a client's own, where there are personal models
```

`predict.py`, `applying.py` and `forward.py` need nothing of Fedax. The columns that must be in the table, and what is
made of them, are in `preparation.json`."""


def files(run: RecordedRun) -> list[Path]:
    """The files of a run that go with its model: what `fedax.load` reads, and the experiment."""
    if not (run.folder / MODEL).is_file():
        raise FedaxError(f"{run.folder} has no model: {stop(run) or 'it has no ' + MODEL}")
    names = (MODEL, PERSONAL, INFO, PREPARATION, HISTORY, EXPERIMENT, CLIENTS)
    return [path for name in names if (path := run.folder / name).is_file()]


def card(run: RecordedRun, *, predicts: bool = False) -> str:
    """The card of a run's model, as Markdown; predicts: predict.py lies beside it."""
    method = str(run.get("algorithm", "name") or run.label)
    head = f"---\nlibrary_name: fedax\ntags:\n- federated-learning\n- {method}\n---\n\n# {run.label} on {_data(run)}\n"
    parts = {
        "": f"A model made by {method}, a method of federated optimisation, with Fedax. {summary([run])} {stop(run)}",
        "Files": _files(run),
        "Metrics": _metrics(run),
        **({"Predicting": PREDICT} if predicts else {}),
        "Loading": f"```python\n{_load(run)}```\n\nThe weights alone: `safetensors.numpy.load_file('{MODEL}')`.",
        "Experiment": _experiment(run),
        "Licence": "None is given: add one here. The data's own licence may bind the choice.",
    }
    return head + "".join(
        f"\n## {title}\n\n{said}\n" if title else f"\n{said.strip()}\n" for title, said in parts.items()
    )


def _data(run: RecordedRun) -> str:
    return str(run.get("data", "name") or "data")


def _files(run: RecordedRun) -> str:
    about = {
        MODEL: "the shared model",
        PERSONAL: "every client's own model, stacked; `fedax.load(folder).personal(client)`",
        INFO: "how the arrays make up the parameters",
        PREPARATION: "how a table's columns become the model's inputs",
        EXPERIMENT: "the resolved experiment, with versions",
        HISTORY: "a row an evaluated round",
        CLIENTS: "the clients: their rows and labels, and how each fares",
    }
    return "\n".join(f"- `{path.name}`: {about[path.name]}" for path in files(run))


def _metrics(run: RecordedRun) -> str:
    """The last row, each value with the rows that it was measured on."""
    last = run.rows[-1] if run.rows else {}
    lines = ["| metric | value | measured on |", "|---|---|---|"]
    for key, value in last.items():
        metric = parse(key)
        if (metric is None and key not in STRUCTURE) or (metric and metric.statistic not in ("", "worst")):
            continue
        title = STRUCTURE[key] if metric is None else metric.title
        whose = " of the clients' own models" if metric and metric.personal else ""
        unit = " %" if metric and metric.percent else ""
        lines.append(f"| {title}{whose} | {text(key, number(value))}{unit} | {_rows(run, metric)} |")
    sentences = [one for one in tuned(run.folder.parent.parent) if one.startswith((f"{run.label}:", "Tuned"))]
    return "\n".join([f"At round {run.round}, seed {run.seed}.", "", *lines, *(["", *sentences] if sentences else [])])


def _rows(run: RecordedRun, metric: Any) -> str:
    if metric is None:
        return "the parameters"
    counts = run.clients.get("rows", {}).get(metric.part, [])
    known = [count for count in counts if isinstance(count, int) and count > 0 and math.isfinite(count)]
    return f"the {metric.part} rows of {len(known)} clients, {sum(known)} in all" if known else f"{metric.part} rows"


def _load(run: RecordedRun) -> str:
    """Code that loads the model and measures it again."""
    measured = [metric for key in (run.rows[-1] if run.rows else {}) if (metric := parse(key))]
    parts = [metric.part for metric in measured]
    part = next((part for part in ("test", "validation") if part in parts), "train")
    shared = not measured or any(not metric.personal for metric in measured)
    model = "model = result.model" if shared else "model = result.personal(0)  # there is no shared one"
    lazy = "\nfederation = federation.shown_clients" if run.get("data", "lazy") else ""
    return LOAD.format(part=part, model=model, lazy=lazy)


def _experiment(run: RecordedRun) -> str:
    fields = {key: value for key, value in flat(run.experiment).items() if value is not None}
    return "\n".join(["| field | value |", "|---|---|", *(f"| {key} | {value} |" for key, value in fields.items())])
