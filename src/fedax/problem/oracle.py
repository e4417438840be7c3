"""The oracle: a client's part of a problem, as a method sees it, through a minibatch or through all of its rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from fedax import counting, model_state, platforms
from fedax.errors import FedaxError
from fedax.problem.gradients import Transformation, transformed
from fedax.problem.row_privacy import Keys, RowPrivacy
from fedax.regularizers.base import Regularizer
from fedax.vectors import Vector, zeros

Batch = Mapping[str, Any]


class Objective(Protocol):
    """The methods of a problem that an oracle uses."""

    @property
    def regularizer(self) -> Regularizer | None:
        """psi, where there is one."""

    @property
    def gradients(self) -> tuple[Transformation, ...]:
        """What the gradient goes through before a method sees it."""

    @property
    def row_privacy(self) -> RowPrivacy | None:
        """Clipping of single rows' gradients, and noise."""

    def loss(self, params: Any, batch: Batch, weights: jax.Array | None = None) -> jax.Array:
        """The (weighted) mean loss over a batch's rows, without the regularizer."""

    def training_loss(
        self, model: Any, batch: Batch, weights: jax.Array | None = None, key: jax.Array | None = None
    ) -> tuple[jax.Array, Any]:
        """The loss in training, where the model draws with a key, and the model's state after it."""

    def mixed(self, own: Any, shared: Any, weight: Any) -> Any:
        """Parameters weight * own + (1 - weight) * shared."""


