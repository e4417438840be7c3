"""Constraints: psi is 0 on a set and infinite outside, and its prox is the projection, whatever t is.

Balls and the simplex constrain all selected leaves together, as one vector, unless each is to have a ball of its own. A
constraint has no subgradient that a step could follow, so methods without a proximal step cannot train under one.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

import fedax.lazy_optax as optax
from fedax.errors import FedaxError
from fedax.regularizers.base import Leaves, Regularizer, epsilon, require
from fedax.vectors import Vector

STEPS = 3  # of Newton's method after it has ceased to rise
ROUNDING = 64  # a point this many units of rounding of its own length away from the set still counts as in it


@dataclasses.dataclass(frozen=True)
class Constraint(Regularizer):
    """Base class: a subclass gives `leaf_project` for one array, or `joint_project` for all selected leaves."""

    constraint = True

    def leaf_project(self, a: jax.Array) -> jax.Array:
        raise NotImplementedError

    def joint_project(self, leaves: Leaves) -> Leaves:
        return [self.leaf_project(a) for a in leaves]

    def joint_prox(self, leaves: Leaves, t: Any) -> Leaves:
        return self.joint_project(leaves)

    def joint_value(self, leaves: Leaves) -> jax.Array:
        """0 in the set, up to rounding, and infinity outside."""
        gap = optax.tree.norm(optax.tree.sub(list(leaves), list(self.joint_project(leaves))))
        inside = gap <= ROUNDING * epsilon(gap.dtype) * optax.tree.norm(leaves)
        return jnp.where(inside, 0, jnp.inf).astype(gap.dtype)

    def subgradient(self, x: Vector) -> Vector:
        """Refused: no multiple of a normal vector brings a point outside the set back into it."""
        raise FedaxError(
            f"{self.name} is a constraint and has no subgradient to step along: "
            "use a method that takes proximal steps, such as FedDualAvg"
        )

    def violation(self, x: Vector) -> jax.Array:
        length: jax.Array = optax.tree.norm((x - self.prox(x, 1)).tree)
        return length

    def feasible(self, params: Any) -> bool:
        return bool(self.value(params if isinstance(params, Vector) else Vector(params)) == 0)


@dataclasses.dataclass(frozen=True)
class NonNegative(Constraint):
    """x_j >= 0 for all j.

    >>> NonNegative().prox(Vector(jnp.array([3.0, -0.5])), 1.0).tree.tolist()
    [3.0, 0.0]
    """

    def leaf_project(self, a: jax.Array) -> jax.Array:
        projected: jax.Array = optax.projections.projection_non_negative(a)
        return projected


@dataclasses.dataclass(frozen=True)
class Box(Constraint):
    """low <= x_j <= high for all j; either may be infinite.

    >>> Box(-1.0, 2.0).prox(Vector(jnp.array([3.0, -0.5])), 1.0).tree.tolist()
    [2.0, -0.5]
    >>> Box(1.0, 0.0)
    Traceback (most recent call last):
    fedax.errors.FedaxError: Box: low must not exceed high, but 1.0 > 0.0
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "low", "[-inf, inf)", lambda v: v < float("inf"))
        require(self, "high", "(-inf, inf]", lambda v: v > -float("inf"))
        if self.low > self.high:
            raise FedaxError(f"Box: low must not exceed high, but {self.low} > {self.high}")

    def leaf_project(self, a: jax.Array) -> jax.Array:
        projected: jax.Array = optax.projections.projection_box(a, self.low, self.high)
        return projected


@dataclasses.dataclass(frozen=True)
class Simplex(Constraint):
    """x_j >= 0 and sum x_j = scale, over all selected leaves together.

    >>> Simplex().prox(Vector(jnp.array([1.0, 0.5, -2.0])), 1.0).tree.tolist()
    [0.75, 0.25, 0.0]
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "scale", "(0, inf)", lambda v: 0 < v < float("inf"))

    def joint_project(self, leaves: Leaves) -> Leaves:
        return to_simplex(leaves, self.scale)


@dataclasses.dataclass(frozen=True)
class Ball(Constraint):
    """Base class of the balls {x : ||x|| <= radius} around 0."""

    radius: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "radius", "(0, inf)", lambda v: 0 < v < float("inf"))


@dataclasses.dataclass(frozen=True)
class JointBall(Ball):
    """Base class of the balls that all selected leaves are in as one vector or, with `each`, every leaf by itself."""

    each: bool = dataclasses.field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.each, bool):
            raise FedaxError(f"{self.name}: each must be true or false, not {self.each!r}")

    def project(self, leaves: Leaves) -> Leaves:
        """Of one vector's leaves."""
        raise NotImplementedError

    def joint_project(self, leaves: Leaves) -> Leaves:
        vectors = [[a] for a in leaves] if self.each else [leaves]
        return [a for vector in vectors for a in self.project(vector)]


