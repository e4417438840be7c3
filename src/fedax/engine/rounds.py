"""The engine: several rounds as one compiled program, and the state it carries.

The program loops over rounds; in each it gathers the cohort's states, runs the cohort, updates the server and
writes the states back. It stops by itself at the first NaN or infinity and keeps what was good before.

Where clients' states exceed their budget they sit in a `Store` instead of on the devices, and a round is one call of
a program that is given the cohort's rows and gives them back.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from fedax.algorithms.base import Algorithm, Context
from fedax.client import shares
from fedax.client.availability import Presence
from fedax.client.device_data import Data, Disk
from fedax.client.draws import Draws
from fedax.client.plan import Plan
from fedax.client.round import Client, cast_like, check_returned
from fedax.engine.executors import Executor, cohort_program, diagnostics
from fedax.engine.state import State
from fedax.engine.store import Store
from fedax.problem import Problem


class Engine:
    """Runs rounds of one method on one problem and federation."""

    def __init__(
        self,
        problem: Problem,
        plan: Plan,
        executor: Executor,
        mesh: Mesh,
        seed: jax.Array,
        rounds: int = 1,
        presence: Presence | None = None,
    ) -> None:
        """rounds: how many may run in one call, if their draws fit memory. presence: who is there, if not everybody."""
        self.problem, self.plan, self.executor, self.mesh, self.seed = problem, plan, executor, mesh, seed
        self.draws = Draws(plan, executor.places, mesh, seed, rounds, presence)

    def place(self, tree: Any) -> Any:
        """Put arrays on every device."""
        return shares.place(self.mesh, tree)

    def start(self, algorithm: Algorithm, x0: Any, store: Store | None = None) -> State:
        """The state before the first round; clients' states on the devices unless there is a store for them."""
        server, client = algorithm.init(x0), algorithm.client_init(x0)
        if store is None and not shares.is_divided(self.mesh):
            build = functools.partial(_start, self.plan, self.mesh)
            return State(*self.problem.program(("start", self.plan, self.mesh), build)(server, client))
        # a copy: the compiled rounds reuse the memory of what they are given
        server = jax.tree.map(jnp.copy, self.place(server))
        return State(server, self._same_for_all(client) if store is None else store)

    def _same_for_all(self, client: Any) -> Any:
        """A table with the same first state for every client, divided over the processes."""
        rows = shares.processes(self.mesh) * shares.share(self.mesh, self.plan.clients)

        def table(client: Any) -> Any:
            return jax.tree.map(lambda a: jnp.broadcast_to(a, (rows, *jnp.shape(a))), client)

        return jax.jit(table, out_shardings=shares.divided(self.mesh))(jax.tree.map(np.asarray, client))

    def take(self, clients: Any, who: Any) -> Any:
        """The states of some clients, stacked, to be read by every process."""
        if not shares.is_divided(self.mesh):
            return clients.take(who) if isinstance(clients, Store) else jax.tree.map(lambda s: s[who], clients)
        if isinstance(clients, Store):
            return clients.packing.unpack(np.asarray(self._rows_of_all(clients, who)))
        return shares.take_program(self.mesh)(clients, shares.at(self.mesh, self.plan.clients, who))

    def _rows_of_all(self, store: Store, who: Any) -> Any:
        """The packed states of some clients, each from the store of the process that holds the client."""

        def own(process: int) -> Any:
            mine = who % shares.processes(self.mesh) == process
            rows = np.zeros((1, len(who), store.packing.size), np.uint8)
            rows[0, mine] = store.take_rows(who[mine])
            return rows

        return _sum_over_processes(self.mesh)(shares.divide(self.mesh, own))

    def personal(self, algorithm: Algorithm, state: State, data: Data | Disk, who: Any = None) -> Any:
        """The own models of some clients, or of all, stacked."""
        who = np.arange(self.plan.clients) if who is None else np.asarray(who)
        each = min(len(who), data.at_once)

        def build() -> Any:
            def every(algorithm: Any, server: Any, states: Any, data: Data, seed: Any, who: Any) -> Any:
                def one(here: Any) -> Any:
                    i, state = here
                    client = Client(self.problem, self.plan, data, i, seed, 0, algorithm.composite)
                    return algorithm.personal(server, state, client.full())

                return jax.lax.map(one, (who, states))

            return jax.jit(every)

        program = self.problem.program(("personal models", self.plan), build)
        at = algorithm.at(Context(round=state.round, steps=self.plan.max_steps))
        made = []
        for first in range(0, len(who), each):
            some = who[first : first + each]
            states = self.take(state.clients, some)
            own = program(at, state.server, states, data.some(some, each)[0], self.seed, some)
            made.append(jax.block_until_ready(own))  # so that rows from disk are freed before the next are read
        return made[0] if len(made) == 1 else jax.tree.map(lambda *parts: jnp.concatenate(parts), *made)

    def advance(self, algorithm: Algorithm, state: State, rounds: int, data: Data | Disk) -> tuple[State, bool]:
        """Run some rounds, at most to the end of a block of draws. Return the state after the last round without NaN or
        infinity, and whether all rounds were without them."""
        if isinstance(state.clients, Store):
            return self._stored(algorithm, state, state.clients, min(rounds, self.draws.left(state.round)), data)
        server, clients, alive, done, diagnostics = self.run(algorithm, state, np.True_, rounds, data)
        return State(server, clients, state.round + int(done), diagnostics), bool(alive)

    def _stored(self, algorithm: Any, state: State, store: Store, rounds: int, data: Data | Disk) -> tuple[State, bool]:
        """Rounds whose cohort's states come from a store and go back to it."""
        build = functools.partial(_single, self.problem, self.plan, self.executor, self.mesh)
        program = self.problem.program(("round", self.plan, self.executor, self.mesh), build)
        who = self.draws.who(state.round)
        server, diagnostics = state.server, state.diagnostics
        for r in range(state.round, state.round + rounds):
            at = r % self.draws.rounds
            here = who[at]
            near = data.for_round(self.plan, self.seed, r, here)
            rows = self._rows(r, near)
            states = self._taken(store, here)
            updated, new, good, seen = program(algorithm, server, states, here, rows, at, r, self.seed, near)
            if not bool(good):
                return State(server, store, r, diagnostics), False
            self._put(store, here, new)
            server, diagnostics = updated, seen
        return State(server, store, state.round + rounds, diagnostics), True

    def _taken(self, store: Store, here: Any) -> Any:
        """The states of the clients at all places, or at those of this process."""
        if not shares.is_divided(self.mesh):
            return store.take(shares.client_at(here))
        mine = here[shares.places_here(self.mesh, len(here))]
        return shares.spread(self.mesh, store.take(shares.client_at(mine)))

    def _put(self, store: Store, here: Any, new: Any) -> None:
        """Write the new states of the clients that took part, or of those that this process holds."""
        if not shares.is_divided(self.mesh):
            there = np.flatnonzero(shares.is_taken(here[: self.plan.cohort]))
            if there.size:
                store.put(here[there], jax.tree.map(lambda a: np.asarray(a)[there], new))
            return
        mine = here[shares.places_here(self.mesh, len(here))]
        there = shares.is_taken(mine)
        store.put(mine[there], jax.tree.map(lambda a: a[there], shares.read_here(new)))

    def _rows(self, round: int, near: Data) -> Any:
        """The row numbers of a block's minibatches; none if the data are the minibatches' rows in their order."""
        return () if near.drawn else self.draws.rows(round, near.count)

    def run(self, algorithm: Any, state: State, alive: Any, rounds: int, data: Data | Disk) -> Any:
        """The compiled rounds, of one run or, where `alive` is an array, of many side by side."""
        program, given = self.call(algorithm, state, alive, rounds, data)
        return program(*given)

    def call(self, algorithm: Any, state: State, alive: Any, rounds: int, data: Data | Disk) -> tuple[Any, Any]:
        """The compiled program that `run` calls, and its arguments."""
        lanes = np.ndim(alive) == 1
        build = functools.partial(_rounds, self.problem, self.plan, self.executor, self.mesh, lanes)
        program = self.problem.program(("rounds", self.plan, self.executor, self.mesh, lanes), build)
        first, who = state.round, self.draws.who(state.round)
        begin = first % self.draws.rounds
        end = begin + min(rounds, self.draws.left(first))
        near = data.for_round(self.plan, self.seed, first, who[begin])  # rows on disk come round by round
        drawn = (who, self._rows(first, near))
        return program, (algorithm, state.server, state.clients, alive, drawn, begin, end, first, self.seed, near)


