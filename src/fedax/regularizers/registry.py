"""Regularizers and mirror maps by name, as experiment files write them."""

from __future__ import annotations

import dataclasses
from typing import Any

from fedax.errors import FedaxError, unknown
from fedax.outside import is_outside, load
from fedax.regularizers.base import Regularizer
from fedax.regularizers.constraints import Box, L1Ball, L2Ball, LInfBall, NonNegative, Simplex
from fedax.regularizers.matrices import Nuclear, NuclearBall
from fedax.regularizers.mirrors import MIRRORS, Mirror
from fedax.regularizers.norms import L1, L2, ElasticNet, GroupLasso, SquaredL2
from fedax.regularizers.variation import TotalVariation1D

_PENALTIES = (L1, L2, SquaredL2, ElasticNet, GroupLasso, Nuclear, TotalVariation1D)
_CONSTRAINTS = (NonNegative, Box, Simplex, L1Ball, L2Ball, LInfBall, NuclearBall)
#: every regularizer by its name, penalties before constraints; sums are written with +
REGULARIZERS: dict[str, type[Regularizer]] = {cls.__name__: cls for cls in (*_PENALTIES, *_CONSTRAINTS)}


def regularizer(name: str, **options: Any) -> Regularizer:
    """A regularizer by name; one of your own by "mymodule:MyRegularizer" or "file.py:MyRegularizer".

    >>> regularizer("nuclear", strength=0.1, on="kernel")
    Nuclear(on='kernel', strength=0.1)
    >>> regularizer("L1Bal", radius=1.0)
    Traceback (most recent call last):
    fedax.errors.FedaxError: unknown regularizer 'L1Bal': did you mean 'L1Ball'? Allowed: L1, L2, SquaredL2, \
ElasticNet, GroupLasso, Nuclear, TotalVariation1D, NonNegative, Box, Simplex, L1Ball, L2Ball, LInfBall, NuclearBall
    """
    registry = {name: regularizer_class(name)} if is_outside(name) else REGULARIZERS
    made: Regularizer = _build("regularizer", registry, name, options)
    return made


def regularizer_class(name: str) -> type[Regularizer]:
    """The class of a regularizer from outside.

    >>> regularizer_class("fedax.regularizers:L1").__name__
    'L1'
    """
    check = lambda found: isinstance(found, type) and issubclass(found, Regularizer)  # noqa: E731
    advice = "derive it from fedax.regularizers.Regularizer and decorate it with @dataclass(frozen=True)"
    found: type[Regularizer] = load(name, "regularizer", check, advice)
    return found


def mirror(name: str, **options: Any) -> Mirror:
    """A mirror map by name.

    >>> mirror("p-norm", p=1.5)
    PNorm(p=1.5)
    """
    made: Mirror = _build("mirror", MIRRORS, name, options)
    return made


def _build(kind: str, registry: dict[str, Any], name: str, options: dict[str, Any]) -> Any:
    by_lower = {n.lower(): n for n in registry}
    if str(name).lower() not in by_lower:
        raise unknown(kind, name, registry)
    proper = by_lower[str(name).lower()]
    fields = dataclasses.fields(registry[proper])
    for given in options:
        if given not in {f.name for f in fields}:
            raise unknown(f"field of {proper}", given, [f.name for f in fields])
    missing = [f.name for f in fields if f.default is dataclasses.MISSING and f.name not in options]
    if missing:
        raise FedaxError(f"{proper} needs {', '.join(missing)}")
    return registry[proper](**options)
