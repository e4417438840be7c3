"""`fedax list`: the methods, datasets, models, partitions and regularizers, with what each can be told."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from rich.table import Table

from fedax.cli.console import console, table
from fedax.errors import unknown


def show(kind: str = "") -> None:
    """Print the tables of one kind, or of all."""
    if kind and kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    for make in [KINDS[kind]] if kind else KINDS.values():
        console().print(make())


def algorithms() -> Table:
    """The methods."""
    from fedax.algorithms import ALGORITHMS

    rows = [
        (
            name,
            kind(cls),
            cls.keeps,
            f"{_times(cls.down)} / {_times(cls.up)}" + (f" ({cls.up_otherwise})" if cls.up_otherwise else ""),
            str(cls.gradients),
            ", ".join(map(_field, dataclasses.fields(cls))),  # type: ignore[arg-type]
            cls.reference,
        )
        for name, cls in ALGORITHMS.items()
    ]
    columns = (
        "name",
        "kind",
        "a client keeps",
        "floats down / up",
        "gradients a step",
        "hyper-parameters",
        "reference",
    )
    spare = ("floats down / up", "gradients a step", "reference")
    return table("Algorithms", columns, rows, whole=["name"], spare=spare)


def datasets() -> Table:
    """The datasets."""
    from fedax.data import DATASETS, FEDERATIONS

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
    return table("Datasets", ("name", "description", "options"), rows, whole=["name"])


def models() -> Table:
    """The models."""
    from fedax.models import MODELS

    rows = [
        (name, entry.summary, ", ".join(f"{key} = {_value(o.default)}" for key, o in entry.options.items()))
        for name, entry in MODELS.items()
    ]
    return table("Models", ("name", "description", "options"), rows, whole=["name"])


def partitions() -> Table:
    """The partitions."""
    from fedax.data import PARTITIONS

    rows = [
        (
            name,
            inspect.cleandoc(cls.__doc__ or "").splitlines()[0],
            ", ".join(map(_field, dataclasses.fields(cls))),
        )
        for name, cls in PARTITIONS.items()
    ]
    return table("Partitions", ("name", "description", "fields"), rows, whole=["name"])


def regularizers() -> Table:
    """The regularizers."""
    from fedax.regularizers import REGULARIZERS

    rows = [
        (
            name,
            "constraint" if cls.constraint else "penalty",
            inspect.cleandoc(cls.__doc__ or "").splitlines()[0],
            ", ".join(map(_field, sorted(dataclasses.fields(cls), key=lambda f: f.name == "on"))),
        )
        for name, cls in REGULARIZERS.items()
    ]
    return table("Regularizers", ("name", "kind", "description", "fields"), rows, whole=["name"])


KINDS: dict[str, Callable[[], Table]] = {
    "algorithms": algorithms,
    "datasets": datasets,
    "models": models,
    "partitions": partitions,
    "regularizers": regularizers,
}


def kind(cls: Any) -> str:
    """What a method is for: one shared model, a model a client, a regularizer.

    >>> from fedax.algorithms import APFL
    >>> kind(APFL)
    'personal'
    """
    return ("personal" if cls.personalised else "shared") + (", composite" if cls.composite else "")


def _times(vectors: int) -> str:
    return "d" if vectors == 1 else f"{vectors} d" if vectors else "0"


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
