"""A federation's rows for compiled programs: on the devices, or on disk and put there for one call.

A federation whose arrays are mapped from disk and exceed the budget (see `fedax.data.storage.sharing`) is never on
the devices as a whole. A round gets the rows of its minibatches, which are drawn beforehand by the clients' own
function of (seed, round, client). Where clients look at further rows (full gradients, fresh minibatches), or at all of
them, it gets all training rows of its cohort. Evaluation goes over blocks of rows, or over a few clients at a time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

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

    # -- what a call of a program needs; `Disk` has the same for rows that are not on the devices ----

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


def place_data(
    arrays: Mapping[str, Any], rows: Rows, steps: Any, place: Callable[[Any], Any], placed: Data | Disk | None = None
) -> Data | Disk:
    """A federation's rows: on the devices by `place`, or on disk where they are too large for it.

    placed: the same arrays where they lie on the devices already.

    >>> place_data({"x": np.ones(3)}, Rows(start=[0], count=[3]), [1], jax.device_put).arrays["x"].shape
    (3,)
    """
    if not too_large(arrays):
        if isinstance(placed, Data):
            made: Data = place(Data.of({}, rows, steps))
            return dataclasses.replace(made, arrays=placed.arrays)
        made = place(Data.of(arrays, rows, steps))
        return made
    size = sum(array.nbytes for array in arrays.values()) / 2**30
    log.info("the set, %.2f GiB, is above its budget: its rows stay on disk and come as they are needed", size)
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
        self._limit = budget() // max(1, sum(a.nbytes // max(1, len(a)) for a in self.arrays.values()))
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
        """What `look` finds out by tracing a client's round; whether it looks at its minibatches alone is noted."""
        made = Data.of({name: array[:1] for name, array in self.arrays.items()}, self.rows, self.steps)
        if plan.batch is not None and plan.max_steps * plan.batch < plan.max_rows:
            with contextlib.suppress(NotDrawn):
                found = look(dataclasses.replace(made, drawn=True))
                self.drawn = True
                return found
        return look(made)

    def for_round(self, plan: Plan, seed: Any, round: Any, who: Any) -> Data:
        """What the clients `who` need in a round."""
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
        """The training rows of some clients, with their rows `also` beside them, and where the latter begin.

        at_most: the largest number of clients in such a call; all calls then have arrays of one size.
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
        """Blocks of row numbers [blocks, rows], as many at a time as fit, as rows and their numbers among these.

        The blocks at a time are a multiple of a number; the last ones are filled up with the first.
        """
        size = blocks.shape[1]
        each = min(len(blocks), max(1, self._limit // (size * multiple)) * multiple)
        numbers = np.arange(each * size, dtype=np.int32).reshape(each, size)
        for first in range(0, len(blocks), each):
            rows = np.resize(blocks[first : first + each], (each, size)).ravel()
            yield self.place({name: jnp.asarray(array[rows]) for name, array in self.arrays.items()}), numbers


def _largest(rows: Rows) -> Array:
    """How many rows the largest client has, the two largest, and so on; those that clients share count once."""
    count = np.unique(np.stack([rows.start, rows.count]), axis=1)[1]
    sums: Array = np.cumsum(np.sort(count)[::-1])
    return sums
