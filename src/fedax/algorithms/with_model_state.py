"""Any method on a model that draws or keeps state, such as BatchNorm's statistics.

Objective:  the base's

    client, K times:  the base's step; each of its gradients on a minibatch reads the state s_i and leaves a new one
    keep="average":   s_i <- s of the server before the steps; s_i - s goes up
    server:           s <- s + mean_i(s_i - s)                                  with the base's own mean of uploads
    keep="client":    s_i stays with the client and is never sent; FedBN (Li et al. 2021) keeps scale and shift too

Runs make it of the method that they are given; an experiment names the base.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fedax import randomness
from fedax.algorithms.aggregation import mean
from fedax.algorithms.attacks import Attacked
from fedax.algorithms.base import Algorithm, Context, Oracle, algorithm, choice, method
from fedax.algorithms.localised import OfBase
from fedax.model_state import joined, parted, running
from fedax.vectors import Vector, repeat

KEEP = ("average", "client")


@algorithm
class WithModelState(OfBase):
    """The base's objective, on a model that draws or keeps state.

    base: any method.
    keep: "average" to average the state with the uploads, "client" to leave it with the client.

    Sends and keeps what the base does, and the state where `keep` says.

    >>> from fedax.algorithms import FedAvg
    >>> from fedax.model_state import WithState
    >>> first = Vector(WithState({"w": jnp.zeros(3)}, {"mean": jnp.ones(2)}))
    >>> WithModelState(FedAvg(lr=0.1), keep="client").broadcast(WithModelState(FedAvg(lr=0.1)).init(first))
    (Vector({'w': Array([0., 0., 0.], dtype=float32)}), ())
    """

    base: Any = method()
    keep: str = choice(*KEEP, default="average")

    def __repr__(self) -> str:
        return repr(self.base)

    @property
    def aggregate(self) -> Any:
        return "mean" if self.base.aggregate == "mean" else self._aggregate

    def _aggregate(self, uploads: Any, weights: Any) -> Any:
        """The base's rule on upload and state as one vector; the mean of states where it takes several vectors."""
        own, states = uploads
        if isinstance(own, Vector):
            upload, state = self.base.aggregate(Vector((own.tree, states)), weights).tree
            return Vector(upload), state
        return self.base.aggregate(own, weights), mean(states, weights)

    def _sent(self, state: Any) -> Any:
        return state if self.keep == "average" else ()

    def _kept(self, state: Any) -> Any:
        return state if self.keep == "client" else ()

    def init(self, x0: Vector) -> Any:
        params, state = parted(x0.tree)
        return self.base.init(Vector(params)), state

    def client_init(self, x0: Vector) -> Any:
        params, state = parted(x0.tree)
        return self.base.client_init(Vector(params)), self._kept(state)

    def broadcast(self, server: Any) -> Any:
        own, state = server
        return self.base.broadcast(own), self._sent(state)

    def begin(self, message: Any, client: Any, ctx: Context) -> Any:
        (sent, shared), (own, kept) = message, client
        return self.base.begin(sent, own, ctx), shared if self.keep == "average" else kept

    def step(self, local: Any, oracle: Oracle, message: Any, client: Any, ctx: Context) -> Any:
        own, state = local
        with running(state, _key(ctx)) as now:
            own = self.base.step(own, oracle, message[0], client[0], ctx)
        return own, now.state

    def finish(self, local: Any, oracle: Oracle, message: Any, client: Any, ctx: Context) -> tuple[Any, Any]:
        own, state = local
        with running(state, _key(ctx)) as now:
            upload, kept = self.base.finish(own, oracle, message[0], client[0], ctx)
        change = jax.tree.map(lambda new, old: new - old, self._sent(now.state), message[1])
        return (upload, change), (kept, self._kept(now.state))

    def update(self, server: Any, upload: Any, ctx: Context) -> Any:
        (own, state), (sent, change) = server, upload
        if self.keep == "average":
            met = self.base.traffic(ctx)[1]  # in a round that sends nothing, the server hears of no state either
            state = jax.tree.map(lambda s, c: s + jnp.asarray(met, c.dtype) * c, state, change)
        return self.base.update(own, sent, ctx), state

    def model(self, server: Any) -> Vector:
        own, state = server
        return Vector(joined(self.base.model(own).tree, state))

    def personal(self, server: Any, client: Any, oracle: Oracle) -> Vector:
        (own, shared), (kept, state) = server, client
        with running(shared if self.keep == "average" else state, _client_key(oracle)) as now:
            x = self.base.personal(own, kept, oracle)
        return Vector(joined(x.tree, now.state))

    def join(self, server: Any, client: Any, oracle: Oracle, steps: Any) -> Any:
        """The base's rule; where clients keep their state, a newcomer first finds its own at the shared model."""
        (own, shared), (kept, state) = server, client
        with running(shared if self.keep == "average" else state, _client_key(oracle)) as now:
            if self.keep == "client":
                x = self.base.model(own)
                repeat(steps, lambda n, last: oracle.fresh(n + 1).value(x).astype(last.dtype), jnp.zeros(()))
            kept = self.base.join(own, kept, oracle, steps)
        return kept, self._kept(now.state)


@algorithm
class SharedWithOwnState(OfBase):
    """A `WithModelState` whose clients' own models are the shared one with the state that they keep."""

    base: Any = method()

    def personal(self, server: Any, client: Any, oracle: Oracle) -> Vector:
        return Vector(joined(parted(self.base.model(server).tree)[0], client[1]))


def bare(method: Algorithm) -> Algorithm:
    """The method that an experiment names, without what runs add for the model's state."""
    inner: Algorithm = method.base if isinstance(method, WithModelState) else method
    return inner.base if isinstance(inner, Attacked) else inner


def clients_keep_state(method: Algorithm) -> bool:
    """Whether the shared model is another for every client, by its state."""
    return isinstance(method, WithModelState) and method.keep == "client"


def _key(ctx: Context) -> jax.Array:
    return randomness.key_for(ctx.seed, randomness.MODEL, ctx.round, ctx.client, ctx.step)


def _client_key(oracle: Any) -> jax.Array | None:
    key: jax.Array | None = getattr(oracle, "key", None)
    return key
