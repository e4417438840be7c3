"""Options checked by their types: a field's allowed values are declared once, as its type.

A type is `Count`, a Literal, bool, a number between bounds, or any of them or None. Experiment files are checked by the
same types.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from annotated_types import Ge, Gt, Le, Lt, MinLen

from fedax.errors import FedaxError, unknown

Count = Annotated[int, Ge(1)]
LEAST, MOST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


def check_options(made: Any) -> None:
    """Raise one sentence if a field of a dataclass is not what its type allows.

    >>> @dataclasses.dataclass
    ... class Work:
    ...     rounds: Count
    ...     sampling: Literal["epochs", "iid"] = "epochs"
    >>> check_options(Work(rounds=0))
    Traceback (most recent call last):
    fedax.errors.FedaxError: rounds must be a whole number from 1 on, not 0
    >>> check_options(Work(rounds=1, sampling="idd"))
    Traceback (most recent call last):
    fedax.errors.FedaxError: unknown sampling 'idd': did you mean 'iid'? Allowed: epochs, iid
    """
    kind: Any = type(made)
    for name, hint in _hints(kind).items():
        check_value(name, hint, getattr(made, name))


def check_value(name: str, hint: Any, value: Any) -> None:
    """Raise one sentence if a type does not allow a value; other types than those of this module allow all values."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        kinds = [kind for kind in inside if kind is not type(None)]
        if len(kinds) == 1 and not (value is None and len(inside) > 1):
            check_value(name, kinds[0], value)
    elif origin is Literal:
        if value not in inside:
            raise unknown(name, value, [str(allowed) for allowed in inside])
    elif origin is Annotated and inside[0] in (int, float):
        _check_number(name, inside[0], inside[1:], value)
    elif origin is Annotated and get_origin(inside[0]) is Sequence:
        least = next((bound.min_length for bound in inside[1:] if isinstance(bound, MinLen)), 0)
        if isinstance(value, str) or not isinstance(value, Sequence) or len(value) < least:
            raise FedaxError(f"{name} must be a list of at least {least}, not {value!r}")
        for part in value:
            check_value(name, get_args(inside[0])[0], part)
    elif hint is bool and not isinstance(value, bool | np.bool_):
        raise FedaxError(f"{name} must be true or false, not {value!r}")


def _check_number(name: str, kind: type, bounds: tuple[Any, ...], value: Any) -> None:
    numbers = int | np.integer if kind is int else int | float | np.integer | np.floating
    low = next((b for b in bounds if isinstance(b, Ge | Gt)), None)
    high = next((b.lt for b in bounds if isinstance(b, Lt)), None)
    last = next((b.le for b in bounds if isinstance(b, Le)), None)
    good = isinstance(value, numbers) and not isinstance(value, bool) and abs(value) != math.inf
    if isinstance(low, Ge):
        good = good and value >= low.ge
    elif isinstance(low, Gt):
        good = good and value > low.gt
    if good and (high is None or value < high) and (last is None or value <= last):
        return
    raise FedaxError(f"{name} must be {_allowed(kind, low, high, last)}, not {value!r}")


def check_float32(name: str, value: float) -> None:
    """Raise one sentence for a finite number that would be 0 or infinite in single precision.

    >>> check_float32("clip", 1e-300)
    Traceback (most recent call last):
    fedax.errors.FedaxError: clip is 1e-300: float32 has numbers from 1.2e-38 to 3.4e+38
    """
    if value and abs(value) != math.inf and not LEAST <= abs(value) <= MOST:
        raise FedaxError(f"{name} is {value}: float32 has numbers from {LEAST:.2g} to {MOST:.2g}")


def _allowed(kind: type, low: Any, high: Any, last: Any = None) -> str:
    """The numbers that are allowed, in words.

    >>> _allowed(int, Ge(1), None), _allowed(float, Gt(0), None), _allowed(float, Ge(0), 1)
    ('a whole number from 1 on', 'a number above 0', 'a number in [0, 1)')
    """
    what = "a whole number" if kind is int else "a number"
    if kind is int and high is not None:
        return f"{what} from {low.ge} to {high - 1}"
    if high is not None or last is not None:
        first = f"({low.gt}" if isinstance(low, Gt) else f"[{low.ge}"
        return f"{what} in {first}, {f'{high})' if last is None else f'{last}]'}"
    if isinstance(low, Gt):
        return f"{what} above {low.gt}"
    return f"{what} from {low.ge} on"


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def made_of(kind: type, given: Mapping[str, Any]) -> Any:
    """A dataclass from options by name; an unknown or a missing option raises one sentence.

    >>> @dataclasses.dataclass
    ... class Work:
    ...     rounds: int
    ...     cohort: int | None = None
    >>> made_of(Work, {"rounds": 3, "cohrt": 2})
    Traceback (most recent call last):
    fedax.errors.FedaxError: unknown option 'cohrt': did you mean 'cohort'? Allowed: rounds, cohort
    """
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name in given:
        if name not in fields:
            raise unknown("option", name, fields)
    for name, field in fields.items():
        if name not in given and field.default is field.default_factory is dataclasses.MISSING:
            raise FedaxError(f"{name} is missing: give it, such as {name}=10")
    return kind(**given)


def keywords(kind: type) -> list[inspect.Parameter]:
    """The options of a dataclass as the keywords of a function."""
    found = inspect.signature(kind).parameters.values()
    return [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in found]
