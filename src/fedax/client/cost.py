"""What one client's round costs: counted while its functions are traced, not declared."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedax import counting
from fedax.algorithms.base import Algorithm
from fedax.algorithms.with_model_state import bare
from fedax.client.round import Client, check_returned, finished
from fedax.errors import FedaxError


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one client's round costs: floats sent each way, floats kept for the next, gradients by kind of batch."""

    down: int
    up: int
    kept: int
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

    def step(local: Any, message: Any, state: Any) -> None:
        made = algorithm.at(ctx).step(local, client.oracles()(0), message, state, ctx)
        check_returned(algorithm, "step", "what begin made", made, local)

    def finish(local: Any, message: Any, state: Any) -> Any:
        made = algorithm.at(ctx).finish(local, client.oracles()(0), message, state, ctx)
        return finished(algorithm, made, state)[0]

    with counting.counted() as in_step:
        jax.eval_shape(step, local, message, state)
    with counting.counted() as in_finish:
        upload = jax.eval_shape(finish, local, message, state)
    _check_aggregate(algorithm, upload)
    return Cost(_floats(message), _floats(upload), _floats(state), in_step, in_finish)


def _check_aggregate(algorithm: Algorithm, upload: Any) -> None:
    """Refuse a rule that cannot take the method's uploads, or that does not make one upload of them."""
    rule = algorithm.aggregate
    if rule == "mean":
        return
    if not callable(rule):
        name = type(bare(algorithm)).__name__
        allowed = "'mean' or a method (uploads, weights); Robust(base, rule='median') combines those of any base"
        raise FedaxError(f"{name}: aggregate is {rule!r}: it must be {allowed}")

    def combine(one: Any) -> None:
        made = rule(jax.tree.map(lambda u: jnp.stack([u, u, u]), one), jnp.ones(3))
        check_returned(algorithm, "aggregate", "one upload", made, one)

    jax.eval_shape(combine, upload)


def _floats(tree: Any) -> int:
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(tree))
