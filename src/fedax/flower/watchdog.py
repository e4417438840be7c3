"""Ends a server whose SuperLink is gone: Flower would try to reach it for ever, and the process would stay."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator

SILENT = 3600.0  # seconds without an answer from the SuperLink


class Watchdog:
    """Calls `end` with a sentence when `seen` was not called for some seconds.

    >>> said = []
    >>> dog = Watchdog(said.append, seconds=0.0)
    >>> dog.look()
    >>> said
    ['the SuperLink has not answered for 0 s: start the server again to go on']
    """

    def __init__(self, end: Callable[[str], None], seconds: float = SILENT) -> None:
        self._end, self._seconds, self._last = end, seconds, time.monotonic()
        self._over = threading.Event()

    def seen(self) -> None:
        """The SuperLink has answered."""
        self._last = time.monotonic()

    def look(self) -> None:
        """End the server if it was silent for too long."""
        if time.monotonic() - self._last > self._seconds:
            self._end(f"the SuperLink has not answered for {self._seconds:g} s: start the server again to go on")

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Look now and then, in a thread of its own, while the block runs."""
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(min(60.0, self._seconds)):
            self.look()


def leave(code: int = 1) -> None:
    """End this process at once: its main thread waits for Flower."""
    os._exit(code)