class BatchOracle:
    """One client's problem, seen through one minibatch.

    `grad(x)`, `value(x)` and `hvp(x, v)` (Hessian at x times v) all see the same rows. `fresh(n)` is an oracle
    on the step's n-th further, independent minibatch; `full` is the oracle on all of the client's rows.
    On a problem with a regularizer, smooth methods see a subgradient of psi added to `grad`; composite ones
    see the smooth part alone.

    With `noise`, on a problem that asks for it, `grad` clips each row's gradient and adds noise, and every other use of
    rows is refused.

    With `train`, a model that draws or keeps state trains: each call has a key of its own, reads the state in use
    (`fedax.model_state`) and leaves the new one. Otherwise the model is in evaluation, with the state in use.
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
        train: bool = False,
        key: jax.Array | None = None,
        noise: Keys | None = None,
    ) -> None:
        self._problem, self._batch, self._weights, self._train = problem, batch, weights, train
        self._noise = noise  #: of what a client sends; without it gradients are exact
        self.key = key  #: of what a model draws outside local steps, where a client has personal models or joins
        self._psi = None if smooth else problem.regularizer
        self._full, self._fresh, self._raw = full, fresh, False

    def _call(self, differentiated: Callable[[Callable[[Any], tuple[jax.Array, Any]]], tuple[Any, Any]]) -> Any:
        """One call: apply a transformation such as `grad` to (parameters -> loss, new state); the state is kept."""
        now = model_state.active()
        if now is None or not self._train:
            key, state = None, () if now is None else now.state
        else:
            key, state = now.next_key(), now.state

        def loss(params: Any) -> tuple[jax.Array, Any]:
            model = model_state.joined(params, state)
            if self._train:
                return self._problem.training_loss(model, self._batch, self._weights, key)
            return self._problem.loss(model, self._batch, self._weights), state

        found, new = differentiated(loss)
        if now is not None and self._train:
            now.leave(new)
        return found

    def _given(self, g: Vector, x: Vector) -> Vector:
        """A gradient of the loss as the method gets it: with psi's subgradient, then transformed."""
        g = g if self._psi is None else g + self._psi.subgradient(x)
        return g if self._raw else transformed(self._problem.gradients, g, x)

    @property
    def _private(self) -> RowPrivacy | None:
        return None if self._noise is None else self._problem.row_privacy

    def _uncovered(self, what: str) -> None:
        """Raise if a method uses rows in any way but by a gradient that is clipped row by row."""
        if self._private is not None:
            raise FedaxError(
                f"gradients: dp covers the gradients of a step's own minibatch or of all rows, and this method takes "
                f"{what}: take another method"
            )

    def _with_noise(self, asked: RowPrivacy, mean: Vector, rows: Any) -> Vector:
        tally = counting.active()
        if tally is not None and tally.factor > 1:  # every turn of the loop would have the same noise
            self._uncovered("gradients in a loop of its own within a step")
        assert self._noise is not None
        return asked.noisy(mean, rows, self._noise.next())

    @property
    def raw(self) -> BatchOracle:
        """The same oracle with the gradient before the problem's gradient transformations."""
        other = copy.copy(self)
        other._raw = True
        return other

    def value(self, x: Vector) -> jax.Array:
        self._uncovered("the loss itself")
        loss: jax.Array = self._call(lambda loss: loss(x.tree))
        return loss if self._psi is None else loss + self._psi.value(x)

    def grad(self, x: Vector) -> Vector:
        counting.took(1, full=False)
        if (asked := self._private) is not None:
            mean = asked.clipped(lambda row: self._row_gradient(x, row), self._batch, self._weights, x)
            return self._given(self._with_noise(asked, mean, len(jax.tree.leaves(self._batch)[0])), x)
        g = self._call(lambda loss: jax.grad(lambda z: loss(z.tree), has_aux=True)(x))
        return self._given(g, x)

    def _row_gradient(self, x: Vector, row: Batch) -> Vector:
        gradient: Vector = jax.grad(lambda z: self._problem.loss(z.tree, row))(x)
        return gradient

    def mixed(self, own: Vector, shared: Vector, weight: Any) -> tuple[Vector, jax.Array]:
        """The derivatives of the loss at x = weight * own + (1 - weight) * shared with respect to own and weight."""
        if self._psi is not None or self._problem.gradients or self._private is not None:
            return _through_mixture(self.grad, own, shared, weight)
        counting.took(1, full=False)

        def slopes(loss: Any) -> Any:
            def at(own: Vector, weight: Any) -> Any:
                return loss(self._problem.mixed(own.tree, shared.tree, weight))

            return jax.grad(at, argnums=(0, 1), has_aux=True)(own, weight)

        along: tuple[Vector, jax.Array] = self._call(slopes)
        return along

    def hvp(self, x: Vector, v: Vector) -> Vector:
        self._uncovered("Hessian-vector products")
        counting.took(2, full=False)

        def along(loss: Any) -> Any:
            return jax.jvp(jax.grad(lambda z: loss(z.tree), has_aux=True), (x,), (v,), has_aux=True)[1:]

        product: Vector = self._call(along)
        return product

    @property
    def regularizer(self) -> Any:
        """psi, or None."""
        return self._problem.regularizer

    def prox(self, x: Vector, t: Any) -> Vector:
        psi = self.regularizer
        return x if psi is None else psi.prox(x, t)

    def fresh(self, n: int = 1) -> BatchOracle:
        self._uncovered("further minibatches")
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
    A model that draws or keeps state is in evaluation here: nothing is drawn, and the state in use stays as it is.
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
        key: jax.Array | None = None,
        noise: Keys | None = None,
    ) -> None:
        super().__init__(problem, {}, smooth=smooth, fresh=fresh or (lambda n: self), key=key, noise=noise)
        self._fetch, self._count = fetch, count
        most = platforms.current().gradient_rows
        self._block = min(limit, most)
        self._exact = equal and limit <= most

    def _mean(self, part: Callable[[Batch, jax.Array | None], Any], like: Any) -> Any:
        """The mean over all rows, block by block; `part` gives the mean over weighted rows of one block."""
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

    def _loss(self, x: Vector, batch: Batch, weights: jax.Array | None) -> jax.Array:
        now = model_state.active()
        return self._problem.loss(x.tree if now is None else model_state.joined(x.tree, now.state), batch, weights)

    def value(self, x: Vector) -> jax.Array:
        self._uncovered("the loss itself")
        like = jnp.zeros((), jnp.result_type(*jax.tree.leaves(x)))
        mean: jax.Array = self._mean(lambda b, w: self._loss(x, b, w), like)
        return mean if self._psi is None else mean + self._psi.value(x)

    def grad(self, x: Vector) -> Vector:
        counting.took(1, full=True)
        if (asked := self._private) is not None:
            clipped = self._mean(lambda b, w: asked.clipped(lambda row: self._row_gradient(x, row), b, w, x), x)
            return self._given(self._with_noise(asked, clipped, self._count), x)
        mean = self._mean(lambda b, w: jax.grad(lambda z: self._loss(z, b, w))(x), x)
        return self._given(mean, x)

    def mixed(self, own: Vector, shared: Vector, weight: Any) -> tuple[Vector, jax.Array]:
        return _through_mixture(self.grad, own, shared, weight)

    def hvp(self, x: Vector, v: Vector) -> Vector:
        self._uncovered("Hessian-vector products")
        counting.took(2, full=True)

        def part(b: Batch, w: jax.Array | None) -> Any:
            return jax.jvp(jax.grad(lambda z: self._loss(z, b, w)), (x,), (v,))[1]

        product: Vector = self._mean(part, x)
        return product

    @property
    def full(self) -> BatchOracle:
        return self