def _start(plan: Plan, mesh: Mesh) -> Any:
    """start(server, client) -> server, clients: the states before the first round, in memory of their own."""

    def start(server: Any, client: Any) -> Any:
        many = jax.tree.map(lambda a: jnp.broadcast_to(a, (plan.clients, *jnp.shape(a))), client)
        return jax.tree.map(jnp.copy, (server, many))

    return jax.jit(start, out_shardings=NamedSharding(mesh, P()))


def _round(
    problem: Problem, plan: Plan, executor: Executor, mesh: Mesh, *, table: bool = False, lanes: bool = False
) -> Any:
    """round(algorithm, server, states, here, rows, round, seed, data)
    -> server, cohort's states, finite?, diagnostics."""
    cohort = cohort_program(problem, plan, executor, mesh, table=table, lanes=lanes)

    def a_round(
        algorithm: Any, server: Any, states: Any, here: Any, rows: Any, round: Any, seed: Any, data: Data
    ) -> Any:
        share = data.count[shares.client_at(here) if plan.sometimes else here] if plan.weighted else 1
        taking_part = _taking_part(plan, executor, mesh, here)
        weights = jnp.where(taking_part, share, 0).astype(jnp.float32)
        cohort_size = jnp.sum(taking_part) if plan.sometimes else plan.cohort
        message = algorithm.broadcast(server)
        upload, new, measured = cohort(algorithm, message, states, here, weights, rows, seed, round, data)
        ctx = Context(round, 0, plan.max_steps, cohort_size, plan.clients, problem.regularizer, seed=seed)
        updated = algorithm.at(ctx).update(server, upload, ctx)
        check_returned(algorithm, "update", "the server's state", updated, server)
        updated = cast_like(updated, server)
        if plan.sometimes:
            updated = jax.tree.map(lambda n, o: jnp.where(cohort_size > 0, n, o), updated, server)
        # a state that is not finite makes its square so, too: the states need no check of their own
        good = jax.lax.cond(jnp.all(jnp.isfinite(measured)), lambda: jnp.array(True), lambda: finite(new))
        return updated, new, finite(updated) & good, diagnostics(upload, measured)

    return a_round


