"""Which process of a run holds which clients: client i is held by process i mod P, as the (i div P)-th there.

The mesh of a run in one process has the axis "clients" alone, its devices. That of several processes has "processes"
before it. Clients' rows and states are divided over the processes and repeated on the devices of each; a client's
round runs on a device of the process that holds it, so neither travels. What all need, the server's state and the
numbers of rows, is on every device.

A table of all clients' states is an array whose rows are divided: client i's is at `(i % P) * share + i // P`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from numpy.typing import NDArray

Numbers = NDArray[np.int32]
PROCESSES = "processes"


def is_divided(mesh: Mesh) -> bool:
    """Whether clients are divided over several processes."""
    return PROCESSES in mesh.axis_names


def processes(mesh: Mesh) -> int:
    """How many processes a mesh has."""
    return int(mesh.shape.get(PROCESSES, 1))


def held_here(mesh: Mesh) -> list[int]:
    """The numbers of the processes whose devices this one has: its own."""
    rows = mesh.devices.reshape(processes(mesh), -1)
    return [p for p, row in enumerate(rows) if row[0].process_index == jax.process_index()]


def share(mesh: Mesh, clients: int) -> int:
    """The largest number of clients that a process holds."""
    return -(-clients // processes(mesh))


def over_devices(mesh: Mesh) -> P:
    """An axis spread over all devices."""
    return P(mesh.axis_names) if is_divided(mesh) else P("clients")


def over_processes(mesh: Mesh) -> P:
    """An axis divided over the processes; in one process it is not divided."""
    return P(PROCESSES) if is_divided(mesh) else P()


def everywhere(mesh: Mesh) -> NamedSharding | None:
    """How a program's results lie so that every process can read them: as XLA likes, where there is one process."""
    return NamedSharding(mesh, P()) if is_divided(mesh) else None


def divided(mesh: Mesh, axis: int = 0) -> NamedSharding | None:
    """How a table lies whose `axis` has a row for each client: as XLA likes, where there is one process."""
    return NamedSharding(mesh, P(*[None] * axis, PROCESSES)) if is_divided(mesh) else None


def place(mesh: Mesh, tree: Any) -> Any:
    """Put arrays on every device."""
    same = NamedSharding(mesh, P())
    if not mesh.is_multi_process:
        return jax.device_put(tree, same)
    # every process has the same arrays and puts them on its own devices
    hosted = jax.tree.map(np.asarray, tree)
    return jax.tree.map(lambda a: jax.make_array_from_callback(a.shape, same, lambda at: a[at]), hosted)


def divide(mesh: Mesh, rows_of: Callable[[int], Any]) -> Any:
    """Put each process' arrays on its devices: `rows_of(p)` gives those of process p, of equal shapes for all p."""
    here = jax.tree.map(lambda *a: np.concatenate(a), *[rows_of(p) for p in held_here(mesh)])
    lies = NamedSharding(mesh, P(PROCESSES))
    return jax.tree.map(lambda a: jax.make_array_from_process_local_data(lies, a), here)


def gather(mesh: Mesh, tree: Any) -> Any:
    """Divided or spread arrays on every device, to be read by every process."""
    return jax.tree.map(_everywhere(mesh), tree)


@functools.lru_cache(maxsize=8)
def _everywhere(mesh: Mesh) -> Any:
    return jax.jit(lambda a: a, out_shardings=everywhere(mesh))


def at(mesh: Mesh, clients: int, who: Any) -> Any:
    """Where clients' rows are in a table of all."""
    count = processes(mesh)
    return who % count * share(mesh, clients) + who // count


@functools.lru_cache(maxsize=8)
def take_program(mesh: Mesh) -> Any:
    """The compiled take(table, at) -> some rows of a divided table, on every device."""
    return jax.jit(lambda table, at: jax.tree.map(lambda a: a[at], table), out_shardings=everywhere(mesh))


def arranged(mesh: Mesh, cohorts: NDArray[Any], places: int) -> Numbers:
    """Cohorts [rounds, clients] as places [rounds, places], each client at one of its own process.

    A place without a client has ~c, c a client of the same process. The clients of a process take turns on its devices.
    """
    count = processes(mesh)
    devices, each = mesh.devices.size // count, places // count
    owner = cohorts % count
    turn = np.zeros_like(cohorts)
    for p in range(count):
        mine = owner == p
        turn += np.where(mine, np.cumsum(mine, axis=1) - 1, 0)
    assert turn.max(initial=0) < each, "a round has more clients of a process than places for them"
    where = owner * each + turn % devices * (each // devices) + turn // devices
    made = np.tile(np.repeat(~np.arange(count, dtype=np.int32), each), (len(cohorts), 1))
    np.put_along_axis(made, where, cohorts.astype(np.int32), axis=1)
    return made


def tabled(mesh: Mesh, states: Any, who: Numbers) -> Any:
    """A table of all clients' states, from the states at their places."""
    clients = int(who.max()) + 1
    rows = np.zeros(processes(mesh) * share(mesh, clients), np.int64)
    taken = np.flatnonzero(is_taken(who))
    rows[at(mesh, clients, who[taken])] = taken
    program = jax.jit(lambda tree, rows: jax.tree.map(lambda a: a[rows], tree), out_shardings=divided(mesh))
    return program(states, rows)


def client_at(place: Any) -> Any:
    """The client whose rows and state a place of `arranged` works on, taking part or not.

    >>> client_at(np.array([5, ~1]))
    array([5, 1])
    """
    return place ^ (place >> 31)  # ~c for negative numbers


def is_taken(place: Any) -> Any:
    """Whether a client takes part at a place of `arranged`.

    >>> is_taken(np.array([5, ~1]))
    array([ True, False])
    """
    return place >= 0


def busiest(mesh_processes: int, cohorts: NDArray[Any]) -> int:
    """The most clients of one process in a round of `cohorts` [rounds, clients].

    >>> busiest(2, np.array([[0, 1, 2], [3, 1, 5]]))
    3
    """
    return max(int((cohorts % mesh_processes == p).sum(axis=1).max()) for p in range(mesh_processes))


def places_here(mesh: Mesh, places: int) -> slice:
    """The places of this process."""
    each, own = places // processes(mesh), held_here(mesh)
    return slice(own[0] * each, (own[-1] + 1) * each)


def spread(mesh: Mesh, tree: Any) -> Any:
    """Put host arrays with a row for each of this process' places on its devices."""
    lies = NamedSharding(mesh, over_devices(mesh))
    return jax.tree.map(lambda a: jax.make_array_from_process_local_data(lies, a), tree)


def read_here(tree: Any) -> Any:
    """The rows of this process' places, from arrays that are spread over all devices."""

    def rows(array: Any) -> Any:
        shards = sorted(array.addressable_shards, key=lambda shard: shard.index[0].start or 0)
        return np.concatenate([np.asarray(shard.data) for shard in shards])

    return jax.tree.map(rows, tree)
