"""The reference of the Python names: a page a room, each public name by its docstring."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType

#: the rooms with a page: module, title, introduction
ROOMS = {
    "fedax": ("fedax", "A run in one call, and what goes into it and comes out."),
    "fedax.data": ("fedax.data", "Datasets, partitions, generators, and tables of your own."),
    "fedax.models": ("fedax.models", "Models by name, and modules of other libraries."),
    "fedax.regularizers": ("fedax.regularizers", "What may be added to the clients' losses."),
    "fedax.algorithms.base": ("The contract", "What a method derives from, and how it declares its numbers."),
    "fedax.algorithms.claims": ("Claims", "What a method says of itself, for the conformance suite to check."),
    "fedax.algorithms.aggregation": ("Aggregation", "How a cohort's uploads become one."),
    "fedax.vectors": ("fedax.vectors", "Arithmetic on parameter trees."),
    "fedax.schedules": ("fedax.schedules", "Rates that change over rounds or local steps."),
    "fedax.metrics": ("fedax.metrics", "Metrics as objects."),
    "fedax.evaluation": ("fedax.evaluation", "Models measured client by client."),
    "fedax.evaluation.protocol": ("fedax.evaluation.protocol", "Every client's metrics with each model, as tables."),
    "fedax.experiments": ("fedax.experiments", "Experiment files from Python."),
    "fedax.report": ("fedax.report", "Tables and pages of runs on disk."),
    "fedax.plot": ("fedax.plot", "Pictures of results and federations."),
    "fedax.sklearn": ("fedax.sklearn", "Estimators with scikit-learn's interface."),
    "fedax.testing": ("fedax.testing", "The conformance suite, for a method of anybody's."),
    "fedax.flower": ("fedax.flower", "The same methods over a network, on Flower."),
    "fedax.bounds": ("fedax.bounds", "The theorems as functions of their constants."),
    "fedax.papers.theory": ("fedax.theory", "What the theorems speak of, measured."),
    "fedax.papers.reproductions": ("fedax.reproductions", "The papers' experiments."),
}
METHODS_PAGE = "fedax.algorithms"


def pages() -> dict[str, str]:
    """Each room's page, by its file name."""
    return {f"reference/{room.replace('.', '_')}.md": _page(room) for room in ROOMS}


def names(room: str) -> list[str]:
    """The public names of a room, in the order of the alphabet, classes and functions of others left out."""
    module = importlib.import_module(room)
    if room == "fedax":
        return sorted(module._NAMES)
    listed = getattr(module, "__all__", None)
    found = list(listed) if listed else [n for n, value in vars(module).items() if _own(module, n, value)]
    return sorted(name for name in found if not isinstance(getattr(module, name), ModuleType))


def _own(module: ModuleType, name: str, value: object) -> bool:
    return (
        not name.startswith("_") and getattr(value, "__module__", "") == module.__name__ and inspect.getdoc(value) != ""
    )


def _page(room: str) -> str:
    title, introduction = ROOMS[room]
    public = room if title == "The contract" or "." not in title else title
    lines = [f"# {title}", "", introduction, ""]
    for name in names(room):
        lines += [f"::: {room}.{name}", "    options:", f'      heading: "{name}"', f'      toc_label: "{name}"', ""]
    if public != room and title.startswith("fedax"):
        lines.insert(4, f"The same module is `{room}`.\n")
    return "\n".join(lines)
