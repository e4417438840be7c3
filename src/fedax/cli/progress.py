"""What a run shows while it works: bars on a terminal, a line a run elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from fedax.experiments import Progress, Run

VISIBLE = 12  # finished runs whose bars stay on the screen
STOPPING = "stopping after this round; Ctrl-C again stops at once"


def console() -> Console:
    """Standard output; wide enough for the tables where there is no terminal to fit."""
    return Console(width=None if sys.stdout.isatty() else 140)


@contextmanager
def watch(console: Console, quiet: bool) -> Iterator[Progress]:
    """Progress on a console, while an experiment runs."""
    if quiet or not console.is_terminal:
        yield Lines()
        return
    bars = Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[metrics]}", markup=False),
        TimeElapsedColumn(),
        console=console,
    )
    with bars:
        yield Live(bars)


class Lines(Progress):
    """One plain line for each run that ended."""

    def goes_on(self, run: Run, round: int) -> None:
        print(again(run, round), flush=True)

    def end(self, run: Run) -> None:
        print(f"{name(run)}: {run.status} at round {run.round}, {metrics(run.metrics)}", flush=True)

    def stopping(self) -> None:
        print(STOPPING, file=sys.stderr, flush=True)


class Live(Progress):
    """A bar for each run with its latest metrics, and one for all of them together."""

    def __init__(self, bars: Bars) -> None:
        self.bars = bars
        self.rounds = self.done = 0
        self.compiling = False
        self.checking = bars.add_task("checking the experiment", total=None, metrics="")
        self.overall: TaskID | None = None
        self.current: list[TaskID] = []

    def begin(self, runs: list[Run], rounds: int) -> None:
        self.rounds = rounds
        self.bars.remove_task(self.checking)
        if len(runs) > 1:
            self.overall = self.bars.add_task("all runs", total=len(runs) * rounds, metrics="")

    def start(self, run: Run) -> None:
        self.current.append(self.bars.add_task(name(run), total=self.rounds, metrics="compiling"))
        self.compiling = True
        for old in self.current[:-VISIBLE]:
            self.bars.update(old, visible=False)

    def goes_on(self, run: Run, round: int) -> None:
        self.bars.console.print(again(run, round), markup=False, highlight=False)

    def advance(self, rounds: int) -> None:
        self.bars.update(self.current[-1], completed=rounds)
        if self.compiling:
            self.bars.update(self.current[-1], metrics="")
            self.compiling = False
        if self.overall is not None:
            self.bars.update(self.overall, completed=self.done + rounds)

    def evaluated(self, row: dict[str, Any]) -> None:
        self.compiling = False
        self.bars.update(self.current[-1], metrics=metrics(row))

    def end(self, run: Run) -> None:
        self.done += self.rounds
        self.bars.stop_task(self.current[-1])
        ended = [] if run.status == "finished" else [run.status]
        self.bars.update(self.current[-1], metrics=", ".join([*ended, metrics(run.metrics)]))

    def stopping(self) -> None:
        self.bars.console.print(STOPPING, markup=False)


def name(run: Run) -> str:
    """How a run is called on the screen."""
    return f"{run.label}, seed {run.seed}"


def again(run: Run, round: int) -> str:
    """Where a run goes on."""
    return f"{name(run)}: {f'goes on after round {round}' if round else 'starts over, it has no checkpoint'}"


def metrics(row: dict[str, Any]) -> str:
    """The main metrics of a row.

    >>> metrics({"round": 5, "test_accuracy": 0.9123, "test_loss": 0.31, "personal_test_accuracy": 0.98})
    'accuracy 91.2 %, loss 0.31, personal accuracy 98.0 %'
    """
    part = "test" if "test_loss" in row or "personal_test_loss" in row else "train"
    shown = {
        "accuracy": row.get(f"{part}_accuracy"),
        "loss": row.get(f"{part}_loss"),
        "personal accuracy": row.get(f"personal_{part}_accuracy"),
        "personal loss": row.get(f"personal_{part}_loss") if f"personal_{part}_accuracy" not in row else None,
    }
    words = {k: f"{100 * v:.1f} %" if "accuracy" in k else f"{v:.4g}" for k, v in shown.items() if v is not None}
    structure = {"F1": row.get("f1"), "density": row.get("density"), "rank": row.get("rank")}
    words |= {key: f"{value:.4g}" for key, value in structure.items() if value is not None}
    return ", ".join(f"{key} {value}" for key, value in words.items())
