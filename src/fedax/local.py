"""One client's round: what it draws, what its oracle shows, and the loop over local steps.

Every executor runs this same function, batched over clients, looped over them, or one at a time in Python.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Layout, with_layout_constraint

from fedax import counting, randomness
from fedax.algorithms.base import Algorithm, Context
from fedax.oracle import Batch, FullOracle, Oracle
from fedax.problem import Problem
from fedax.randomness import Sampling
from fedax.schedules import register

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is fixed for a whole run, and so for the compiled program."""

    clients: int
    cohort: int
    batch: int | None  #: rows a minibatch, None for the full local gradient
    max_steps: int  #: local steps of the busiest client
    equal_steps: bool  #: every client takes max_steps
    min_rows: int  #: training rows of the smallest client
    max_rows: int  #: and of the largest
    sampling: Sampling
    weighted: bool  #: mean by rows rather than by clients

    @property
    def equal_rows(self) -> bool:
        return self.min_rows == self.max_rows


@dataclasses.dataclass(frozen=True)
class Data:
    """The federation on the device: flat arrays, and where each client's training rows begin and how many.

    With `make`, a client's rows are made from its number when it takes part, and there are no flat arrays. With
    `drawn`, the arrays hold one round's minibatches alone, those of each client in the order of its steps.
    """

    arrays: dict[str, jax.Array]
    start: jax.Array
    count: jax.Array
    steps: jax.Array
    make: Callable[[Any, int], Batch] | None = None
    drawn: bool = False

    @classmethod
    def of(cls, arrays: Mapping[str, Any], rows: Any, steps: Any, make: Any = None) -> Data:
        """From host arrays and clients' ranges of rows."""
        start, count, steps = (jnp.asarray(a, jnp.int32) for a in (rows.start, rows.count, steps))
        return cls({k: jnp.asarray(a) for k, a in arrays.items()}, start, count, steps, make)

    def fetch(self, client: Any, limit: int) -> Callable[[jax.Array], Batch]:
        """The batch at a client's rows 0 .. count-1, as a function of their numbers; `limit` is the largest count."""
        if self.make is not None:
            own = self.make(client, limit)
            return lambda index: {name: array[index] for name, array in own.items()}
        start = self.start[client]
        return lambda index: {name: array[start + index] for name, array in self.arrays.items()}

    # -- what a call of a program needs; `fedax.disk.Disk` has the same for rows that are not on the devices ----

    @property
    def at_once(self) -> int:
        """How many clients may be in one call."""
        return len(self.count)

    def traced(self, look: Callable[[Data], T], plan: Plan) -> T:
        """What `look` finds out by tracing a client's round."""
        return look(self)

    def for_round(self, plan: Plan, seed: Any, round: Any, who: Any) -> Data:
        """What some clients need in a round."""
        return self

    def some(self, who: Any, at_most: int | None = None, also: Any = None) -> tuple[Data, Any]:
        """What some clients need, and where their rows `also` begin."""
        return self, None if also is None else also.start

    def blocks(self, blocks: Any, multiple: int) -> Iterator[tuple[dict[str, Any], Any]]:
        """Blocks of row numbers, a part at a time, with the arrays that they are numbers of."""
        yield self.arrays, blocks


register(Data, leaves=["arrays", "start", "count", "steps"], static=["make", "drawn"])


class NotDrawn(Exception):
    """A client looks at rows that are not among its round's minibatches."""


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

    @property
    def count(self) -> Any:
        return self.plan.max_rows if self.plan.equal_rows else self.data.count[self.number]

    @property
    def steps(self) -> Any:
        return self.plan.max_steps if self.plan.equal_steps else self.data.steps[self.number]

    @functools.cached_property
    def _fetch(self) -> Callable[[jax.Array], Batch]:
        """Asked for before any loop over steps: rows that are made are made once."""
        return self.data.fetch(self.number, self.plan.max_rows)

    def full(self) -> Oracle:
        """The oracle on all training rows; its n-th fresh one sees a minibatch of the plan's size."""
        if self.data.drawn:
            raise NotDrawn
        plan = self.plan

        def fresh(n: Any) -> Oracle:
            return self._draw(fresh, plan.max_steps, n)

        return FullOracle(
            self.problem,
            self._fetch,
            self.count,
            plan.max_rows,
            equal=plan.equal_rows,
            smooth=self.smooth,
            fresh=None if plan.batch is None else fresh,
        )

    def _draw(self, fresh: Callable[[Any], Oracle], *counters: Any) -> Oracle:
        """The oracle on a further minibatch, drawn with replacement."""
        assert self.plan.batch is not None
        if self.data.drawn:
            raise NotDrawn
        key = randomness.key_for(self.seed, randomness.FRESH, self.round, self.number, *counters)
        index = jax.random.randint(key, (self.plan.batch,), 0, self.count)
        return self._at(index, fresh, randomness.AUGMENT_FRESH, *counters)

    def _at(self, index: jax.Array, fresh: Callable[[Any], Oracle], purpose: int, *counters: Any) -> Oracle:
        batch = self._fetch(index)
        if self.problem.augment is not None:
            key = randomness.key_for(self.seed, purpose, self.round, self.number, *counters)
            batch = self.problem.augment(key, batch)
        return Oracle(self.problem, batch, smooth=self.smooth, full=self.full, fresh=fresh)

    def draws(self) -> jax.Array:
        """The row numbers [steps, batch] of the round's minibatches."""
        assert self.plan.batch is not None
        key = randomness.key_for(self.seed, randomness.ROWS, self.round, self.number)
        plan = self.plan
        rows: jax.Array = randomness.draw_rows(
            key, plan.max_steps, plan.batch, self.count, plan.sampling, least=plan.min_rows, most=plan.max_rows
        )
        return rows

    def oracles(self) -> Callable[[Any], Oracle]:
        """The oracle of each local step k, on the round's minibatches."""
        batch, _ = self.plan.batch, self._fetch
        if batch is None:
            return lambda k: self.full()
        shape = (self.plan.max_steps, batch)
        rows = jnp.arange(math.prod(shape)).reshape(shape) if self.data.drawn else self.draws()

        def at(k: Any) -> Oracle:
            def fresh(n: Any) -> Oracle:
                return self._draw(fresh, k, n)

            return self._at(rows[k], fresh, randomness.AUGMENT, k)

        return at

    def context(self) -> Context:
        plan = self.plan
        return Context(
            round=self.round,
            steps=self.steps,
            cohort=plan.cohort,
            clients=plan.clients,
            regularizer=self.problem.regularizer,
        )

    def work(self, algorithm: Algorithm, message: Any, state: Any, loop: Callable[..., Any] = jax.lax.fori_loop) -> Any:
        """begin, K steps, finish: the upload and the client's new state.

        `loop(0, steps, body, carry)` may be a compiled loop or a plain one.
        """
        ctx, oracle = self.context(), self.oracles()
        local = algorithm.at(ctx).begin(message, state, ctx)

        def body(k: Any, local: Any) -> Any:
            here = dataclasses.replace(ctx, step=k)
            return alike(algorithm.at(here).step(local, oracle(k), message, state, here), local)

        local = loop(0, self.steps, body, local)
        last = dataclasses.replace(ctx, step=self.steps)
        upload, new = algorithm.at(last).finish(local, oracle(self.steps - 1), message, state, last)
        return upload, alike(new, state)

    def join(self, algorithm: Algorithm, server: Any, state: Any) -> Any:
        """What a client that comes after training does: nothing to upload, and its new state."""
        ctx = self.context()
        return (), alike(algorithm.at(ctx).join(server, state, self.full(), self.steps), state)


