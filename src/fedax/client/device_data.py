"""A federation's rows for compiled programs: on the devices, or on disk and put there for one call.

A federation whose arrays are mapped from disk and exceed the budget (see `fedax.data.storage.sharing`) is never on
the devices as a whole. A round gets the rows of its minibatches, which are drawn beforehand by the clients' own
function of (seed, round, client). Where clients look at further rows (full gradients, fresh minibatches), or at all of
them, it gets all training rows of its cohort. Evaluation goes over blocks of rows, or over a few clients at a time.

Of several processes each has the rows of the clients that it holds (`DividedRows`; see `fedax.client.shares`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from fedax import platforms
from fedax.client import shares
from fedax.client.draws import minibatches_program
from fedax.client.plan import Plan
from fedax.data.checks import Array
from fedax.data.federation import Rows
from fedax.data.storage.sharing import budget, too_large
from fedax.schedules import register

Batch = Mapping[str, Any]
T = TypeVar("T")
log = logging.getLogger("fedax")


@dataclasses.dataclass(frozen=True)
class Data:
    """The federation on the device: flat arrays, and where each client's training rows begin and how many.

    With `make`, a client's rows are made from its number when it takes part, and there are no flat arrays. With
    `drawn`, the arrays hold one round's minibatches alone, those of each client in the order of its steps. With
    `divided`, each process has arrays of its own, and a client's rows are in those of the process that holds it.
    """

    arrays: dict[str, jax.Array]
    start: jax.Array
    count: jax.Array
    steps: jax.Array
    make: Callable[[Any, int], Batch] | None = None
    drawn: bool = False
    divided: bool = False

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

    def specs(self, mesh: Mesh) -> Any:
        """How the rows lie over a mesh: the same on all devices, or divided over the processes."""
        if not self.divided:
            return P()
        lies: dict[str, Any] = {"arrays": shares.over_processes(mesh), "start": P(), "count": P(), "steps": P()}
        return dataclasses.replace(self, **lies)

    # -- the data for one call of a program; `Disk` has the same methods for rows that are not on the devices ----

    @property
    def at_once(self) -> int:
        """The largest number of clients in one call."""
        return len(self.count)

    def traced(self, look: Callable[[Data], T], plan: Plan) -> T:
        """What `look` returns: a function that traces a client's round on these data."""
        return look(self)

    def for_round(self, plan: Plan, seed: Any, round: Any, who: Any) -> Data:
        """The data that the clients `who` use in a round."""
        return self

    def some(self, who: Any, at_most: int | None = None, also: Any = None) -> tuple[Data, Any]:
        """The data of the clients `who`, and where each one's rows in the ranges `also` begin, if these are given."""
        return self, None if also is None else also.start

    def blocks(self, blocks: Any, multiple: int) -> Iterator[tuple[dict[str, Any], Any]]:
        """The arrays and the blocks of row numbers in them, a part at a time."""
        yield self.arrays, blocks


register(Data, leaves=["arrays", "start", "count", "steps"], static=["make", "drawn", "divided"])


class NotDrawn(Exception):
    """A client looks at rows that are not among its round's minibatches."""


def place_data(
    arrays: Mapping[str, Any],
    rows: Rows,
    steps: Any,
    mesh: Mesh,
    placed: Data | Disk | None = None,
    others: Sequence[Rows] = (),
) -> Data | Disk:
    """A federation's rows: on the devices of a mesh, or on disk where they are too large for it.

    placed: the same arrays where they lie on the devices already. others: rows of the clients besides.

    >>> mesh = jax.make_mesh((1,), ("clients",))
    >>> place_data({"x": np.ones(3)}, Rows(start=[0], count=[3]), [1], mesh).arrays["x"].shape
    (3,)
    """
    place = functools.partial(shares.place, mesh)
    if shares.is_divided(mesh):
        if isinstance(placed, DividedRows) and placed.holds(arrays, (rows, *others)):
            return placed.working(steps)
        holding = Holding.of(mesh, (rows, *others))
        if (not too_large(arrays) or holding.length * _row_bytes(arrays) <= budget()) and _fits(arrays, holding.length):
            return DividedRows(arrays, rows, steps, mesh, holding)
    elif not too_large(arrays) and _fits(arrays):
        if isinstance(placed, Data):
            made: Data = place(Data.of({}, rows, steps))
            return dataclasses.replace(made, arrays=placed.arrays)
        made = place(Data.of(arrays, rows, steps))
        return made
    size = sum(array.nbytes for array in arrays.values()) / 2**30
    log.info("the set, %.2f GiB, is above its budget: its rows come to the devices as they are needed", size)
    return Disk(arrays, rows, steps, place)


