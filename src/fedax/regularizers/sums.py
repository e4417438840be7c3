"""Sums of regularizers that act on different leaves."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from fedax.errors import FedaxError
from fedax.regularizers.base import On, Regularizer, named
from fedax.vectors import Vector


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
