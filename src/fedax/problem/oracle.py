"""The oracle: a client's part of a problem, as a method sees it, through a minibatch or through all of its rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from fedax import counting
from fedax.errors import FedaxError
from fedax.problem.gradients import Transformation, transformed
from fedax.regularizers.base import Regularizer
from fedax.vectors import Vector, zeros

Batch = Mapping[str, Any]
BLOCK = 1024  # rows a full local gradient takes at a time


class Objective(Protocol):
    """What an oracle asks of a problem."""

    @property
    def regularizer(self) -> Regularizer | None:
        """psi, where there is one."""

    @property
    def gradients(self) -> tuple[Transformation, ...]:
        """What the gradient goes through before a method sees it."""

    def loss(self, params: Any, batch: Batch, weights: jax.Array | None = None) -> jax.Array:
        """The (weighted) mean loss over a batch's rows, without the regularizer."""

    def mixed(self, own: Any, shared: Any, weight: Any) -> Any:
        """Parameters weight * own + (1 - weight) * shared."""


class BatchOracle:
    """One client's problem, seen through one minibatch.

    `grad(x)`, `value(x)` and `hvp(x, v)` (Hessian at x times v) all see the same rows. `fresh(n)` is an oracle
    on the step's n-th further, independent minibatch; `full` is the oracle on all of the client's rows.
    On a problem with a regularizer, smooth methods see a subgradient of psi added to `grad`; composite ones
    see the smooth part alone.
    """

    def __init__(
        self,
        problem: Objective,
        batch: Batch,
        *,
        smooth: bool = False,
        weights: jax.Array | None = None,
        full: Callable[[], BatchOracle] | None = None,
        fresh: Callable[[int], BatchOracle] | None = None,
    ) -> None:
        self._problem, self._batch, self._weights = problem, batch, weights
        self._psi = None if smooth else problem.regularizer
        self._full, self._fresh, self._raw = full, fresh, False

    def _loss(self, x: Vector) -> jax.Array:
        return self._problem.loss(x.tree, self._batch, self._weights)

    def _given(self, g: Vector, x: Vector) -> Vector:
        """A gradient of the loss as the method is given it: with psi's subgradient, then transformed."""
        g = g if self._psi is None else g + self._psi.subgradient(x)
        return g if self._raw else transformed(self._problem.gradients, g, x)

    @property
    def raw(self) -> BatchOracle:
        """The same oracle with the gradient before the problem's gradient transformations."""
        other = copy.copy(self)
        other._raw = True
        return other

    def value(self, x: Vector) -> jax.Array:
        return self._loss(x) if self._psi is None else self._loss(x) + self._psi.value(x)

    def grad(self, x: Vector) -> Vector:
        counting.took(1, full=False)
        return self._given(jax.grad(self._loss)(x), x)

    def mixed(self, own: Vector, shared: Vector, weight: Any) -> tuple[Vector, jax.Array]:
        """The derivatives of the loss at x = weight * own + (1 - weight) * shared with respect to own and weight."""
        if self._psi is not None or self._problem.gradients:
            return _through_mixture(self.grad, own, shared, weight)
        counting.took(1, full=False)

        def loss(own: Vector, weight: Any) -> jax.Array:
            return self._loss(Vector(self._problem.mixed(own.tree, shared.tree, weight)))

        along: tuple[Vector, jax.Array] = jax.grad(loss, argnums=(0, 1))(own, weight)
        return along

    def hvp(self, x: Vector, v: Vector) -> Vector:
        counting.took(2, full=False)
        product: Vector = jax.jvp(jax.grad(self._loss), (x,), (v,))[1]
        return product

    @property
    def regularizer(self) -> Any:
        """psi, or None."""
        return self._problem.regularizer

    def prox(self, x: Vector, t: Any) -> Vector:
        psi = self.regularizer
        return x if psi is None else psi.prox(x, t)

    def fresh(self, n: int = 1) -> BatchOracle:
        if self._fresh is None:
            raise FedaxError("this oracle has no further minibatches")
        return self._fresh(n)

    @property
    def full(self) -> BatchOracle:
        return self if self._full is None else self._full()


def _through_mixture(
    grad: Callable[[Vector], Vector], own: Vector, shared: Vector, weight: Any
) -> tuple[Vector, jax.Array]:
    """weight * g and <own - shared, g>, g the gradient at the mixture."""
    g = grad(weight * own + (1 - weight) * shared)
    return weight * g, (own - shared) @ g


Oracle = BatchOracle  #: the name that users have


class FullOracle(BatchOracle):
    """The oracle on all of a client's rows, a block at a time, so that memory does not grow with the client.

    fetch gives the batch at row numbers 0 .. count-1 of the client; limit is the largest count of any client,
    `equal` that all clients have that many. Without `fresh`, a further minibatch is all rows again.
    """

    def __init__(
        self,
        problem: Objective,
        fetch: Callable[[jax.Array], Batch],
        count: Any,
        limit: int,
        *,
        equal: bool,
        smooth: bool = False,
        fresh: Callable[[int], BatchOracle] | None = None,
    ) -> None:
        super().__init__(problem, {}, smooth=smooth, fresh=fresh or (lambda n: self))
        self._fetch, self._count = fetch, count
        self._block = min(limit, BLOCK)
        self._exact = equal and limit <= BLOCK

    def _mean(self, part: Callable[[Batch, jax.Array | None], Any], like: Any) -> Any:
        """The mean over all rows of a quantity that `part` gives as a mean over weighted rows."""
        offsets = jnp.arange(self._block)
        if self._exact:
            return part(self._fetch(offsets), None)

        def block(b: Any, total: Any) -> Any:
            index = b * self._block + offsets
            inside = index < self._count
            batch = self._fetch(jnp.where(inside, index, 0))
            here = part(batch, inside.astype(jnp.result_type(*jax.tree.leaves(like))))
            share = jnp.sum(inside) / self._count
            return jax.tree.map(lambda t, h: t + share.astype(h.dtype) * h, total, here)

        blocks = (self._count + self._block - 1) // self._block
        return jax.lax.fori_loop(0, blocks, block, zeros(like))

    def value(self, x: Vector) -> jax.Array:
        like = jnp.zeros((), jnp.result_type(*jax.tree.leaves(x)))
        mean: jax.Array = self._mean(lambda b, w: self._problem.loss(x.tree, b, w), like)
        return mean if self._psi is None else mean + self._psi.value(x)

    def grad(self, x: Vector) -> Vector:
        counting.took(1, full=True)
        mean = self._mean(lambda b, w: jax.grad(lambda z: self._problem.loss(z.tree, b, w))(x), x)
        return self._given(mean, x)

    def mixed(self, own: Vector, shared: Vector, weight: Any) -> tuple[Vector, jax.Array]:
        return _through_mixture(self.grad, own, shared, weight)

    def hvp(self, x: Vector, v: Vector) -> Vector:
        counting.took(2, full=True)

        def part(b: Batch, w: jax.Array | None) -> Any:
            return jax.jvp(jax.grad(lambda z: self._problem.loss(z.tree, b, w)), (x,), (v,))[1]

        product: Vector = self._mean(part, x)
        return product

    @property
    def full(self) -> BatchOracle:
        return self
