"""What a regularizer psi is: a value, an exact prox and a subgradient, on chosen leaves of the parameters.

    prox(x, t) = argmin over z of  psi(z) + ||z - x||^2 / (2t)

A regularizer acts on the leaves that `on` selects: None for all but intercepts (leaves called "bias" or "b"),
"all", a pattern that the leaf's path must contain or match ("kernel", "*Dense_0*"), or a function of the path.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import numbers
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fedax.errors import FedaxError
from fedax.options import check_float32
from fedax.vectors import Vector

On = str | Callable[[str], bool] | None
Leaves = Sequence[jax.Array]
INTERCEPTS = ("bias", "b")


@dataclasses.dataclass(frozen=True)
class Regularizer:
    """Base class: a subclass gives `leaf_value`, `leaf_prox` and `leaf_subgradient` for one array.

    A regularizer that is not a sum over leaves gives `joint_value`, `joint_prox` and `joint_subgradient`
    instead, which see all selected leaves at once. All are pure functions of arrays. A regularizer is itself
    fixed: another strength is another regularizer, and a new compilation.
    """

    on: On = dataclasses.field(default=None, kw_only=True)

    smooth: ClassVar[bool] = False  #: its subgradient is a gradient
    constraint: ClassVar[bool] = False  #: it is 0 on a set and infinite outside; its prox projects

    def __post_init__(self) -> None:
        if not (self.on is None or isinstance(self.on, str) or callable(self.on)):
            raise FedaxError(f"{self.name}: on must be a path pattern, a function of a path or None, not {self.on!r}")

    def leaf_value(self, a: jax.Array) -> jax.Array:
        raise NotImplementedError

    def leaf_prox(self, a: jax.Array, t: Any) -> jax.Array:
        raise NotImplementedError

    def leaf_subgradient(self, a: jax.Array) -> jax.Array:
        raise NotImplementedError

    def joint_value(self, leaves: Leaves) -> jax.Array:
        values = [self.leaf_value(a) for a in leaves]
        return sum(values[1:], values[0])

    def joint_prox(self, leaves: Leaves, t: Any) -> Leaves:
        return [self.leaf_prox(a, jnp.asarray(t, a.dtype)) for a in leaves]

    def joint_subgradient(self, leaves: Leaves) -> Leaves:
        return [self.leaf_subgradient(a) for a in leaves]

    def check_leaf(self, path: str, a: Any) -> None:
        """Refuse a selected leaf that this regularizer cannot act on; `a` has at least a shape."""

    @property
    def name(self) -> str:
        """The class's name, as error messages and experiment files write it."""
        return type(self).__name__

    def selects(self, path: str) -> bool:
        """Whether the leaf at a path such as "params.Dense_0.kernel" is regularised."""
        return chosen(self.on, path)

    def check(self, params: Any) -> None:
        """Refuse parameters of which no leaf is selected, or a selected leaf of the wrong shape."""
        for path, a in named(params, self):
            if self.selects(path):
                self.check_leaf(path, a)

    def value(self, x: Vector) -> jax.Array:
        """psi(x)."""
        return self.joint_value([a for path, a in named(x.tree, self) if self.selects(path)])

    def prox(self, x: Vector, t: Any) -> Vector:
        """argmin over z of psi(z) + ||z - x||^2 / (2t)."""
        return mapped(self, lambda leaves: self.joint_prox(leaves, t), lambda a: a, x)

    def subgradient(self, x: Vector) -> Vector:
        """An element of the subdifferential of psi at x."""
        return mapped(self, self.joint_subgradient, jnp.zeros_like, x)

    def violation(self, x: Vector) -> jax.Array:
        """The Euclidean distance from x to the constraint's set; 0 for a regularizer that is not a constraint."""
        return jnp.zeros((), jnp.result_type(*jax.tree.leaves(x)))

    def feasible(self, params: Any) -> bool:
        """Whether parameters (a Vector or a tree) lie in the constraint's set, up to rounding."""
        return True

    def __add__(self, other: Regularizer) -> Sum:
        return Sum((self, other)) if isinstance(other, Regularizer) else NotImplemented


