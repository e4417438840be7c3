"""What a regularizer psi is: a value, an exact prox and a subgradient, on chosen leaves of the parameters.

    prox(x, t) = argmin over z of  psi(z) + ||z - x||^2 / (2t)

A regularizer acts on the leaves that `on` selects: None for all but intercepts (leaves called "bias" or "b"),
"all", a pattern that the leaf's path must contain or match ("kernel", "*Dense_0*"), or a function of the path.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fedax.errors import FedaxError
from fedax.vectors import Vector

On = str | Callable[[str], bool] | None
INTERCEPTS = ("bias", "b")


@dataclasses.dataclass(frozen=True)
class Regularizer:
    """Base class: a subclass gives `leaf_value`, `leaf_prox` and `leaf_subgradient` for one array."""

    strength: float
    on: On = dataclasses.field(default=None, kw_only=True)

    smooth: ClassVar[bool] = False  #: its subgradient is a gradient

    def __post_init__(self) -> None:
        if not self.strength >= 0 or self.strength == float("inf"):
            raise FedaxError(f"{type(self).__name__}: strength must be in [0, inf), not {self.strength}")

    def leaf_value(self, a: jax.Array) -> jax.Array:
        raise NotImplementedError

    def leaf_prox(self, a: jax.Array, t: Any) -> jax.Array:
        raise NotImplementedError

    def leaf_subgradient(self, a: jax.Array) -> jax.Array:
        raise NotImplementedError

    def selects(self, path: str) -> bool:
        """Whether the leaf at a path such as "params.Dense_0.kernel" is regularised."""
        if self.on is None:
            return path.rsplit(".", 1)[-1] not in INTERCEPTS
        if callable(self.on):
            return self.on(path)
        return self.on == "all" or self.on in path or fnmatch.fnmatch(path, self.on)

    def check(self, params: Any) -> None:
        """Refuse parameters of which no leaf is selected."""
        paths = [_name(path) for path, _ in jax.tree_util.tree_flatten_with_path(params)[0]]
        if not any(self.selects(path) for path in paths):
            raise FedaxError(f"{type(self).__name__}: on={self.on!r} selects none of the leaves {', '.join(paths)}")

    def value(self, x: Vector) -> jax.Array:
        """psi(x)."""
        leaves = jax.tree_util.tree_flatten_with_path(x.tree)[0]
        values = [self.leaf_value(a) for path, a in leaves if self.selects(_name(path))]
        return sum(values[1:], values[0])

    def prox(self, x: Vector, t: Any) -> Vector:
        """argmin over z of psi(z) + ||z - x||^2 / (2t)."""
        return self._map(lambda a: self.leaf_prox(a, jnp.asarray(t, a.dtype)), lambda a: a, x)

    def subgradient(self, x: Vector) -> Vector:
        """An element of the subdifferential of psi at x."""
        return self._map(self.leaf_subgradient, jnp.zeros_like, x)

    def _map(self, chosen: Callable[[Any], Any], other: Callable[[Any], Any], x: Vector) -> Vector:
        def leaf(path: Any, a: Any) -> Any:
            return chosen(a) if self.selects(_name(path)) else other(a)

        return Vector(jax.tree_util.tree_map_with_path(leaf, x.tree))


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