@dataclasses.dataclass(frozen=True)
class L1Ball(JointBall):
    """sum |x_j| <= radius, over all selected leaves together, or over each.

    >>> L1Ball(1.0).prox(Vector(jnp.array([1.0, -0.5, 0.125])), 1.0).tree.tolist()
    [0.75, -0.25, 0.0]
    >>> L1Ball(1.0, each=True).prox(Vector([jnp.array([3.0]), jnp.array([-0.5])]), 1.0).tree
    [Array([1.], dtype=float32), Array([-0.5], dtype=float32)]
    """

    def project(self, leaves: Leaves) -> Leaves:
        inside = optax.tree.norm(leaves, ord=1) <= self.radius
        sizes = to_simplex([jnp.abs(a) for a in leaves], self.radius, needed=~inside)
        return [jnp.where(inside, a, jnp.sign(a) * size) for a, size in zip(leaves, sizes, strict=True)]


@dataclasses.dataclass(frozen=True)
class L2Ball(JointBall):
    """||x|| <= radius, the Euclidean norm of all selected leaves together, or of each.

    >>> L2Ball(2.5).prox(Vector([jnp.array([3.0]), jnp.array([4.0])]), 1.0).tree
    [Array([1.5], dtype=float32), Array([2.], dtype=float32)]
    """

    def project(self, leaves: Leaves) -> Leaves:
        projected: Leaves = optax.projections.projection_l2_ball(list(leaves), self.radius)
        return projected


@dataclasses.dataclass(frozen=True)
class LInfBall(Ball):
    """max |x_j| <= radius.

    >>> LInfBall(1.0).prox(Vector(jnp.array([3.0, -0.5])), 1.0).tree.tolist()
    [1.0, -0.5]
    """

    def leaf_project(self, a: jax.Array) -> jax.Array:
        projected: jax.Array = optax.projections.projection_linf_ball(a, self.radius)
        return projected


def to_simplex(leaves: Leaves, scale: float, needed: Any = True) -> Leaves:
    """The projection onto {p >= 0, sum p = scale}, over all leaves together: p = max(a - t, 0).

    t solves  sum max(a - t, 0) = scale,  convex and piecewise linear in t. Newton's method from below,

        t <- t + (sum max(a - t, 0) - scale) / (the number of entries above t)

    leaves out more entries each time until none is left to leave out, and then is exact (Michelot 1986): a few passes
    where sorting would take as many as the logarithm of their number, and none where it is not `needed`. The last steps
    are for digits that the first ones lost, when t was far away.

    The projection does not change when a constant is added to all entries; with their maximum taken off, entries that
    are large against the scale lose no digits, and t lies between -scale and 0.
    """
    top = optax.tree.max(list(leaves))
    below = [jnp.ravel(a - top) for a in leaves]  # sums of long rows are quicker than of a matrix with few columns
    t = _threshold(below, jnp.asarray(scale, top.dtype), needed)
    return [jnp.maximum(a - top - t, 0) for a in leaves]


@jax.jit  # a loop that is not in a compiled program is compiled each time that it is met
def _threshold(below: Leaves, scale: jax.Array, needed: Any) -> jax.Array:
    """t, from entries of which the largest is 0; -scale where it is not needed."""

    def better(t: jax.Array) -> jax.Array:
        above = [jnp.maximum(a - t, 0) for a in below]
        count = sum(jnp.sum(jnp.sign(a)) for a in above)  # as floats: twice as fast as to count where a > t
        return t + (sum(jnp.sum(a) for a in above) - scale) / count

    def improve(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        t, left = state
        new = better(t)
        more = jnp.where((left == STEPS) & (new > t), STEPS, left - 1)
        return new, jnp.where(new == t, 0, more)  # where t rests, no step would move it

    found: jax.Array = jax.lax.while_loop(lambda state: state[1] > 0, improve, (-scale, jnp.where(needed, STEPS, 0)))[0]
    return found
