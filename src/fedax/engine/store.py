"""Clients' states as rows of bytes: in memory, or in a file that never overwrites a row a checkpoint still needs.

A client that never took part has no row: its state is the method's first one. A row that changes is written to a
free slot and the client's entry in the table of slots is moved there; so a copy of the table IS a snapshot of all
states, until a slot that it names is reused. That is why a checkpoint of a million clients costs only what changed
since the last one, and why a process killed half-way through a write loses nothing.
"""

from __future__ import annotations

import os
import re
import tempfile
import uuid
import zlib
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np
from numpy.typing import NDArray

from fedax.errors import FedaxError

Bytes = NDArray[np.uint8]
Index = NDArray[np.int64]
BUDGET = "2GiB"
NONE = -1  # the slot of a client without a row
_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def byte_count(size: str | int) -> int:
    """A number of bytes, as a whole number or with a unit.

    >>> byte_count("2GiB"), byte_count("1.5 MB"), byte_count(10)
    (2147483648, 1500000, 10)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(size))
    if isinstance(size, bool | float) or not match or match[2].upper() not in _UNITS or float(match[1]) <= 0:
        raise FedaxError(f"state_budget must be a size such as 2GiB or 500MB, not {size!r}")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def readable(size: float) -> str:
    """A number of bytes for people.

    >>> readable(3 * 2**29)
    '1.5 GiB'
    """
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{int(size)} B"


class Packing:
    """How one client's state becomes a row of bytes and back."""

    def __init__(self, state: Any) -> None:
        leaves, self.tree = jax.tree.flatten(jax.tree.map(np.asarray, jax.device_get(state)))
        self.shapes = [(leaf.shape, leaf.dtype) for leaf in leaves]
        self.ends = np.cumsum([leaf.nbytes for leaf in leaves], dtype=np.int64)
        self.size = int(self.ends[-1]) if leaves else 0
        self.first = self.pack([leaf[None] for leaf in leaves])[0]

    def pack(self, states: Any) -> Bytes:
        """Stacked states as rows."""
        leaves = [np.ascontiguousarray(np.asarray(leaf)) for leaf in jax.tree.leaves(states)]
        parts = [leaf.reshape(len(leaf), -1).view(np.uint8) for leaf in leaves]
        return np.concatenate(parts, axis=1) if parts else np.zeros((1, 0), np.uint8)

    def unpack(self, rows: Bytes) -> Any:
        """Rows as stacked states."""
        parts = np.split(rows, self.ends[:-1], axis=1) if self.shapes else []
        leaves = [
            np.ascontiguousarray(part).view(dtype).reshape(len(rows), *shape)
            for part, (shape, dtype) in zip(parts, self.shapes, strict=True)
        ]
        return jax.tree.unflatten(self.tree, leaves)


class Slots(Protocol):
    """Numbered places for rows."""

    def read(self, slots: Index) -> Bytes:
        """The rows in these slots."""

    def write(self, slots: Index, rows: Bytes) -> None:
        """Put rows into these slots."""


