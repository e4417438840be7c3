"""A method's hyper-parameters by name; those of the method that it builds on are `base.lr` and the like."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping
from typing import Any, TypeVar

M = TypeVar("M")


def fields_of(method: Any) -> dict[str, dataclasses.Field[Any]]:
    """The fields of a method, and of its base, by name.

    >>> from fedax.algorithms import FedAvg, Robust
    >>> list(fields_of(Robust(FedAvg(lr=0.1))))
    ['base', 'base.lr', 'base.server_lr', 'rule', 'trim', 'attackers']
    """
    found: dict[str, dataclasses.Field[Any]] = {}
    for field in dataclasses.fields(method):
        found[field.name] = field
        if field.metadata.get("method"):
            inner = fields_of(getattr(method, field.name))
            found |= {f"{field.name}.{name}": one for name, one in inner.items()}
    return found


def full_name(method: Any, name: str) -> str | None:
    """A field's full name: that of the base's field where the method has no field of the name; None if neither has.

    >>> from fedax.algorithms import FedAvg, Localised, Robust
    >>> full_name(Robust(FedAvg(lr=0.1)), "lr"), full_name(Localised(FedAvg(lr=0.1), steps=5, lr=0.1), "lr")
    ('base.lr', 'lr')
    """
    names = fields_of(method)
    return name if name in names else next((one for one in names if one.endswith(f".{name}")), None)


def value_of(method: Any, name: str) -> Any:
    """The value of a field.

    >>> from fedax.algorithms import FedAvg, Robust
    >>> value_of(Robust(FedAvg(lr=0.1)), "base.lr")
    0.1
    """
    return operator.attrgetter(name)(method)


def replaced(method: M, values: Mapping[str, Any]) -> M:
    """The method with other values.

    >>> from fedax.algorithms import FedAvg, Robust
    >>> replaced(Robust(FedAvg(lr=0.1)), {"base.lr": 0.2, "trim": 0.3})
    Robust(base=FedAvg(lr=0.2, server_lr=1.0), rule='trimmed_mean', trim=0.3, attackers=1)
    """
    own: dict[str, Any] = {}
    for name, value in values.items():
        head, _, rest = name.partition(".")
        own[head] = replaced(own.get(head, getattr(method, head)), {rest: value}) if rest else value
    return dataclasses.replace(method, **own)  # type: ignore[type-var]
