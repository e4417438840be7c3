"""Reading an experiment file: TOML, the command line's settings, and one sentence for each mistake."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from fedax.algorithms import method_class, required
from fedax.errors import FedaxError, nearest, unknown
from fedax.experiments.schema import Experiment
from fedax.outside import beside
from fedax.whole_files import read_regular

TABLES = ("data", "problem")  # whose fields are most often written at the top

#: the schema's own words for what a value must be, and ours
WORDS = {
    "Input should": "it must",
    "List should": "it must",
    "String should": "it must",
    "a valid boolean": "true or false",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "text",
    "a valid list": "a list",
    "a valid dictionary": "a table",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "above",
    "less than": "below",
    " after validation": "",
    "'str' instances are not allowed as a Sequence value": "it must be a list",
}


def read(
    path: str | os.PathLike[str],
    overrides: Iterable[tuple[str, str]] = (),
    *,
    grid: Literal["tune", "sweep"] | None = None,
) -> Experiment:
    """The experiment in a TOML file, with some of its fields changed.

    overrides: pairs of a dotted field and a TOML value, such as ("algorithm.lr", "0.05"). A field of
        `algorithm` is set in each [[algorithm]] table, or in one by its label or its number: "algorithm.FedProx.mu",
        "algorithm.0.lr".
    grid: the table whose lists give a method the values that its own table leaves out, such as lr.
    """
    file = Path(path)
    table = _load(file)
    table.setdefault("name", file.stem)
    for key, value in overrides:
        override(table, key, value)
    try:
        table = beside(table, file.parent)
        if grid is not None:
            _fill(table.get("algorithm"), table.get(grid))
        return parse(table)
    except RecursionError as error:
        raise FedaxError(f"{path} cannot be read: {_beyond(error)}") from None


def parse(table: dict[str, Any]) -> Experiment:
    """The experiment in a table as TOML gives it; a mistake raises one sentence that names the field.

    >>> parse({"rouns": 10})
    Traceback (most recent call last):
    fedax.errors.FedaxError: unknown field 'rouns': did you mean 'rounds'? Allowed: rounds, cohort, local_steps, ...
    """
    try:
        return Experiment.model_validate(table)
    except ValidationError as error:
        tables = table.get("algorithm")
        raise FedaxError(_sentence(error, numbered=isinstance(tables, list) and len(tables) > 1)) from None


def override(table: dict[str, Any], key: str, text: str) -> None:
    """Set one field, written with dots, to a TOML value; what is not TOML is taken as text.

    >>> table = {"algorithm": [{"name": "FedAvg", "lr": 0.1}, {"name": "SCAFFOLD", "lr": 0.1}]}
    >>> override(table, "algorithm.lr", "0.05")
    >>> override(table, "algorithm.0.label", "plain")
    >>> override(table, "algorithm.SCAFFOLD.lr", "0.2")
    >>> table["algorithm"]
    [{'name': 'FedAvg', 'lr': 0.05, 'label': 'plain'}, {'name': 'SCAFFOLD', 'lr': 0.2}]
    """
    parts = key.split(".")
    if not all(parts):
        raise FedaxError(f"--set {key}={text}: the field must be a name such as rounds or algorithm.lr")
    if parts[0] not in Experiment.model_fields:
        homes = [f"{home}.{key}" for home, inside in table.items() if key in _fields_of(inside)]
        if homes:
            raise FedaxError(f"unknown field {key!r}: did you mean {homes[0]!r}?")
        if home := _home_of(key):
            raise FedaxError(f"unknown field {key!r}: did you mean {f'{home}.{key}'!r}?")
        raise unknown("field", key, Experiment.model_fields)
    _set(table, parts, parse_value(text), key)


def _fill(methods: Any, lists: Any) -> None:
    """Give each method without a value that it needs the first value of its list; the grid has the others.

    >>> methods = [{"name": "FedAvg"}, {"name": "FedProx", "lr": 0.5}]
    >>> _fill(methods, {"lr": [0.1, 0.2], "FedProx": {"mu": [1.0]}})
    >>> methods
    [{'name': 'FedAvg', 'lr': 0.1}, {'name': 'FedProx', 'lr': 0.5, 'mu': 1.0}]
    """
    for table in methods if isinstance(methods, list) else [methods]:
        try:
            method = method_class(table["name"])
            own = {**lists, **lists.get(table.get("label", method.__name__), {})}
            table |= {name: own[name][0] for name in required(method) if name not in table and name in own}
        except (FedaxError, AttributeError, KeyError, IndexError, TypeError):
            continue  # the error is raised when the whole table is parsed


def _fields_of(inside: Any) -> set[str]:
    if isinstance(inside, list):
        return set().union(*map(_fields_of, inside))
    return set(inside) if isinstance(inside, dict) else set()


def _set(inside: Any, parts: list[str], value: Any, key: str) -> None:
    first, rest = parts[0], parts[1:]
    if isinstance(inside, list):
        named = [table for table in inside if rest and _label(table) == first]
        if named or not first.isdigit():
            for table in named or inside:
                _set(table, rest if named else parts, value, key)
        elif int(first) >= len(inside) or not rest:
            raise FedaxError(f"--set {key}: there are {len(inside)} tables, so it must be like algorithm.0.lr")
        else:
            _set(inside[int(first)], rest, value, key)
    elif not isinstance(inside, dict):
        raise FedaxError(f"--set {key}: the field before {first!r} is {inside!r}, which has no fields of its own")
    elif rest and first == "algorithm" and isinstance(inside.get(first), dict):
        _set([inside[first]], rest, value, key)
    elif rest:
        _set(inside.setdefault(first, {}), rest, value, key)
    else:
        inside[first] = value


def _label(table: Any) -> Any:
    """The label or name in a method's table."""
    return table.get("label", table.get("name")) if isinstance(table, dict) else None


