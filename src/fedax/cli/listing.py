"""`fedax list`: methods, datasets, models, metrics and all else that an experiment names, with its options."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from fedax.cli.console import console, table
from fedax.errors import FedaxError, unknown
from fedax.outside import is_outside, load, parameters


def show(kind: str = "", names: Sequence[str] = ()) -> None:
    """Print the tables of one kind or of all; with names of one's own code, only their rows."""
    if is_outside(kind):
        kind, names = "", [kind, *names]
    if kind and kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    for name in names:
        if not is_outside(name):
            raise FedaxError(f"{name!r} is not from outside: it must be like mymodule:Name or path/to/file.py:Name")
    if names:
        kinds = [kind or _kind_of(name) for name in names]
        for one in dict.fromkeys(kinds):
            console().print(KINDS[one]([name for name, its in zip(names, kinds, strict=True) if its == one]))
        return
    for make in [KINDS[kind]] if kind else KINDS.values():
        console().print(make(()))


def _kind_of(name: str) -> str:
    """The kind of a name from outside: a class shows it by its base, a function by its arguments."""
    from fedax.algorithms import Algorithm
    from fedax.data import Partition
    from fedax.evaluation.metrics import Metric
    from fedax.regularizers import Regularizer

    def known(value: Any) -> bool:
        return callable(value) or isinstance(value, tuple | Metric)

    found = load(name, "class or function", known, "it must be one")
    if isinstance(found, Metric):
        return "metrics"
    if isinstance(found, type):
        for base, kind in ((Algorithm, "algorithms"), (Partition, "partitions"), (Regularizer, "regularizers")):
            if issubclass(found, base):
                return kind
    taken = parameters(found)
    if not callable(found) or hasattr(found, "apply") or any(p.name == "outputs" for p in taken):
        return "models"
    second = taken[1].name if len(taken) > 1 else ""
    return {"y": "losses", "weights": "aggregations"}.get(second, "datasets")


def _own_row(name: str, found: Any) -> tuple[str, str, str]:
    """Name, first line of the description, and options of a class or a function."""
    described = inspect.cleandoc(found.__doc__ or "").partition("\n")[0] if callable(found) else ""
    options = [p.name if p.default is p.empty else f"{p.name} = {_value(p.default)}" for p in parameters(found)]
    return name, described, ", ".join(option for option in options if option != "outputs")


def algorithms(names: Sequence[str] = ()) -> Table:
    """The methods."""
    from fedax.algorithms import ALGORITHMS, method_class

    shown = {name: method_class(name) for name in names} or ALGORITHMS
    measured = {name: _costs(cls) for name, cls in shown.items()} if names else _known_costs(shown)
    rows = [
        (
            name,
            kind(cls),
            *measured[name],
            ", ".join(map(_field, dataclasses.fields(cls))),  # type: ignore[arg-type]
            cls.reference,
        )
        for name, cls in shown.items()
    ]
    columns = ("name", "kind", "floats kept", "floats down, up", "gradients", "hyper-parameters", "reference")
    spare = ("floats down, up", "gradients", "reference")
    return table("Algorithms", columns, rows, whole=["name"], spare=spare)


