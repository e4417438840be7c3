"""One client's round: what it draws, what its oracle shows, and the loop over local steps.

Every executor runs this same function, batched over clients, looped over them, or one at a time in Python.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedax import randomness
from fedax.algorithms.base import Algorithm, Context
from fedax.algorithms.with_model_state import bare
from fedax.client.device_data import Data, NotDrawn
from fedax.client.draws import minibatch_rows
from fedax.client.plan import Plan
from fedax.data.nested import nested
from fedax.errors import FedaxError
from fedax.own_code import defined
from fedax.problem import Problem
from fedax.problem.oracle import Batch, BatchOracle, FullOracle
from fedax.problem.row_privacy import Keys


@dataclasses.dataclass(frozen=True)
class Client:
    """One client in one round."""

    problem: Problem
    plan: Plan
    data: Data
    number: Any
    seed: Any
    round: Any
    smooth: bool
    rows: Any = None  #: of its minibatches, where they are drawn beforehand

    @property
    def count(self) -> Any:
        return self.plan.max_rows if self.plan.equal_rows else self.data.count[self.number]

    @property
    def steps(self) -> Any:
        return self.plan.max_steps if self.plan.equal_steps else self.data.steps[self.number]

    @functools.cached_property
    def _fetch(self) -> Callable[[jax.Array], Batch]:
        """The client's rows; read before any loop over steps, so that generated rows are generated only once."""
        return self.data.fetch(self.number, self.plan.max_rows)

    def full(self, noise: Keys | None = None) -> BatchOracle:
        """The oracle on all training rows; its n-th fresh one sees a minibatch of the plan's size."""
        if self.data.drawn:
            raise NotDrawn
        plan = self.plan

        def fresh(n: Any) -> BatchOracle:
            return self._draw(fresh, plan.max_steps, n)

        return FullOracle(
            self.problem,
            self._fetch,
            self.count,
            plan.max_rows,
            equal=plan.equal_rows,
            smooth=self.smooth,
            fresh=None if plan.batch is None else fresh,
            key=self._key(plan.max_steps + 1) if self.problem.draws else None,
            noise=noise,
        )

    def _noise(self, step: Any) -> Keys | None:
        """The keys of the noise on a step's gradients, where the problem asks for any."""
        if self.problem.row_privacy is None:
            return None
        return Keys(randomness.key_for(self.seed, randomness.NOISE, self.round, self.number, step))

    def _key(self, step: Any) -> jax.Array:
        """The key of what a model draws outside local steps."""
        return randomness.key_for(self.seed, randomness.MODEL, self.round, self.number, step)

    def _draw(self, fresh: Callable[[Any], BatchOracle], *counters: Any) -> BatchOracle:
        """The oracle on a further minibatch, drawn with replacement."""
        assert self.plan.batch is not None
        if self.data.drawn:
            raise NotDrawn
        key = randomness.key_for(self.seed, randomness.FRESH, self.round, self.number, *counters)
        index = jax.random.randint(key, (self.plan.batch,), 0, self.count)
        return self._at(index, fresh, randomness.AUGMENT_FRESH, *counters)

    def _at(
        self,
        index: jax.Array,
        fresh: Callable[[Any], BatchOracle],
        purpose: int,
        *counters: Any,
        noise: Keys | None = None,
    ) -> BatchOracle:
        batch = self._fetch(index)
        if self.problem.augment is not None:
            key = randomness.key_for(self.seed, purpose, self.round, self.number, *counters)
            batch = self.problem.augment(key, nested(batch))
        full = functools.partial(self.full, noise)
        return BatchOracle(self.problem, batch, smooth=self.smooth, full=full, fresh=fresh, train=True, noise=noise)

    def _rows(self) -> jax.Array:
        return minibatch_rows(self.plan, self.count, self.seed, self.round, self.number)

    def oracles(self) -> Callable[..., BatchOracle]:
        """The oracle of each local step k, on the round's minibatches. A second call for k gives another `step`, so
        that it has noise of its own."""
        batch, _ = self.plan.batch, self._fetch
        if batch is None:
            return lambda k, step=None: self.full(self._noise(k if step is None else step))
        shape = (self.plan.max_steps, batch)
        if self.data.drawn:
            rows = jnp.arange(math.prod(shape)).reshape(shape)
        else:
            rows = self._rows() if self.rows is None else self.rows

        def at(k: Any, step: Any = None) -> BatchOracle:
            def fresh(n: Any) -> BatchOracle:
                return self._draw(fresh, k, n)

            noise = self._noise(k if step is None else step)
            return self._at(rows[k], fresh, randomness.AUGMENT, k, noise=noise)

        return at

    def context(self) -> Context:
        plan = self.plan
        return Context(
            round=self.round,
            steps=self.steps,
            cohort=plan.cohort,
            clients=plan.clients,
            regularizer=self.problem.regularizer,
            client=self.number,
            seed=self.seed,
        )

    def work(self, algorithm: Algorithm, message: Any, state: Any, loop: Callable[..., Any] = jax.lax.fori_loop) -> Any:
        """begin, K steps, finish: the upload and the client's new state.

        `loop(0, steps, body, carry)` may be a compiled loop or a plain one.
        """
        ctx, oracle = self.context(), self.oracles()
        local = algorithm.at(ctx).begin(message, state, ctx)

        def body(k: Any, local: Any) -> Any:
            here = dataclasses.replace(ctx, step=k)
            new = algorithm.at(here).step(local, oracle(k), message, state, here)
            check_returned(algorithm, "step", "what begin made", new, local)
            return cast_like(new, local)

        local = loop(0, self.steps, body, local)
        last = dataclasses.replace(ctx, step=self.steps)
        made = algorithm.at(last).finish(local, oracle(self.steps - 1, self.steps), message, state, last)
        upload, new = finished(algorithm, made, state)
        return upload, cast_like(new, state)

    def join(self, algorithm: Algorithm, server: Any, state: Any) -> Any:
        """The round of a client that joins after training: an empty upload, and its new state."""
        ctx = self.context()
        return (), cast_like(algorithm.at(ctx).join(server, state, self.full(), self.steps), state)