@dataclasses.dataclass(frozen=True)
class Sum(Regularizer):
    """psi(x) = psi_1(x) + psi_2(x) + ..., each on leaves of its own; written `psi_1 + psi_2`.

    On different leaves the prox of the sum is the prox of each; leaves that two parts select are refused,
    since the prox of a sum on the same leaf has no closed form in general.

    >>> from fedax.regularizers import L1, L2Ball
    >>> psi = L1(1.0, on="head") + L2Ball(1.0, on="body")
    >>> psi.prox(Vector({"head": jnp.array([3.0]), "body": jnp.array([3.0])}), 1.0).tree
    {'body': Array([1.], dtype=float32), 'head': Array([2.], dtype=float32)}
    """

    parts: tuple[Regularizer, ...]
    on: On = dataclasses.field(default="all", init=False, repr=False)

    def __post_init__(self) -> None:
        flat = [p for part in self.parts for p in (part.parts if isinstance(part, Sum) else (part,))]
        object.__setattr__(self, "parts", tuple(flat))

    @property
    def name(self) -> str:
        return " + ".join(part.name for part in self.parts)

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        return all(part.smooth for part in self.parts)

    @property
    def constraint(self) -> bool:  # type: ignore[override]
        return any(part.constraint for part in self.parts)

    def selects(self, path: str) -> bool:
        return any(part.selects(path) for part in self.parts)

    def check(self, params: Any) -> None:
        for part in self.parts:
            part.check(params)
        for path, _ in named(params, self):
            both = [part.name for part in self.parts if part.selects(path)]
            if len(both) > 1:
                raise FedaxError(
                    f"{both[0]} and {both[1]} both act on leaf {path!r}: give each part of a sum other leaves with on="
                )

    def value(self, x: Vector) -> jax.Array:
        values = [part.value(x) for part in self.parts]
        return sum(values[1:], values[0])

    def prox(self, x: Vector, t: Any) -> Vector:
        for part in self.parts:
            x = part.prox(x, t)
        return x

    def subgradient(self, x: Vector) -> Vector:
        parts = [part.subgradient(x) for part in self.parts]
        return sum(parts[1:], parts[0])

    def violation(self, x: Vector) -> jax.Array:
        return jnp.sqrt(sum((part.violation(x) ** 2 for part in self.parts[1:]), self.parts[0].violation(x) ** 2))

    def feasible(self, params: Any) -> bool:
        return all(part.feasible(params) for part in self.parts)


@dataclasses.dataclass(frozen=True)
class Penalty(Regularizer):
    """Base class of the regularizers with one strength, in [0, inf)."""

    strength: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "strength", "[0, inf)", lambda v: 0 <= v < float("inf"))


def require(owner: Any, field: str, interval: str, inside: Callable[[float], bool]) -> None:
    """Refuse a field that is not a number, or not inside an interval."""
    value, name = getattr(owner, field), type(owner).__name__
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise FedaxError(f"{name}: {field} must be a number in {interval}, not {value!r}")
    if not inside(float(value)):
        raise FedaxError(f"{name}: {field} must be in {interval}, not {value}")
    if abs(float(value)) > 1:  # one near 0 may be 0
        check_float32(f"{name}: {field}", float(value))


def epsilon(dtype: Any) -> float:
    """The unit of rounding: the gap between 1 and the next number.

    >>> epsilon(jnp.float64)
    2.220446049250313e-16
    """
    return float(jnp.finfo(dtype).eps)  # type: ignore[no-untyped-call]


def chosen(on: On, path: str) -> bool:
    """Whether `on` selects the leaf at a path.

    >>> chosen(None, "params.Dense_0.bias"), chosen("kernel", "params.Dense_0.kernel"), chosen("*.b*", "params.bias")
    (False, True, True)
    """
    if on is None:
        return path.rsplit(".", 1)[-1] not in INTERCEPTS
    if callable(on):
        return on(path)
    return on == "all" or on in path or fnmatch.fnmatch(path, on)


def named(params: Any, owner: Any) -> list[tuple[str, Any]]:
    """Path and array of every leaf, at least one of which the owner must select."""
    leaves = [
        (jax.tree_util.keystr(path, simple=True, separator="."), a)
        for path, a in jax.tree_util.tree_flatten_with_path(params)[0]
    ]
    if not any(owner.selects(path) for path, _ in leaves):
        paths = ", ".join(path or "(one array without a name)" for path, _ in leaves)
        raise FedaxError(f"{type(owner).__name__}: on={owner.on!r} selects none of the leaves {paths}")
    return leaves


def mapped(owner: Any, act: Callable[[Leaves], Leaves], other: Callable[[Any], Any], x: Vector) -> Vector:
    """A vector whose leaves that the owner selects went jointly through `act`, the rest each through `other`."""
    leaves = named(x.tree, owner)
    acted = iter(act([a for path, a in leaves if owner.selects(path)]))
    new = [next(acted) if owner.selects(path) else other(a) for path, a in leaves]
    return Vector(jax.tree.unflatten(jax.tree.structure(x.tree), new))