def _known_costs(methods: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    """The costs of Fedax's own methods, measured once for each state of the source and kept in the user's cache."""
    from fedax import algorithms
    from fedax.runs.files import read_json, write_json
    from fedax.runtime import user_cache

    files = sorted(Path(algorithms.__file__).parent.glob("*.py"))
    state = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    kept = user_cache() / "costs.json"
    known: dict[str, Any] = {}
    with contextlib.suppress(FedaxError):  # damaged: measured again
        known = read_json(kept) or {}
    if known.get("state") != state or known.get("costs", {}).keys() != methods.keys():
        known = {"state": state, "costs": {name: _costs(cls) for name, cls in methods.items()}}
        with contextlib.suppress(OSError):  # no place to keep them: they are measured each time
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_json(kept, known)
    found: Mapping[str, Sequence[str]] = known["costs"]
    return found


def _costs(cls: Any) -> tuple[str, str, str]:
    """Floats that a client keeps, floats down and up, and gradients; measured with default hyper-parameters."""
    from fedax.testing import costs, make

    try:
        found = costs(make(cls))
    except Exception:  # a method that does not run yet is listed without its costs
        return "?", "?", "?"
    return found.kept, f"{found.down}, {found.up}", found.gradients


def datasets(names: Sequence[str] = ()) -> Table:
    """The datasets."""
    from fedax.data import DATASETS, FEDERATIONS
    from fedax.data.loading import outside_dataset

    columns = ("name", "description", "options")
    if names:
        return table("Datasets", columns, [_own_row(name, outside_dataset(name)) for name in names], whole=["name"])
    rows = []
    for name, dataset in DATASETS.items():
        further = ["test"] if dataset.read_test else []
        rows.append((name, dataset.description, ", ".join([*dataset.options, "split", "partition", *further])))
    rows = [row for row in rows if row[0] not in FEDERATIONS]
    for name, divided in FEDERATIONS.items():
        presets = ["preset = " + " | ".join(map(_value, divided.presets))] if divided.presets else []
        own = [f"{key} = {_value(default)}" for key, default in divided.defaults.items()]
        sizes = [key for key in divided.options if key != "preset" and key not in divided.defaults]
        rows.append((name, divided.description, ", ".join([*presets, *sizes, *own])))
    return table("Datasets", columns, rows, whole=["name"])


def models(names: Sequence[str] = ()) -> Table:
    """The models."""
    from fedax.models import MODELS
    from fedax.models.registry import outside_model

    rows = [
        (name, entry.summary, ", ".join(f"{key} = {_value(o.default)}" for key, o in entry.options.items()))
        for name, entry in MODELS.items()
    ]
    rows = [_own_row(name, outside_model(name)) for name in names] or rows
    return table("Models", ("name", "description", "options"), rows, whole=["name"])


def losses(names: Sequence[str] = ()) -> Table:
    """The losses."""
    from fedax.problem.losses import LOSSES, row_loss

    rows = [_own_row(name, row_loss(name)[0])[:2] for name in names or LOSSES]
    return table("Losses", ("name", "description"), rows, whole=["name"])


def partitions(names: Sequence[str] = ()) -> Table:
    """The partitions."""
    from fedax.data import PARTITIONS
    from fedax.data.partitions.registry import partition_class

    rows = [
        (
            name,
            inspect.cleandoc(cls.__doc__ or "").partition("\n")[0],
            ", ".join(map(_field, dataclasses.fields(cls))),
        )
        for name, cls in ({name: partition_class(name) for name in names} or PARTITIONS).items()
    ]
    return table("Partitions", ("name", "description", "fields"), rows, whole=["name"])


def regularizers(names: Sequence[str] = ()) -> Table:
    """The regularizers."""
    from fedax.regularizers import REGULARIZERS
    from fedax.regularizers.registry import regularizer_class

    rows = [
        (
            name,
            "constraint" if cls.constraint else "penalty",
            inspect.cleandoc(cls.__doc__ or "").partition("\n")[0],
            ", ".join(map(_field, sorted(dataclasses.fields(cls), key=lambda f: f.name == "on"))),
        )
        for name, cls in ({name: regularizer_class(name) for name in names} or REGULARIZERS).items()
    ]
    return table("Regularizers", ("name", "kind", "description", "fields"), rows, whole=["name"])


def metrics(names: Sequence[str] = ()) -> Table:
    """The metrics."""
    from fedax.metrics import METRICS, named

    rows = []
    for name, metric in ({name: named(name) for name in names} or METRICS).items():
        least, most = metric.classes
        classes = f"{least} classes" if least == most else "classes" if least == 2 else f"at least {least} classes"
        where = {"any": "any loss", "classes": classes, "numbers": "numbers"}[metric.fits]
        over = "mean over rows" if metric.mean else "of all rows together"
        shown = metric.words + (", %" if metric.percent else "")
        rows.append((name, shown, "more" if metric.higher else "less", where, over))
    return table("Metrics", ("name", "shown as", "better", "for", "a client's value"), rows, whole=["name"])


def aggregations(names: Sequence[str] = ()) -> Table:
    """The rules by which a cohort's uploads become one."""
    from fedax.algorithms.aggregation import RULES, mean, named

    given = {name: named(name) for name in names} or {"mean": mean, **RULES}
    rows = [_own_row(name, rule) for name, rule in given.items()]
    rows = [(name, said, ", ".join(options.split(", ")[2:])) for name, said, options in rows]
    return table("Aggregations", ("name", "description", "options"), rows, whole=["name"])


def schedules(names: Sequence[str] = ()) -> Table:
    """The schedules of rates."""
    from fedax.schedules import SCHEDULES

    _none_of_your_own("schedule", names)
    rows = [
        (name, inspect.cleandoc(cls.__doc__ or "").partition("\n")[0], ", ".join(map(_field, dataclasses.fields(cls))))
        for name, cls in SCHEDULES.items()
    ]
    return table("Schedules", ("kind", "description", "fields"), rows, whole=["kind"])


def gradients(names: Sequence[str] = ()) -> Table:
    """The gradient transformations."""
    import fedax.lazy_optax as optax
    from fedax.problem.gradients import NAMES

    _none_of_your_own("gradient transformation", names)
    rows = [_own_row(name, getattr(optax, name)) for name in NAMES]
    return table("Gradient transformations", ("name", "description", "options"), rows, whole=["name"])


def _none_of_your_own(what: str, names: Sequence[str]) -> None:
    if names:
        raise FedaxError(f"{names[0]}: an experiment names no {what} of your own; give it from Python")


KINDS: dict[str, Callable[[Sequence[str]], Table]] = {
    "algorithms": algorithms,
    "datasets": datasets,
    "models": models,
    "losses": losses,
    "partitions": partitions,
    "regularizers": regularizers,
    "metrics": metrics,
    "aggregations": aggregations,
    "schedules": schedules,
    "gradients": gradients,
}


def kind(cls: Any) -> str:
    """What a method is for: one shared model, a model for each client, a regularizer.

    >>> from fedax.algorithms import APFL
    >>> kind(APFL)
    'personal'
    """
    return ("personal" if cls.personalised else "shared") + (", composite" if cls.composite else "")


def _field(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING:
        return field.name
    if field.default is None:
        return f"{field.name} (optional)"
    choices = field.metadata.get("choices")
    if choices and isinstance(choices[0], str):
        return f"{field.name} = {' | '.join(map(_value, choices))}"
    return f"{field.name} = {_value(field.default)}"


def _value(value: Any) -> str:
    """A default as an experiment file writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)
