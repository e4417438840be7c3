"""One copy of a dataset in memory, and none where it is larger than the budget.

Arrays are read-only, so that federations may share them. Reading a set again gives the same arrays while a reference
to them exists. Arrays that together exceed the budget, 1 GiB or FEDAX_MEMORY_BUDGET in bytes, are kept on disk and
mapped into memory. Of several processes each holds only its own clients' rows, so the arrays that these are taken from
are always mapped.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedax.data.checks import Array
from fedax.errors import FedaxError
from fedax.runtime import process_count, user_cache
from fedax.whole_files import aside

PART = 1 << 24  # bytes of a mapped array that are in memory at a time while its rows are put in order
_held: dict[Hashable, dict[str, weakref.ref[Array]]] = {}


def budget() -> int:
    """The number of bytes of a dataset that may be in memory.

    >>> budget() >= 0
    True
    """
    given = os.environ.get("FEDAX_MEMORY_BUDGET") or str(2**30)
    if not given.isdecimal():
        raise FedaxError(f"FEDAX_MEMORY_BUDGET is {given!r}: it must be a whole number of bytes")
    return int(given)


def shared(key: Hashable, read: Callable[[], dict[str, Array]]) -> dict[str, Array]:
    """The arrays that `read` returns, or those that it returned before under the same key.

    >>> first = shared("three", lambda: {"x": np.arange(3)})
    >>> shared("three", lambda: {"x": np.arange(3)})["x"] is first["x"]
    True
    """
    arrays = {name: array() for name, array in _held.get(key, {}).items()}
    if arrays and all(array is not None for array in arrays.values()):
        return arrays  # type: ignore[return-value]
    fresh = within_budget(read())
    _held[key] = {name: weakref.ref(array) for name, array in fresh.items()}
    return fresh


def within_budget(arrays: dict[str, Array]) -> dict[str, Array]:
    """The arrays read-only, and mapped from disk where they are more than the budget.

    >>> within_budget({"x": np.arange(3)})["x"].flags.writeable
    False
    """
    small = sum(array.nbytes for array in arrays.values() if not _mapped(array)) <= _held_whole()
    kept = {
        name: array if small or _mapped(array) else _on_disk([array], array.dtype, array.shape)
        for name, array in arrays.items()
    }
    for array in kept.values():
        array.flags.writeable = False
    return kept


def in_order(array: Array, order: Array) -> Array:
    """The rows of an array in some order; if it is mapped and above the budget, in another file, a part at a time.

    >>> in_order(np.arange(3) + 10, np.array([2, 0]))
    array([12, 10])
    """
    if not _mapped(array) or array.nbytes <= _held_whole():
        return array[order]
    step = max(1, PART // max(1, array[:1].nbytes))
    parts = (array[order[first : first + step]] for first in range(0, len(order), step))
    return _on_disk(parts, array.dtype, (len(order), *array.shape[1:]))


def _held_whole() -> int:
    """The number of bytes of a dataset that a process with all of its rows may hold."""
    return budget() if process_count() == 1 else 0


def too_large(arrays: Mapping[str, Any]) -> bool:
    """Whether arrays are mapped from disk and more than the budget together.

    >>> too_large({"x": np.arange(3)})
    False
    """
    return any(map(_mapped, arrays.values())) and sum(array.nbytes for array in arrays.values()) > budget()


def filled(path: Path, shape: tuple[int, ...], fill: Callable[[Array], None]) -> Array:
    """An array of bytes mapped from `path`, which `fill` fills the first time; written whole or not at all."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside(path) as part:
            array = np.lib.format.open_memmap(part, "w+", np.uint8, shape)
            fill(array)
            array.flush()
    return np.asarray(np.load(path, mmap_mode="r"))


def _mapped(array: Any) -> bool:
    return isinstance(array, np.memmap) or (isinstance(array, np.ndarray) and _mapped(array.base))


def _on_disk(parts: Iterable[Array], dtype: Any, shape: tuple[int, ...]) -> Array:
    """An array that comes in parts, mapped from a file without a name that is removed with the array."""
    user_cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=user_cache()) as file:
        for part in parts:
            part.tofile(file)
        file.flush()
        # A plain view: others may index it, and a memmap's slices are slower.
        return np.asarray(np.memmap(file, dtype, "r", shape=shape))