def _taking_part(plan: Plan, executor: Executor, mesh: Mesh, here: Any) -> Any:
    """Whether there is a client of the cohort at each place."""
    return (
        shares.is_taken(here) if shares.is_divided(mesh) or plan.sometimes else np.arange(executor.places) < plan.cohort
    )


def _single(problem: Problem, plan: Plan, executor: Executor, mesh: Mesh) -> Any:
    """round(algorithm, server, states, here, block of rows, where in it, round, seed, data), compiled."""
    a_round = _round(problem, plan, executor, mesh)

    def single(algorithm: Any, server: Any, states: Any, here: Any, rows: Any, at: Any, *rest: Any) -> Any:
        return a_round(algorithm, server, states, here, jax.tree.map(lambda a: a[at], rows), *rest)

    return jax.jit(single, out_shardings=_lies(mesh, NamedSharding(mesh, shares.over_devices(mesh)), 2))


def _lies(mesh: Mesh, clients: Any, after: int) -> Any:
    """The shardings of (server, clients, `after` others): clients divided, the others on every device; None in one
    process, where XLA decides."""
    same = shares.everywhere(mesh)
    return (same, clients, *[same] * after) if shares.is_divided(mesh) else None


def _rounds(problem: Problem, plan: Plan, executor: Executor, mesh: Mesh, lanes: bool) -> Any:
    """run(algorithm, server, clients, alive, drawn, begin, end, first, seed, data)
    -> server, clients, alive, good rounds, the last one's diagnostics.

    drawn are a block's cohorts and rows, of which begin .. end-1 are run; the round at `begin` is `first`.
    With `lanes`, algorithm, server, clients and alive have a leading axis: a grid of settings of one method goes
    through the same rounds, cohorts and minibatches side by side. A lane that meets NaN or infinity stays as it
    was before.
    """
    a_round = _round(problem, plan, executor, mesh, table=True, lanes=lanes)
    written = _written_here(mesh) if shares.is_divided(mesh) else None

    def one(
        algorithm: Any, server: Any, clients: Any, alive: Any, drawn: Any, round: Any, seed: Any, data: Data
    ) -> Any:
        here, rows = drawn
        updated, new, good, seen = a_round(algorithm, server, clients, here, rows, round, seed, data)
        good = alive & good
        taking_part = good & _taking_part(plan, executor, mesh, here)
        if written is not None:
            clients = written(clients, new, here, taking_part)
        else:
            at = jnp.where(taking_part, here, plan.clients)  # beyond the end: not written
            clients = jax.tree.map(lambda s, v: s.at[at].set(v, mode="drop"), clients, new)
        return jax.tree.map(lambda n, o: jnp.where(good, n, o), updated, server), clients, good, seen

    side_by_side = jax.vmap(one, in_axes=(0, 0, 0, 0, None, None, None, None)) if lanes else one

    lies = _lies(mesh, shares.divided(mesh, axis=1 if lanes else 0), 3)

    @functools.partial(jax.jit, donate_argnums=(1, 2), out_shardings=lies)
    def rounds(
        algorithm: Any,
        server: Any,
        clients: Any,
        alive: Any,
        drawn: Any,
        begin: Any,
        end: Any,
        first: Any,
        seed: Any,
        data: Data,
    ) -> Any:
        def body(carry: Any) -> Any:
            r, server, clients, alive, done, last = carry
            here = jax.tree.map(lambda a: a[r], drawn)
            server, clients, alive, seen = side_by_side(
                algorithm, server, clients, alive, here, first + r - begin, seed, data
            )
            last = jnp.where(jnp.expand_dims(alive, -1), seen, last)
            return r + 1, server, clients, alive, jnp.where(alive, r + 1 - begin, done), last

        shape = jnp.shape(alive)
        none = jnp.zeros(shape, jnp.int32), jnp.zeros((*shape, 3), jnp.float32)
        start = (jnp.asarray(begin, jnp.int32), server, clients, alive, *none)
        return jax.lax.while_loop(lambda c: (c[0] < end) & jnp.any(c[3]), body, start)[1:]

    return rounds