class Disk:
    """A federation's rows on disk, with the methods of `Data` that give what a call needs.

    >>> disk = Disk({"x": np.arange(6)}, Rows(start=[0, 2, 4], count=[2, 2, 2]), [1, 1, 1], jax.device_put)
    >>> disk.some([2])[0].arrays["x"]
    Array([4, 5], dtype=int32)
    """

    def __init__(self, arrays: Mapping[str, Array], rows: Rows, steps: Any, place: Callable[[Any], Any]) -> None:
        self.arrays, self.rows, self.steps, self.place = dict(arrays), rows, steps, place
        self.drawn = False  #: whether a round's minibatches are all that its clients look at
        self._limit = min(budget(), platforms.room_to_hold() or budget()) // max(1, _row_bytes(arrays))
        self._last: tuple[bytes, Data] | None = None

    @property
    def at_once(self) -> int:
        """How many clients' training rows fit the budget together, at least one."""
        fit = int(np.searchsorted(self._largest, self._limit, side="right"))
        return len(self.rows) if fit == len(self._largest) else max(1, fit)

    @functools.cached_property
    def _largest(self) -> Array:
        return _largest(self.rows)

    def traced(self, look: Callable[[Data], T], plan: Plan) -> T:
        """What `look` returns; notes whether the traced round reads its minibatches alone."""
        made = Data.of({name: array[:1] for name, array in self.arrays.items()}, self.rows, self.steps)
        if plan.batch is not None and plan.max_steps * plan.batch < plan.max_rows:
            with contextlib.suppress(NotDrawn):
                found = look(dataclasses.replace(made, drawn=True))
                self.drawn = True
                return found
        return look(made)

    def for_round(self, plan: Plan, seed: Any, round: Any, who: Any) -> Data:
        """The data that the clients at the places `who` use in a round."""
        who = shares.client_at(who)
        if self.drawn:
            return self._minibatches(plan, seed, round, np.asarray(who))
        key = np.unique(who).tobytes()
        if self._last is None or self._last[0] != key:
            self._last = None  # given up before the next is made
            self._last = key, self.some(who, min(len(who), len(self.rows)))[0]
        return self._last[1]

    def _minibatches(self, plan: Plan, seed: Any, round: Any, who: Array) -> Data:
        counts = jnp.asarray(self.rows.count[who], jnp.int32)
        index = np.asarray(minibatches_program(plan)(seed, round, who, counts), np.int64)  # [clients, steps, batch]
        rows = (self.rows.start[who][:, None, None] + index).ravel()
        order = np.argsort(rows)  # a disk is read from front to back
        taken = {}
        for name, array in self.arrays.items():
            taken[name] = np.empty((len(rows), *array.shape[1:]), array.dtype)
            taken[name][order] = array[rows[order]]
        start = np.zeros(len(self.rows), np.int64)
        start[who] = np.arange(len(who)) * index[0].size
        made = Data.of(taken, Rows(start, self.rows.count), self.steps)
        placed: Data = self.place(dataclasses.replace(made, drawn=True))
        return placed

    def some(self, who: Any, at_most: int | None = None, also: Rows | None = None) -> tuple[Data, Array]:
        """The training rows of the clients `who`, with their rows in the ranges `also`, and where the latter begin.

        at_most: the largest number of clients in any call, so that all calls have arrays of one size.
        """
        who = np.unique(np.asarray(who))
        parts = [self.rows] if also is None else [self.rows, also]
        sums = [self._largest] if also is None else [self._largest, _largest(also)]
        room = sum(int(largest[: at_most or len(who)][-1]) for largest in sums)
        taken = {name: np.zeros((room, *array.shape[1:]), array.dtype) for name, array in self.arrays.items()}
        starts, end = [], 0
        for rows in parts:
            ranges = np.stack([rows.start[who], rows.count[who]])
            (first, count), of = np.unique(ranges, axis=1, return_inverse=True)  # clients may share their rows
            at = end + np.cumsum(count) - count
            for f, c, a in zip(first.tolist(), count.tolist(), at.tolist(), strict=True):
                for name, array in self.arrays.items():
                    taken[name][a : a + c] = array[f : f + c]
            starts.append(np.zeros(len(rows), np.int64))
            starts[-1][who] = at[of]
            end += int(count.sum())
        data: Data = self.place(Data.of(taken, Rows(starts[0], self.rows.count), self.steps))
        return data, starts[-1]

    def blocks(self, blocks: Array, multiple: int) -> Iterator[tuple[dict[str, Any], Array]]:
        """Read blocks of row numbers [blocks, rows], as many at a time as fit: the rows, and new numbers for them.

        The number of blocks at a time is a multiple of `multiple`; the last ones are filled up with the first.
        """
        size = blocks.shape[1]
        each = min(len(blocks), max(1, self._limit // (size * multiple)) * multiple)
        numbers = np.arange(each * size, dtype=np.int32).reshape(each, size)
        for first in range(0, len(blocks), each):
            rows = np.resize(blocks[first : first + each], (each, size)).ravel()
            yield self.place({name: jnp.asarray(array[rows]) for name, array in self.arrays.items()}), numbers


@dataclasses.dataclass(frozen=True)
class Holding:
    """Which rows of the flat arrays each process holds: those of its clients, in order, each once."""

    parts: tuple[Rows, ...]
    index: tuple[Array, ...]  #: by process
    length: int  #: of the longest

    @classmethod
    def of(cls, mesh: Mesh, parts: tuple[Rows, ...]) -> Holding:
        """The rows of clients' ranges."""
        count, end = shares.processes(mesh), max(int((part.start + part.count).max()) for part in parts)
        index = []
        for process in range(count):
            marks = np.zeros(end + 1, np.int64)
            for part in parts:
                start, size = part.start[process::count], part.count[process::count]
                np.add.at(marks, start, size > 0)
                np.subtract.at(marks, start + size, size > 0)
            index.append(np.flatnonzero(np.cumsum(marks) > 0))
        return cls(parts, tuple(index), max(map(len, index)))

    def start(self, part: Rows) -> Array:
        """Where each client's range begins among the rows of the process that holds it."""
        begin, count = np.zeros_like(part.start), len(self.index)
        for process, index in enumerate(self.index):
            begin[process::count] = np.searchsorted(index, part.start[process::count])
        return begin

    def dealt(self, rows: Array) -> tuple[Array, Array]:
        """The process that reads each row, chosen in turn among those that hold it, and the row's number there."""
        turn, count = np.arange(len(rows)), len(self.index)
        chosen, best = np.zeros(len(rows), np.int64), np.full(len(rows), count)
        where = np.zeros(len(rows), np.int64)
        for process, index in enumerate(self.index):
            at = np.minimum(np.searchsorted(index, rows), len(index) - 1)
            nearer = (index[at] == rows) & ((process - turn) % count < best)
            chosen[nearer], best[nearer], where[nearer] = process, ((process - turn) % count)[nearer], at[nearer]
        return chosen, where


class DividedRows(Disk):
    """A federation's rows divided over the processes of a run: each process has its own clients' rows in `near`.

    A computation that every process repeats, such as smoothness, reads some clients' rows at a time as from a disk.
    """

    def __init__(
        self, arrays: Mapping[str, Array], rows: Rows, steps: Any, mesh: Mesh, holding: Holding, near: Any = None
    ) -> None:
        super().__init__(arrays, rows, steps, functools.partial(shares.place, mesh))
        self.mesh, self.holding = mesh, holding

        def own(process: int) -> dict[str, Array]:
            taken = np.resize(holding.index[process], holding.length)  # filled up with the first
            return {name: np.asarray(array[taken]) for name, array in arrays.items()}

        numbers = self.place(Data.of({}, Rows(holding.start(rows), rows.count), steps))
        self.near: Data = dataclasses.replace(
            numbers, arrays=shares.divide(mesh, own) if near is None else near, divided=True
        )

    def holds(self, arrays: Mapping[str, Any], parts: tuple[Rows, ...]) -> bool:
        """Whether the rows are those of these ranges of these arrays."""
        same = all(arrays.get(name) is array for name, array in self.arrays.items())
        pairs = zip(self.holding.parts, parts, strict=True)
        return same and all(np.array_equal(a.start, b.start) and np.array_equal(a.count, b.count) for a, b in pairs)

    def working(self, steps: Any) -> DividedRows:
        """The same rows, for clients with other numbers of local steps."""
        return DividedRows(self.arrays, self.rows, steps, self.mesh, self.holding, self.near.arrays)

    @property
    def at_once(self) -> int:
        """The number of clients that a process holds."""
        return shares.share(self.mesh, len(self.rows))

    def traced(self, look: Callable[[Data], T], plan: Plan) -> T:
        """What `look` returns; it traces a round on one row of each array."""
        return look(Data.of({name: array[:1] for name, array in self.arrays.items()}, self.rows, self.steps))

    def for_round(self, plan: Plan, seed: Any, round: Any, who: Any) -> Data:
        """The data that clients use in a round: those of the process, whatever the places."""
        return self.near

    def dealt_blocks(self, rows: Array, block: int) -> tuple[Array, Array]:
        """Divide rows over the processes that read them: blocks [blocks, rows] of their numbers in those processes, and
        the position of each row among all blocks."""
        chosen, where = self.holding.dealt(rows)
        count = shares.processes(self.mesh)
        each = max(int((chosen == process).sum()) for process in range(count))
        unit = block * (self.mesh.devices.size // count)
        room = -(-each // unit) * unit
        numbers, order = np.zeros(count * room, np.int32), np.zeros(len(rows), np.int64)
        for process in range(count):
            mine = np.flatnonzero(chosen == process)
            order[mine] = process * room + np.arange(len(mine))
        numbers[order] = where
        return numbers.reshape(-1, block), order


def _fits(arrays: Mapping[str, Any], rows: int | None = None) -> bool:
    """Whether this number of rows, or all of them, fits on a device with memory of its own."""
    room = platforms.room_to_hold()
    most = max((len(array) for array in arrays.values()), default=0) if rows is None else rows
    return room is None or most * _row_bytes(arrays) <= room


def _row_bytes(arrays: Mapping[str, Any]) -> int:
    return sum(a.nbytes // max(1, len(a)) for a in arrays.values())


def _largest(rows: Rows) -> Array:
    """The number of rows of the largest client, of the two largest, and so on; rows that clients share count once."""
    count = np.unique(np.stack([rows.start, rows.count]), axis=1)[1]
    sums: Array = np.cumsum(np.sort(count)[::-1])
    return sums