def parse_value(text: str) -> Any:
    """A TOML value; what is not TOML is text.

    >>> parse_value("0.5"), parse_value("FedAvg")
    (0.5, 'FedAvg')
    """
    try:
        return tomllib.loads(f"value = {text}")["value"] if "\n" not in text else text
    except tomllib.TOMLDecodeError:
        return text
    except (ValueError, RecursionError) as error:
        raise FedaxError(f"the value {text[:20]}... cannot be read: {_beyond(error)}") from None


def _beyond(error: BaseException) -> str:
    """What is wrong with TOML that is well formed."""
    return "it is nested too deeply" if isinstance(error, RecursionError) else "a number has too many digits"


def _load(path: Path) -> dict[str, Any]:
    try:
        content = read_regular(path).decode()
    except FileNotFoundError:
        beside = sorted(str(p) for p in path.parent.glob("*.toml")) if path.parent.is_dir() else []
        guess = nearest(str(path), beside)
        hint = f", did you mean {guess}?" if guess else ""
        raise FedaxError(f"{path} cannot be read: there is no such file{hint}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise FedaxError(f"{path} is not a TOML file: line {line} is not UTF-8 text") from None
    except OSError as error:
        raise FedaxError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    try:
        return tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        last = len(content.splitlines())
        reason = str(error).replace("at end of document", f"at line {last}, the end of the file")
        raise FedaxError(f"{path} is not valid TOML: {reason[:1].lower()}{reason[1:]}") from None
    except (ValueError, RecursionError) as error:
        raise FedaxError(f"{path} cannot be read: {_beyond(error)}") from None


def _sentence(error: ValidationError, *, numbered: bool) -> str:
    """The first mistake as a sentence; an unknown field before others, as it may explain what is missing.

    numbered: there are several [[algorithm]] tables, so the sentence says which.
    """
    found = error.errors(include_url=False)
    first = next((e for e in found if e["type"] == "extra_forbidden"), found[0])
    where = [str(part) for part in first["loc"]]
    if where[:1] == ["algorithm"] and not numbered:
        where[1:2] = []
    path, value, context = ".".join(where), first["input"], first.get("ctx", {})
    match first["type"]:
        case "extra_forbidden":
            *inside, name = where
            if not inside and (home := _home_of(name)):
                return f"unknown field {name!r}: it belongs in [{home}]"
            kind = f"field of [{'.'.join(inside)}]" if inside else "field"
            return str(unknown(kind, name, _table(inside).model_fields))
        case "missing":
            table, name = _table(where[:-1]), where[-1]
            return f"{path} is missing: it must be {table.model_fields[name].description}"
        case "literal_error":
            return str(unknown(path, value, re.findall(r"'([^']*)'", context["expected"])))
        case "value_error":
            return f"{path}: {context['error']}" if path else str(context["error"])
        case "model_type":
            return f"{path} is {_short(value)}: it must be a table"
    allowed = first["msg"]
    for schema, ours in WORDS.items():
        allowed = allowed.replace(schema, ours)
    return f"{path} is {_short(value)}: {allowed}"


def _table(path: list[str]) -> type[BaseModel]:
    """The kind of table at a path of field names."""
    table: type[BaseModel] = Experiment
    for name in path:
        if name.isdigit():
            continue
        kind: Any = table.model_fields[name].annotation
        table = kind.__args__[0] if hasattr(kind, "__args__") else kind
    return table


def _home_of(name: str) -> str:
    """The table to which a field belongs that is written at the top; nothing if there is none.

    >>> _home_of("metrics"), _home_of("colour")
    ('problem', '')
    """
    return next((table for table in TABLES if name in _table([table]).model_fields), "")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
