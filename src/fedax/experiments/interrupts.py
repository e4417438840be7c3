"""Ctrl-C takes effect between rounds, because within a compiled program XLA holds the run's state."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fedax.runtime import agreed


class Stopped(Exception):
    """The user asked to stop, and the run is at a place where its state is whole."""


class Interrupt:
    """Whether Ctrl-C was pressed; `check` raises Stopped if so."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self._pressed = False
        self._notify = notify

    @property
    def asked(self) -> bool:
        """Of several processes the first decides for all."""
        return bool(agreed(self._pressed))

    def check(self) -> None:
        """Raise Stopped if Ctrl-C was pressed; called where it is safe to stop."""
        if self.asked:
            raise Stopped

    def handle(self, *_: Any) -> None:
        """The signal's handler: the first Ctrl-C waits for the round, the second does not."""
        if self._pressed:
            raise KeyboardInterrupt
        self._pressed = True
        self._notify()


@contextmanager
def deferred(notify: Callable[[], None]) -> Iterator[Interrupt]:
    """Turn the first Ctrl-C into a note to stop after the round; only the main thread gets signals."""
    interrupt = Interrupt(notify)
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = signal.signal(signal.SIGINT, interrupt.handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