class MemorySlots:
    """Slots in memory. Room for `rows` slots is reserved at once, and the system provides memory as they are written:
    so the rows are never copied to a larger array, for which both would have to fit."""

    def __init__(self, size: int, rows: int = 0) -> None:
        self._rows = np.zeros((rows, size), np.uint8)

    def read(self, slots: Index) -> Bytes:
        return self._rows[slots]

    def write(self, slots: Index, rows: Bytes) -> None:
        need = int(slots.max(initial=-1)) + 1
        if need > len(self._rows):
            grown = np.zeros((max(need, len(self._rows) * 3 // 2), self._rows.shape[1]), np.uint8)
            grown[: len(self._rows)] = self._rows
            self._rows = grown
        self._rows[slots] = rows


class FileSlots:
    """Slots in a file; it is mapped while rows are read or written and not in between, so it holds no memory."""

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size = path, size

    def _map(self, slots: Index, mode: Any) -> Any:
        need = int(slots.max(initial=-1)) + 1
        have = self.path.stat().st_size // self.size if self.path.exists() else 0
        if need > have:
            if mode == "r":
                raise FedaxError(f"{self.path} is truncated: it holds {have} rows of clients' states, not {need}")
            have = max(need, have * 3 // 2)
            try:
                _grow(self.path, have * self.size)
            except OSError as error:
                why = (error.strerror or str(error)).lower()
                raise FedaxError(f"clients' states cannot be written to {self.path}: {why}") from error
        return np.memmap(self.path, np.uint8, mode, shape=(have, self.size))

    def read(self, slots: Index) -> Bytes:
        if not len(slots):
            return np.zeros((0, self.size), np.uint8)
        return np.asarray(self._map(slots, "r")[slots])

    def write(self, slots: Index, rows: Bytes) -> None:
        if len(slots):
            self._map(slots, "r+")[slots] = rows

    def remove(self) -> None:
        """Delete the file, and its directory if nothing else is in it."""
        self.path.unlink(missing_ok=True)
        if self.path.parent.exists() and not any(self.path.parent.iterdir()):
            self.path.parent.rmdir()

    def flush(self) -> None:
        """Wait until everything is on the disk."""
        with self.path.open("rb+") as file:
            os.fsync(file.fileno())


def _grow(path: Path, size: int) -> None:
    """Allocate the blocks of a file: a full disk is an error now, and not a bus error on a mapped page later."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)


class Store:
    """Every client's state, kept in slots."""

    def __init__(self, packing: Packing, clients: int, slots: Slots) -> None:
        self.packing, self.clients, self.slots = packing, clients, slots
        self.table = np.full(clients, NONE, np.int64)
        self._free = np.zeros(0, np.int64)
        self._fresh = np.zeros(
            0, bool
        )  # whether a slot was written after the newest checkpoint, so that no checkpoint names it
        self._end = 0  # slots from here on were never used

    def take(self, who: Any) -> Any:
        """The states of some clients, stacked."""
        return self.packing.unpack(self.take_rows(who))

    def take_rows(self, who: Any) -> Bytes:
        """The packed states of some clients."""
        at = self.table[np.asarray(who)]
        rows = np.repeat(self.packing.first[None], len(at), axis=0)
        rows[at >= 0] = self.slots.read(at[at >= 0])
        return rows

    def put(self, who: Any, states: Any) -> None:
        """Write the states of some clients, each named once."""
        if self.packing.size:
            self.put_rows(np.asarray(who), self.packing.pack(states))

    def put_rows(self, who: Index, rows: Bytes) -> None:
        """Write packed states of some clients."""
        at = self.table[who]
        moving = np.ones(len(at), bool)
        moving[at >= 0] = ~self._fresh[at[at >= 0]]
        at[moving] = self._allocate(int(moving.sum()))
        self.slots.write(at, rows)
        self.table[who] = at

    def _allocate(self, count: int) -> Index:
        reused, self._free = self._free[:count], self._free[count:]
        new = np.arange(self._end, self._end + count - len(reused))
        self._end += len(new)
        if self._end > len(self._fresh):
            self._fresh = np.pad(self._fresh, (0, self._end + self._end // 2 - len(self._fresh)))
        slots = np.concatenate([reused, new])
        self._fresh[slots] = True
        return slots

    def keep(self, tables: list[Index]) -> None:
        """Free all slots but those that clients' rows are in now and those that these tables name."""
        held = np.unique(np.concatenate([self.table, *tables]))
        self._end = int(held.max(initial=NONE)) + 1
        self._free = np.setdiff1d(np.arange(self._end), held)
        self._fresh = np.zeros(self._end, bool)
        self._fresh[self.table[self.table >= 0]] = True
        for table in tables:
            self._fresh[table[table >= 0]] = False

    def checksum(self) -> int:
        """The bytes of all rows that the table names, in the order of clients."""
        total = 0
        present = self.table[self.table >= 0]
        for part in np.array_split(present, max(1, -(-len(present) * self.packing.size // (64 << 20)))):
            total = zlib.crc32(self.slots.read(part).tobytes(), total)
        return total


def choose_slots(
    packing: Packing, clients: int, cohort: int, rounds: int, copies: int, budget: str | int | None, path: Path | None
) -> MemorySlots | FileSlots | None:
    """Where clients' states are kept: None for the devices (which hold `copies` of all), else memory, else a file.

    The first that fits the budget is taken; in memory only clients that take part need room.
    """
    limit = byte_count(BUDGET if budget is None else budget)
    if cohort * packing.size > limit:
        need = readable(cohort * packing.size)
        raise FedaxError(f"state_budget is {readable(limit)}: the states of one cohort of {cohort} clients need {need}")
    if clients * packing.size * copies <= limit:
        return None
    most = min(clients, rounds * cohort)
    if most * packing.size <= limit:
        return MemorySlots(packing.size, most)
    path = path or Path(tempfile.gettempdir()) / f"fedax-{uuid.uuid4().hex}" / "states.bin"  # made when first written
    return FileSlots(path, packing.size)
