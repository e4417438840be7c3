"""Events of an experiment: `Progress` is told of them, with the `Run` that each is about."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from fedax.runs.folder import Status


@dataclasses.dataclass(frozen=True)
class Run:
    """One method and one seed: where its files are, how it ended, and the last row of its history."""

    label: str
    seed: int
    folder: Path
    status: Status = "running"
    round: int = 0
    message: str = ""
    metrics: dict[str, Any] = dataclasses.field(default_factory=dict)
    rounds: int = 0  #: the rounds that it is to run; 0 where all run the same number
    title: str = ""  #: its name on the screen, if not its label and seed


class Progress:
    """Told of an experiment's events, and does nothing. Subclass it to show a bar."""

    def say(self, sentence: str) -> None:
        """A sentence for the user, before the runs begin."""

    def begin(self, runs: list[Run], rounds: int) -> None:
        """Everything is checked, and these runs follow."""

    def start(self, run: Run) -> None:
        """A run begins."""

    def goes_on(self, run: Run, round: int) -> None:
        """The run had begun before, and goes on after this round; 0 where it had no checkpoint."""

    def advance(self, rounds: int) -> None:
        """The current run has done this number of rounds."""

    def expect(self, seconds: float | None) -> None:
        """All that follows will take about this long; None where that is not known yet. Of a search alone."""

    def evaluated(self, row: dict[str, Any]) -> None:
        """The current run was evaluated."""

    def tried(self, run: Run, done: int, settings: int, best: str) -> None:
        """`done` of a sweep's settings are done; `best` is the best so far in words."""

    def end(self, run: Run) -> None:
        """A run ended."""

    def stopping(self) -> None:
        """Ctrl-C was pressed, and the current run stops after its round."""
