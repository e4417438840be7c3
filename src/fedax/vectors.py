"""Arithmetic on parameter trees, so that a method's code reads as its paper's vectors in R^d.

`Vector` wraps any tree of arrays. `x - lr * g`, `x @ y` and `x / 2` act on all leaves, a scalar takes the
dtype of the leaf it meets, and nothing is flattened: XLA keeps each leaf's own layout.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from fedax import counting, model_state

Scalar = Any  # a Python number or a 0-d array
T = TypeVar("T")


@jax.tree_util.register_pytree_node_class
class Vector:
    """A tree of arrays that adds, subtracts, scales and takes inner products.

    >>> x = Vector({"w": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)})
    >>> (x - 0.5 * x).tree["w"].tolist()
    [0.5, 1.0]
    >>> float(x @ x)
    14.0
    """

    __slots__ = ("tree",)
    __array_priority__ = 1000  # numpy scalars on the left defer to __rmul__

    def __init__(self, tree: Any) -> None:
        self.tree = tree

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        return (self.tree,), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Any]) -> Vector:
        return cls(children[0])

    def __repr__(self) -> str:
        return f"Vector({self.tree!r})"

    def __add__(self, other: Vector) -> Vector:
        return _leafwise(operator.add, self, other)

    def __sub__(self, other: Vector) -> Vector:
        return _leafwise(operator.sub, self, other)

    def __mul__(self, scalar: Scalar) -> Vector:
        return Vector(jax.tree.map(lambda a: a * jnp.asarray(scalar, a.dtype), self.tree))

    __rmul__ = __mul__

    def __truediv__(self, scalar: Scalar) -> Vector:
        return Vector(jax.tree.map(lambda a: a / jnp.asarray(scalar, a.dtype), self.tree))

    def __neg__(self) -> Vector:
        return Vector(jax.tree.map(operator.neg, self.tree))

    def __matmul__(self, other: Vector) -> jax.Array:
        products = jax.tree.map(lambda a, b: jnp.sum(a * b), self.tree, other.tree)
        total: jax.Array = jax.tree.reduce(operator.add, products)
        return total


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Mixture:
    """Two models as one, by their outputs: weight * outputs(own) + (1 - weight) * outputs(shared).

    Parameters for a `Problem` with a model. As the tree of a `Vector` it has a gradient with respect to both models and
    the weight at once.

    >>> Mixture({"w": 1.0}, {"w": 2.0}, 0.25)
    Mixture(own={'w': 1.0}, shared={'w': 2.0}, weight=0.25)
    """

    own: Any
    shared: Any
    weight: Scalar


def _leafwise(op: Callable[[Any, Any], Any], x: Vector, y: Vector) -> Vector:
    if not isinstance(y, Vector):
        raise TypeError(f"a Vector adds to a Vector, not to {type(y).__name__}")
    return Vector(jax.tree.map(op, x.tree, y.tree))


def zeros(x: T) -> T:
    """The zero vector of the same shape (of any tree of vectors)."""
    zero: T = jax.tree.map(jnp.zeros_like, x)
    return zero


def size(x: Any) -> int:
    """The number of floats in a tree.

    >>> size(Vector([jnp.ones((2, 3)), jnp.ones(4)]))
    10
    """
    return sum(int(leaf.size) for leaf in jax.tree.leaves(x))


def norm(x: Vector) -> jax.Array:
    """The Euclidean norm over all leaves.

    >>> float(norm(Vector([jnp.array([3.0]), jnp.array([4.0])])))
    5.0
    """
    return jnp.sqrt(x @ x)


def scalar(value: Scalar, like: Vector) -> jax.Array:
    """A number as a 0-d array in the dtype of a vector's leaves: how a method stores a scalar state."""
    return jnp.asarray(value, jnp.result_type(*jax.tree.leaves(like)))


def clip(value: Scalar, low: Scalar, high: Scalar) -> jax.Array:
    """A number held within [low, high]."""
    return jnp.clip(value, low, high)


def sqrt(value: Scalar) -> jax.Array:
    """The square root of a number."""
    return jnp.sqrt(value)


def maximum(a: Scalar, b: Scalar) -> jax.Array:
    """The larger of two numbers."""
    return jnp.maximum(a, b)


def where(condition: Scalar, x: T, y: T) -> T:
    """x where a scalar condition holds, else y, over whole trees.

    >>> where(True, Vector(jnp.array(1.0)), Vector(jnp.array(2.0)))
    Vector(Array(1., dtype=float32, weak_type=True))
    """
    chosen: T = jax.tree.map(lambda a, b: jnp.where(condition, a, b), x, y)
    return chosen


def each(function: Callable[..., Any], *vectors: Vector) -> Vector:
    """A function of numbers, entry by entry over vectors of the same shape.

    >>> each(lambda a, b: a * b**2, Vector(jnp.array([1.0, 2.0])), Vector(jnp.array([3.0, 4.0]))).tree
    Array([ 9., 32.], dtype=float32)
    """
    return Vector(jax.tree.map(function, *(v.tree for v in vectors)))


def sign(value: Scalar) -> jax.Array:
    """-1, 0 or 1."""
    return jnp.sign(value)


def uniform(key: jax.Array) -> jax.Array:
    """A number in [0, 1) drawn with a key, `ctx.key` for one.

    >>> import jax
    >>> 0 <= float(uniform(jax.random.key(0))) < 1
    True
    """
    return jax.random.uniform(key)


def normal(key: jax.Array, like: Vector) -> Vector:
    """A vector of independent standard normal numbers, shaped as another.

    >>> import jax
    >>> normal(jax.random.key(0), Vector({"w": jnp.zeros((2, 3))})).tree["w"].shape
    (2, 3)
    """
    leaves, tree = jax.tree.flatten(like)
    keys = jax.random.split(key, len(leaves))
    drawn = [jax.random.normal(k, a.shape, a.dtype) for k, a in zip(keys, leaves, strict=True)]
    made: Vector = jax.tree.unflatten(tree, drawn)
    return made


def ball(x: Vector, radius: Scalar) -> Vector:
    """The projection onto the Euclidean ball of a radius around 0.

    >>> ball(Vector(jnp.array([3.0, 4.0])), 1.0).tree.tolist()
    [0.6000000238418579, 0.800000011920929]
    """
    length = norm(x)
    return x * jnp.where(length > radius, radius / jnp.where(length > 0, length, 1), 1)


def repeat(count: Any, step: Callable[[Any, Any], Any], start: T) -> T:
    """carry <- step(n, carry) for n = 0 .. count - 1, inside the compiled program.

    >>> float(repeat(3, lambda n, total: total + n, jnp.float32(10)))
    13.0
    """
    if counting.active() is not None:
        with counting.times(count):
            counted: T = step(0, start)
        return counted
    now = model_state.active()
    if now is None:
        result: T = jax.lax.fori_loop(0, count, step, start)
        return result

    def with_state(n: Any, carry: Any) -> Any:
        own, now.carry = carry
        return step(n, own), now.carry

    result, now.carry = jax.lax.fori_loop(0, count, with_state, (start, now.carry))
    return result
