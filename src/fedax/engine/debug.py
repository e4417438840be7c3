"""The debug executor: plain Python, one client and one step at a time.

The same functions and the same draws as the compiled program, so a breakpoint or a print in a method works,
an error says at which round, client and step it happened, and NaN is caught where it is born.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedax.algorithms.base import Algorithm, Context
from fedax.algorithms.with_model_state import bare
from fedax.client.device_data import Data, Disk
from fedax.client.round import Client, cast_like, check_returned
from fedax.engine.executors import diagnostics, squares
from fedax.engine.rounds import Engine, finite
from fedax.engine.state import State
from fedax.errors import DivergedError, FedaxError
from fedax.vectors import zeros


class DebugEngine(Engine):
    """An engine whose rounds, clients and steps are Python loops."""

    def advance(self, algorithm: Algorithm, state: State, rounds: int, data: Data | Disk) -> tuple[State, bool]:
        who = self.draws.cohorts(state.round, state.round + 1)[0]
        near = data.for_round(self.plan, self.seed, state.round, who)
        message = algorithm.broadcast(state.server)
        total: Any = None
        measured: Any = 0.0
        weight_sum = 0.0
        changed: dict[int, Any] = {}
        uploads, weights = [], []
        rows = self._rows(state.round, near)
        if not (who >= 0).any():  # no client is there: the round is passed over
            return State(state.server, state.clients, state.round + 1, state.diagnostics), True
        if not isinstance(rows, tuple):
            rows = np.asarray(rows[state.round % self.draws.rounds])
        for place, number in enumerate(who.tolist()):
            if number < 0:
                continue
            before = jax.tree.map(lambda s, n=number: s[n], state.clients)
            upload, changed[number] = self._one(
                algorithm, message, before, number, state.round, near, None if isinstance(rows, tuple) else rows[place]
            )
            weight = float(near.count[number]) if self.plan.weighted else 1.0
            total = zeros(upload) if total is None else total
            total = jax.tree.map(lambda t, u, w=weight: t + jnp.asarray(w, u.dtype) * u, total, upload)
            measured = measured + weight * squares(upload, changed[number], before)
            weight_sum += weight
            uploads.append(upload)
            weights.append(weight)
        if algorithm.aggregate == "mean":
            mean = jax.tree.map(lambda t: t / jnp.asarray(weight_sum, t.dtype), total)
        else:
            mean = algorithm.aggregate(jax.tree.map(lambda *u: jnp.stack(u), *uploads), jnp.asarray(weights))
        plan = self.plan
        psi = self.problem.regularizer
        ctx = Context(state.round, 0, plan.max_steps, len(weights), plan.clients, psi, seed=self.seed)
        updated = algorithm.at(ctx).update(state.server, mean, ctx)
        check_returned(algorithm, "update", "the server's state", updated, state.server)
        updated = cast_like(updated, state.server)
        if not finite(updated):
            return state, False
        clients = state.clients
        for number, new in changed.items():
            clients = jax.tree.map(lambda s, v, n=number: s.at[n].set(v), clients, new)
        return State(updated, clients, state.round + 1, diagnostics(mean, measured / weight_sum)), True

    def _one(
        self, algorithm: Algorithm, message: Any, state: Any, number: int, round: int, data: Data, rows: Any
    ) -> Any:
        where = {"step": -1}

        def loop(start: int, stop: Any, body: Any, carry: Any) -> Any:
            for k in range(start, int(stop)):
                where["step"] = k
                carry = body(k, carry)
                if not finite(carry):
                    raise DivergedError("NaN or infinity", round=round + 1)
            return carry

        here = (np.int32(number), self.seed, round, algorithm.composite, rows)
        client = Client(self.problem, self.plan, data, *here)
        try:
            return client.work(algorithm, message, state, loop=loop)
        except Exception as error:
            name = type(bare(algorithm)).__name__
            message = f"{name}: client {number}, round {round + 1}, step {where['step']}: {error}"
            if isinstance(error, DivergedError):
                raise DivergedError(message, round=round + 1) from error
            raise FedaxError(message) from error