def peeled(first: int, last: int, body: Callable[[Any, Any], Any], carry: Any) -> Any:
    """`jax.lax.fori_loop` with its first step outside and then two an iteration.

    So XLA can see when weights are done with, and neither the loop's start nor its steps copy them.

    >>> int(peeled(0, 5, lambda k, total: total + k, 0))
    10
    """
    return jax.lax.fori_loop(first + 1, last, body, body(first, carry), unroll=2)


def by_columns(first: int, last: Any, body: Callable[[Any, Any], Any], carry: Any) -> Any:
    """`jax.lax.fori_loop` that carries matrices with fewer columns than rows column by column.

    A kernel's columns are its outputs. The products of many settings' kernels with one minibatch are then one product
    with long rows, and less is transposed in a step, which takes about half the time (`benchmarks/lanes.py`). A setting
    by itself gains nothing.

    >>> by_columns(0, 5, lambda k, total: total + k, jnp.zeros((3, 2)))[0].tolist()
    [10.0, 10.0]
    """

    def narrow(a: Any) -> bool:
        shape = jnp.shape(a)
        return len(shape) == 2 and shape[0] > shape[1] > 1

    def turned(tree: Any) -> Any:
        return jax.tree.map(lambda a, b: a.T if narrow(b) else a, tree, carry)

    def held(tree: Any) -> Any:
        rows = Layout(major_to_minor=(0, 1))  # else XLA may store it as it was
        return jax.tree.map(lambda a, b: with_layout_constraint(a, rows) if narrow(b) else a, tree, carry)

    loop = jax.lax.fori_loop(first, last, lambda k, local: held(turned(body(k, turned(local)))), turned(carry))
    return turned(loop)


def alike(new: Any, old: Any) -> Any:
    """A new state in the dtypes of the old one: a rate in double precision does not widen a float32 model."""
    return jax.tree.map(lambda n, o: jnp.asarray(n, jnp.result_type(o)), new, old)


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one client's round costs: floats each way, and gradients by where they are taken."""

    down: int
    up: int
    step: counting.Tally
    finish: counting.Tally

    def gradients(self, rows: Any, steps: Any, batch: int | None) -> Any:
        """Gradients of single rows, for clients with these numbers of rows and steps."""
        small = rows if batch is None else batch
        each = steps * (self.step.minibatch * small + self.step.full * rows)
        return each + self.finish.minibatch * small + self.finish.full * rows


def cost(client: Client, algorithm: Algorithm, x0: Any) -> Cost:
    """Trace one client's round without running it, and count."""
    ctx = client.context()

    def begin(x: Any) -> Any:
        message, state = algorithm.broadcast(algorithm.init(x)), algorithm.client_init(x)
        return algorithm.at(ctx).begin(message, state, ctx), message, state

    local, message, state = jax.eval_shape(begin, x0)

    def step(local: Any, message: Any, state: Any) -> Any:
        return algorithm.at(ctx).step(local, client.oracles()(0), message, state, ctx)

    def finish(local: Any, message: Any, state: Any) -> Any:
        return algorithm.at(ctx).finish(local, client.oracles()(0), message, state, ctx)

    with counting.counted() as in_step:
        jax.eval_shape(step, local, message, state)
    with counting.counted() as in_finish:
        upload, _ = jax.eval_shape(finish, local, message, state)
    return Cost(_floats(message), _floats(upload), in_step, in_finish)


def _floats(tree: Any) -> int:
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(tree))