def _written_here(mesh: Mesh) -> Any:
    """write(table, new, here, taking part) -> the table, with each process' new states of its own clients."""

    def write(table: Any, new: Any, here: Any, taking_part: Any) -> Any:
        if mesh.shape["clients"] > 1:
            new, here, taking_part = jax.tree.map(
                lambda a: jax.lax.all_gather(a, "clients", tiled=True), (new, here, taking_part)
            )

        def rows(s: Any, v: Any) -> Any:
            at = jnp.where(taking_part, here // shares.processes(mesh), len(s))  # beyond the end: not written
            return s.at[at].set(v, mode="drop")

        return jax.tree.map(rows, table, new)

    table, spread = shares.over_processes(mesh), shares.over_devices(mesh)
    return jax.shard_map(write, mesh=mesh, in_specs=(table, spread, spread, spread), out_specs=table, check_vma=False)


@functools.lru_cache(maxsize=8)
def _sum_over_processes(mesh: Mesh) -> Any:
    return jax.jit(lambda rows: jnp.sum(rows, axis=0, dtype=jnp.uint8), out_shardings=shares.everywhere(mesh))


def finite(tree: Any) -> jax.Array:
    """Whether no leaf holds NaN or infinity."""
    bounds = [jnp.isfinite(jnp.max(jnp.abs(leaf), initial=0)) for leaf in jax.tree.leaves(tree)]
    return jnp.all(jnp.array(bounds)) if bounds else jnp.array(True)
