"""How long the rest of a search takes, from what its first parts took.

A part's first sign of life comes after its program has been compiled, and what follows it are rounds alone. A round of
one setting takes the same time in every stage, so the two together say what later stages take.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """The time that a plan still takes.

    programs: how many of its parts compile. rounds: those of all settings, added up. now: tells the time.

    >>> times = iter([0.0, 2.1, 3.1, 3.1])
    >>> clock = Clock(programs=2, rounds=31, now=lambda: next(times))
    >>> clock.begin(); clock.advance(1); clock.advance(11); clock.end(11, compiled=True)
    >>> round(clock.left, 6)  # one program for 2 s, 20 rounds for 0.1 s each
    4.0
    """

    def __init__(self, programs: int, rounds: float, now: Callable[[], float] = time.perf_counter) -> None:
        self.programs, self.rounds, self._now = programs, rounds, now
        self._began, self._marks = 0.0, list[tuple[int, float]]()
        self._running = (0, 0.0)  # rounds after first signs of life, and their seconds
        self._compiling = (0, 0, 0.0)  # parts that compiled, their rounds, and their seconds

    def begin(self) -> None:
        """A part begins."""
        self._began, self._marks = self._now(), []

    def advance(self, rounds: int) -> None:
        """The part has done this number of rounds."""
        self._marks = [*self._marks[:1], (rounds, self._now())]

    def end(self, rounds: int, *, compiled: bool) -> None:
        """The part is done; rounds: those that were planned for it."""
        self._running = self._measured()
        if compiled:
            parts, before, seconds = self._compiling
            self._compiling = parts + 1, before + rounds, seconds + self._now() - self._began
            self.programs -= 1
        self.rounds, self._marks = self.rounds - rounds, []

    def left_out(self, rounds: int) -> None:
        """A part was done earlier."""
        self.rounds -= rounds

    def _measured(self) -> tuple[int, float]:
        (rounds, seconds), marks = self._running, self._marks
        if len(marks) < 2:
            return rounds, seconds
        return rounds + marks[1][0] - marks[0][0], seconds + marks[1][1] - marks[0][1]

    @property
    def left(self) -> float | None:
        """Seconds; None until rounds have been measured."""
        rounds, seconds = self._measured()
        if not rounds:
            return None
        each, (parts, within, whole) = seconds / rounds, self._compiling
        compiling = max(0.0, whole - each * within) / parts if parts else 0.0
        done = self._marks[-1][0] if self._marks else 0
        return max(0.0, each * (self.rounds - done) + compiling * self.programs)