def check_returned(algorithm: Algorithm, name: str, what: str, new: Any, old: Any) -> None:
    """Raise if a method's function returns another tree, other shapes or other kinds of numbers than it was given."""
    if layout(new) != layout(old):
        raise FedaxError(f"{whose(algorithm, name)} must return {what}, {layout(old)}, not {layout(new)}")


def finished(algorithm: Algorithm, made: Any, state: Any) -> tuple[Any, Any]:
    """A method's (upload, state) from `finish`; raises unless the state is like the one that `finish` was given."""
    if not isinstance(made, tuple) or len(made) != 2:
        raise FedaxError(f"{whose(algorithm, 'finish')} must return the pair (upload, client), not {layout(made)}")
    upload, new = made
    for leaf in jax.tree.leaves(upload):
        if not hasattr(leaf, "dtype") and not isinstance(leaf, int | float):
            raise FedaxError(f"{whose(algorithm, 'finish')} must return an upload of numbers, not {layout(upload)}")
    check_returned(algorithm, "finish", "the client's state", new, state)
    return upload, new


def whose(algorithm: Algorithm, name: str) -> str:
    """A function of a method, or of the method that this one builds on, and where it is defined."""
    algorithm = bare(algorithm)
    while name not in vars(type(algorithm)) and isinstance(getattr(algorithm, "base", None), Algorithm):
        algorithm = algorithm.base  # type: ignore[attr-defined]
    return defined(getattr(type(algorithm), name))


def layout(tree: Any) -> str:
    """A tree's structure with its leaves' shapes, and their kind where they are not real numbers.

    >>> layout({"w": jnp.zeros((2, 3)), "b": 1.0})
    "{'b': (), 'w': (2, 3)}"
    """

    def leaf(a: Any) -> Any:
        try:
            kind = jnp.result_type(a)
        except TypeError:
            return _Word(type(a).__name__)
        real = jnp.issubdtype(kind, jnp.floating) or jnp.issubdtype(kind, jnp.integer) or kind == jnp.bool_
        return _Word(f"{jnp.shape(a)}" if real else f"{jnp.shape(a)} of {kind}")

    return str(jax.tree.map(leaf, tree))


class _Word(str):
    """Text whose repr is the text itself, without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def cast_like(new: Any, old: Any) -> Any:
    """A new state in the dtypes of the old one: a rate in double precision does not widen a float32 model."""
    return jax.tree.map(lambda n, o: jnp.asarray(n, jnp.result_type(o)), new, old)
