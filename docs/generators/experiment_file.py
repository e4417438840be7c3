"""The reference of the experiment file: every field of every table, with its type, its default and what it means."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from docstrings import PARAMETER
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

TABLES = "AlgorithmTable", "AttackTable", "AvailabilityTable", "DataTable", "ModelTable", "PartitionTable"


def page() -> str:
    """The whole page."""
    from fedax.experiments.schema import Experiment

    head = (
        "# The experiment file\n\nAn experiment is a TOML file. This page lists every field of it. A table with a "
        "`name` takes the options of what it names besides; [what can be named](names.md) lists those. `fedax run FILE "
        "--set algorithm.lr=0.05` replaces a field from the command line.\n"
    )
    return head + "\n".join(_table("", "The top level", Experiment, "An experiment has these fields."))


def fields(kind: type[BaseModel]) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, default and meaning of each field."""
    told = meanings(kind)
    for name, field in kind.model_fields.items():
        hint = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        default = "required" if field.is_required() else _value(field.get_default(call_default_factory=True))
        yield name, words(hint), default, told.get(name) or field.description or ""


def meanings(kind: type) -> dict[str, str]:
    """What the docstrings of a class and of its bases say of each field."""
    from fedax.client.availability import Availability

    found: dict[str, str] = {}
    also = [Availability] if kind.__name__ == "AvailabilityTable" else []  # the table makes one, field by field
    for one in [*also, *reversed(inspect.getmro(kind))]:
        if one.__module__.startswith("fedax"):
            last: list[str] = []
            for line in inspect.cleandoc(one.__dict__.get("__doc__") or "").splitlines():
                if PARAMETER.match(line):
                    for part in re.split(r"(?<=[.;]) (?=[a-z_]+: )", line):  # two on a line
                        given, _, said = part.partition(":")
                        last = [name.strip() for name in given.split(",")]
                        found.update(dict.fromkeys(last, said.strip().rstrip(";")))
                elif last and line.startswith("    "):
                    found.update({name: f"{found[name]} {line.strip()}" for name in last})
                else:
                    last = []
    return found


def _table(path: str, title: str, kind: type[BaseModel], introduction: str) -> Iterator[str]:
    yield from (f"\n## {title}\n", introduction, "", "| field | type | default | meaning |", "|---|---|---|---|")
    below = []
    for name, typed, default, meaning in fields(kind):
        nested = list(_models(kind.model_fields[name].annotation))
        if nested:
            below.append((f"{path}{name}", nested[0]))
            typed = f"[table](#{_anchor(path + name)})"
            meaning = meaning or _first(nested[0])
            default = "–" if default != "required" else default
        yield f"| `{name}` | {typed} | {default} | {meaning.replace('|', '/')} |"
    for where, nested_kind in below:
        yield from _table(f"{where}.", f"[{where}]", nested_kind, _introduction(nested_kind))


def _introduction(kind: type) -> str:
    text = inspect.cleandoc(kind.__doc__ or "")
    paragraph = text.split("\n\n")[0].replace("\n", " ")
    return re.sub(r" (?=(\w+): )(.*)", "", re.sub(r"^\[[\w.]+\]: ", "", paragraph), count=0).strip().replace("[", "\\[")


def _first(kind: type) -> str:
    sentence = re.sub(r"^\[[\w.]+\]: ", "", inspect.cleandoc(kind.__doc__ or "").replace("\n", " "))
    return re.split(r"(?<=[.;]) ", sentence)[0].rstrip(".;")


def _anchor(path: str) -> str:
    return re.sub(r"[^a-z0-9_-]", "", path.lower())


def _models(hint: Any) -> Iterator[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    for part in get_args(hint):
        yield from _models(part)


def words(hint: Any) -> str:
    """A type in words.

    >>> words(Annotated[int, Ge(1)] | None), words(Literal["a", "b"]), words(list[float])
    ('a whole number from 1 on', '`"a"` or `"b"`', 'a list of numbers')
    """
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _bounded(inside[0], inside[1:])
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(words(part) for part in inside if part is not type(None)))
    if origin is Literal:
        return " or ".join(f'`"{value}"`' for value in inside)
    if origin is dict:
        return "a table"
    if origin is not None and inside:
        of = words(inside[0])
        return f"a list of {_plural(of)}"
    plain = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
    return plain.get(hint, "a table")


def _plural(what: str) -> str:
    return re.sub(r"^an? (whole number|number|string|table)", r"\1s", what)


def _bounded(hint: Any, bounds: tuple[Any, ...]) -> str:
    flat = [b for bound in bounds for b in (getattr(bound, "metadata", None) or [bound])]
    low = next((b for b in flat if isinstance(b, Ge | Gt)), None)
    high = next((b for b in flat if isinstance(b, Lt | Le)), None)
    said = words(hint)
    least = next((b.min_length for b in flat if isinstance(b, MinLen)), 0)
    if least and get_origin(hint) is not None:
        return f"{said}, at least {least}"
    if isinstance(low, Ge):
        said += f" from {low.ge} on" if high is None else f" from {low.ge}"
    elif isinstance(low, Gt):
        said += f" above {low.gt}"
    if isinstance(high, Lt):
        said += f" to {high.lt - 1}" if hint is int else f" to below {high.lt}"
    elif isinstance(high, Le):
        said += f" to {high.le}"
    return said


def _value(value: Any) -> str:
    if value is None or value is PydanticUndefined:
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, BaseModel):
        return "–"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"
