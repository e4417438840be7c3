"""Rates that change over rounds and local steps.

A learning rate is a number or a `Schedule`. The engine puts the current number in its place before it
calls a method, so method code reads `self.lr` and does not depend on the round or the step.
`per="round"` counts communication rounds, `per="step"` counts a client's local steps over all rounds,
t = round * steps + step.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp

from fedax.errors import FedaxError, unknown

Per = Literal["round", "step"]
TINY = sys.float_info.min  # the least number above 0


def register(cls: Any, leaves: list[str], static: list[str]) -> None:
    """Make a dataclass a tree for JAX: some fields are leaves, the others part of its structure.

    Not `jax.tree_util.register_dataclass`: there two classes with equally many leaves and equal static values have
    equal structures, so that `jit` may run one method with another's compiled program.
    """

    def values(made: Any, names: list[str]) -> tuple[Any, ...]:
        return tuple(getattr(made, name) for name in names)

    def with_keys(made: Any) -> Any:
        return tuple((jax.tree_util.GetAttrKey(name), getattr(made, name)) for name in leaves), values(made, static)

    def unflatten(fixed: Any, given: Any) -> Any:
        return cls(**dict(zip(leaves, given, strict=True)), **dict(zip(static, fixed, strict=True)))

    jax.tree_util.register_pytree_with_keys(
        cls, with_keys, unflatten, lambda made: (values(made, leaves), values(made, static))
    )


def _check_decay(value: Any, low: float, high: float, interval: str) -> None:
    """Raise unless the value is a number in the interval; a traced number passes."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(value, str | bool | list | tuple | dict | None) or (plain and not low <= value <= high):
        raise FedaxError(f"decay must be a number in {interval}, not {value!r}")


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A rate as a function of time; subclasses give `value(t)`."""

    initial: Any
    per: Per = dataclasses.field(default="round", kw_only=True)

    def __post_init__(self) -> None:
        if self.per not in ("round", "step"):
            raise FedaxError(f"per must be 'round' or 'step', not {self.per!r}")

    def value(self, t: Any) -> Any:
        raise NotImplementedError

    def __call__(self, round: Any, step: Any = 0, steps: Any = 1) -> Any:
        return self.value(round if self.per == "round" else round * steps + step)


@dataclasses.dataclass(frozen=True)
class Constant(Schedule):
    """The same rate always.

    >>> Constant(0.1)(round=7)
    0.1
    """

    def value(self, t: Any) -> Any:
        return self.initial


@dataclasses.dataclass(frozen=True)
class Exponential(Schedule):
    """initial * decay^t.

    >>> float(Exponential(0.1, 0.5)(round=2))
    0.025
    >>> float(Exponential(0.1, 0.5, per="step")(round=1, step=1, steps=2))
    0.0125
    """

    decay: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_decay(self.decay, TINY, 1, "(0, 1]")

    def value(self, t: Any) -> Any:
        return self.initial * self.decay**t


@dataclasses.dataclass(frozen=True)
class InverseTime(Schedule):
    """initial / (1 + decay * t).

    >>> InverseTime(0.1, 1.0)(round=3)
    0.025
    """

    decay: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_decay(self.decay, 0, sys.float_info.max, "[0, inf)")

    def value(self, t: Any) -> Any:
        return self.initial / (1 + self.decay * t)


@dataclasses.dataclass(frozen=True)
class Custom(Schedule):
    """Any function of time, an optax schedule for one, times `initial`.

    >>> import optax
    >>> float(Custom(0.1, optax.cosine_decay_schedule(1.0, 10))(round=10))
    0.0
    """

    function: Callable[[Any], Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.function):
            raise FedaxError(f"function must be a function of time, not {self.function!r}")

    def value(self, t: Any) -> Any:
        return self.initial * self.function(jnp.asarray(t))


for _cls, _leaves, _static in (
    (Constant, ["initial"], ["per"]),
    (Exponential, ["initial", "decay"], ["per"]),
    (InverseTime, ["initial", "decay"], ["per"]),
    (Custom, ["initial"], ["per", "function"]),
):
    register(_cls, _leaves, _static)

SCHEDULES: dict[str, type[Schedule]] = {
    "constant": Constant,
    "exponential": Exponential,
    "inverse-time": InverseTime,
}


def schedule(kind: str, **options: Any) -> Schedule:
    """A schedule by name, as experiment files write it.

    >>> schedule("exponential", initial=0.1, decay=0.99, per="step")
    Exponential(initial=0.1, per='step', decay=0.99)
    """
    if kind not in SCHEDULES:
        raise unknown("schedule", kind, SCHEDULES)
    cls = SCHEDULES[kind]
    fields = [f.name for f in dataclasses.fields(cls)]
    for name in options:
        if name not in fields:
            raise unknown(f"field of the {kind} schedule", name, fields)
    missing = [f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING and f.name not in options]
    if missing:
        raise FedaxError(f"the {kind} schedule needs {', '.join(missing)}")
    return cls(**options)
