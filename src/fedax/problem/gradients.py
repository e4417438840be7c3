"""Gradient transformations between the oracle and the method: optax's, as far as they keep no state, and "dp".

They act in their order on the gradient that a method gets, with the subgradient of psi. `oracle.raw` gives the gradient
before them. Hessian-vector products stay those of the loss. "dp" must come first, because it needs the gradients of
single rows: see `fedax.problem.row_privacy`.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax

import fedax.lazy_optax as optax
from fedax.errors import FedaxError, unknown
from fedax.problem.row_privacy import NAME as DP
from fedax.problem.row_privacy import RowPrivacy
from fedax.vectors import Vector

#: optax's transformations that keep no state, by name
NAMES = (
    "adaptive_grad_clip",
    "add_decayed_weights",
    "centralize",
    "clip",
    "clip_by_block_rms",
    "clip_by_global_norm",
    "normalize_by_update_norm",
    "scale",
    "scale_by_sign",
    "zero_nans",
)


@dataclasses.dataclass(frozen=True, eq=False)
class Transformation:
    """One transformation: optax's object, and a key that identifies it."""

    name: str
    made: Any

    def __repr__(self) -> str:
        return self.name


def transformations(asked: Sequence[Any]) -> tuple[Transformation, ...]:
    """The transformations that `Problem(gradients=...)` or an experiment file's `gradients` name, in their order.

    >>> transformations([{"name": "clip_by_global_norm", "max_norm": 10}])
    (clip_by_global_norm(max_norm=10),)
    >>> transformations([{"name": "clip_by_global_nrom"}])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fedax.errors.FedaxError: unknown gradient transformation 'clip_by_global_nrom': did you mean ...
    """
    if isinstance(asked, Mapping | str) or not isinstance(asked, Sequence):
        raise FedaxError(f"gradients is {asked!r}: it must be a list of optax's gradient transformations")
    return tuple(_one(part) for part in asked)


def row_privacy(asked: Sequence[Any]) -> tuple[RowPrivacy | None, Sequence[Any]]:
    """The clipping and noise of single rows' gradients that `gradients` asks for, and the other transformations.

    >>> row_privacy([{"name": "dp", "clip": 1.0}, {"name": "zero_nans"}])
    (RowPrivacy(clip=1.0, noise=0.0, delta=1e-05), [{'name': 'zero_nans'}])
    """
    if isinstance(asked, Mapping | str) or not isinstance(asked, Sequence):
        return None, asked
    named = [part == DP or (isinstance(part, Mapping) and part.get("name") == DP) for part in asked]
    if not any(named):
        return None, asked
    if not named[0] or sum(named) > 1:
        raise FedaxError(f"gradients: {DP} must come first, and once: it takes the place of the gradient itself")
    first = asked[0] if isinstance(asked[0], Mapping) else {}
    return RowPrivacy.of(**{name: value for name, value in first.items() if name != "name"}), asked[1:]


def _one(asked: Any) -> Transformation:
    if isinstance(asked, str):
        asked = {"name": asked}
    if isinstance(asked, Mapping):
        return _named(**{"name": None, **asked})
    if hasattr(asked, "init") and hasattr(asked, "update"):
        return Transformation(getattr(asked.update, "__qualname__", "transformation").split(".")[0], asked)
    raise FedaxError(
        f"gradients holds {asked!r}: it must be a gradient transformation of optax, or a table with its name"
    )


def _named(name: Any, **options: Any) -> Transformation:
    if name not in NAMES:
        stateful = isinstance(name, str) and callable(getattr(optax, name, None))
        if stateful and name.startswith(("scale_by_", "add_noise", "trace", "ema", "adam", "sgd")):
            raise _keeps_state(str(name))
        raise unknown("gradient transformation", name, (*NAMES, DP))
    make = getattr(optax, name)
    allowed = list(inspect.signature(make).parameters)
    for given in options:
        if given not in allowed:
            raise unknown(f"field of {name}", given, allowed)
    for field, value in options.items():
        if not isinstance(value, int | float | bool) and value is not None:
            raise FedaxError(f"gradients: {name}: {field} is {value!r}: it must be a number")
        least = 0.0 if "clip" in name or name == "normalize_by_update_norm" else -math.inf
        if value is not None and not (math.isfinite(value) and value >= least):
            bounds = "finite" if least else "finite and 0 or more"
            raise FedaxError(f"gradients: {name}: {field} is {value!r}: it must be {bounds}")
    try:
        made = make(**options)
    except TypeError as error:
        raise FedaxError(f"gradients: {name}: {error}") from None
    shown = ", ".join(f"{key}={value}" for key, value in options.items())
    return Transformation(f"{name}({shown})", made)


def refuse_stateful(chain: Sequence[Transformation], params: Any) -> None:
    """Raise if a transformation keeps a state from step to step."""
    for part in chain:
        if jax.tree.leaves(jax.eval_shape(part.made.init, params)):
            raise _keeps_state(part.name)


def _keeps_state(name: str) -> FedaxError:
    return FedaxError(f"gradients: {name} keeps a state from step to step, which is a method's part: take another")


def transformed(chain: Sequence[Transformation], gradient: Vector, x: Vector) -> Vector:
    """The gradient at x after the transformations."""
    tree = gradient.tree
    for part in chain:
        tree, _ = part.made.update(tree, part.made.init(x.tree), x.tree)
    return Vector(tree)
