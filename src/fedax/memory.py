"""Checks that something fits the available memory before any of it is allocated."""

from __future__ import annotations

import os
from pathlib import Path

from fedax.errors import FedaxError

_MEMORY = Path("/proc/meminfo")


def available() -> int | None:
    """The bytes that programs may still take on this machine; None where the system does not say.

    >>> available() is None or available() > 0
    True
    """
    try:
        lines = dict(line.split(":", 1) for line in _MEMORY.read_text().splitlines())
        return (int(lines["MemAvailable"].split()[0]) + int(lines["SwapFree"].split()[0])) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def check_memory(what: str, size: float) -> None:
    """Raise if something takes more memory than is available.

    what: the subject of the error's sentence, with the field that determines the size.

    >>> check_memory("hidden is [10 ** 12]: the model", 4e12)
    Traceback (most recent call last):
    fedax.errors.FedaxError: hidden is [10 ** 12]: the model takes 3.6 TiB of memory, and ... available
    """
    there = available()
    if there is not None and size > there:
        raise FedaxError(f"{what} takes {shown(size)} of memory, and {shown(there)} is available")


def shown(size: float) -> str:
    """A number of bytes in words.

    >>> shown(3 * 2**30), shown(1e6)
    ('3.0 GiB', '976.6 KiB')
    """
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB")
    power = 0
    while size >= 1024 and power < len(units) - 1:
        size, power = size / 1024, power + 1
    return f"{size:.1f} {units[power]}"
