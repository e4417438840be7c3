"""What a run shows while it works: bars on a terminal; elsewhere a line a minute, and one when it ends."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TaskID, TextColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from fedax.cli.console import WIDE
from fedax.experiments import Progress, Run
from fedax.report.columns import parse
from fedax.runtime import is_main_process

VISIBLE = 12  # finished runs whose bars stay on the screen
A_MINUTE = 60.0  # seconds between two lines on a run that is under way
STOPPING = "stopping after this round; Ctrl-C again stops at once"


@contextmanager
def watch(console: Console, quiet: bool) -> Iterator[Progress]:
    """Progress on a console, while an experiment runs; of several processes the first speaks."""
    if not is_main_process():
        yield Progress()
        return
    if quiet or not console.is_terminal:
        with _exports_shown(lines := Lines()):
            yield lines
        return
    bars = Bars(
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
        BarColumn(bar_width=40 if console.width >= WIDE else 10, table_column=Column(no_wrap=True)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        Metrics(),
        Clock(table_column=Column(no_wrap=True)),
        console=console,
        speed_estimate_period=300,  # rounds may take many seconds each
    )
    with bars, _exports_shown(live := Live(bars)):
        yield live


@contextmanager
def _exports_shown(progress: Progress) -> Iterator[None]:
    """Say that a PyTorch module is being exported, which takes seconds."""
    log = logging.getLogger("fedax.models.torch")
    before = log.level
    handler = logging.Handler()
    handler.emit = lambda record: progress.say(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


class Metrics(ProgressColumn):
    """The latest metrics: the one column that a narrow terminal cuts."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["metrics"], no_wrap=True, overflow="ellipsis")


class Clock(ProgressColumn):
    """The time that a run still takes; before that is known, and after the run, the time it has taken."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        if (left := task.fields.get("left")) is not None:
            return Text(f"{timedelta(seconds=int(left))} left")
        if task.finished or task.time_remaining is None:
            taken = task.finished_time if task.finished else task.elapsed
            return Text(str(timedelta(seconds=int(taken or 0))))
        return Text(f"{timedelta(seconds=int(task.time_remaining))} left")


class Lines(Progress):
    """One plain line for each run that ended, and one a minute on the current run: its progress and the time left."""

    def __init__(self) -> None:
        self.rounds = 0
        self.metrics = ""
        self.first: tuple[float, int] | None = None  # a time after compilation, and the rounds done by then
        self.spoke = 0.0
        self.expected: float | None = None  # seconds of all that follows
        self.promised = time.monotonic()  # when that was last said

    def say(self, sentence: str) -> None:
        print(sentence, flush=True)

    def begin(self, runs: list[Run], rounds: int) -> None:
        self.rounds = rounds

    def start(self, run: Run) -> None:
        self.run, self.metrics, self.first, self.spoke = run, "", None, time.monotonic()

    def advance(self, rounds: int) -> None:
        now = time.monotonic()
        if self.first is None:
            self.first = now, rounds
        if now - self.spoke < A_MINUTE:
            return
        self.spoke = now
        total = self.run.rounds or self.rounds
        (began, had), left = self.first, ""
        if had < rounds < total:
            left = f"about {duration((now - began) * (total - rounds) / (rounds - had))} left"
        parts = (f"{100 * rounds / total:.0f} %", self.metrics, left)
        print(f"{name(self.run)}: {', '.join(filter(None, parts))}", flush=True)

    def expect(self, seconds: float | None) -> None:
        self.expected = seconds

    def evaluated(self, row: dict[str, Any]) -> None:
        self.metrics = metrics(row)

    def goes_on(self, run: Run, round: int) -> None:
        print(again(run, round), flush=True)

    def tried(self, run: Run, done: int, settings: int, best: str) -> None:
        print(f"{name(run)}: {done} of {settings} settings, {best}", flush=True)

    def end(self, run: Run) -> None:
        words = metrics(run.metrics)
        how = f"{run.status} at round {run.round}, {words}" if words else run.status
        print(f"{name(run)}: {how}", flush=True)
        if self.expected is not None and (now := time.monotonic()) - self.promised >= A_MINUTE / 4:
            self.promised = now
            print(f"about {duration(self.expected)} left", flush=True)

    def stopping(self) -> None:
        print(STOPPING, file=sys.stderr, flush=True)


class Live(Progress):
    """A bar for each run with its latest metrics, and one for all of them together."""

    def __init__(self, bars: Bars) -> None:
        self.bars = bars
        self.rounds = self.done = 0
        self.compiling = False
        self.checking: TaskID | None = bars.add_task("checking the experiment", total=None, metrics="")
        self.overall: TaskID | None = None
        self.search: TaskID | None = None
        self.began = time.monotonic()
        self.current: list[TaskID] = []

    def say(self, sentence: str) -> None:
        self.bars.console.print(sentence, markup=False, highlight=False)

    def begin(self, runs: list[Run], rounds: int) -> None:
        self.rounds, self.done = rounds, 0
        for over in (self.checking, self.overall):  # a search or a reproduction begins several times
            if over is not None:
                self.bars.remove_task(over)
        self.checking = self.overall = None
        if len(runs) > 1:
            self.overall = self.bars.add_task("all runs", total=sum(run.rounds or rounds for run in runs), metrics="")

    def start(self, run: Run) -> None:
        self.current.append(self.bars.add_task(name(run), total=run.rounds or self.rounds, metrics="compiling"))
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

    def expect(self, seconds: float | None) -> None:
        if self.search is None:
            self.search = self.bars.add_task("the search", total=100, metrics="")
        if seconds is not None:
            taken = time.monotonic() - self.began
            self.bars.update(self.search, completed=int(100 * taken / max(taken + seconds, 1e-9)), left=seconds)

    def evaluated(self, row: dict[str, Any]) -> None:
        self.compiling = False
        self.bars.update(self.current[-1], metrics=metrics(row))

    def tried(self, run: Run, done: int, settings: int, best: str) -> None:
        self.bars.update(self.current[-1], metrics=f"{done} of {settings} settings, {best}")

    def end(self, run: Run) -> None:
        self.done += run.rounds or self.rounds
        self.bars.stop_task(self.current[-1])
        ended = [] if run.status == "finished" else [run.status]
        self.bars.update(self.current[-1], metrics=", ".join([*ended, metrics(run.metrics)]))

    def stopping(self) -> None:
        self.bars.console.print(STOPPING, markup=False)


def duration(seconds: float) -> str:
    """A time to wait, in words.

    >>> duration(40), duration(90), duration(5000), duration(400_000)
    ('1 minute', '2 minutes', '83 minutes', '111 hours')
    """
    minutes = max(1, round(seconds / 60))
    if minutes >= 120:
        return f"{round(minutes / 60)} hours"
    return f"{minutes} minute{'s' if minutes > 1 else ''}"


def name(run: Run) -> str:
    """A run's name on the screen."""
    return run.title or f"{run.label}, seed {run.seed}"


def again(run: Run, round: int) -> str:
    """The line that says from which round a run goes on."""
    return f"{name(run)}: {f'goes on after round {round}' if round else 'starts over, it has no checkpoint'}"


def metrics(row: dict[str, Any]) -> str:
    """The main metrics of a row, and those that were asked for.

    >>> metrics({"round": 5, "test_accuracy": 0.9123, "test_loss": 0.31, "personal_test_accuracy": 0.98})
    'accuracy 91.2 %, loss 0.31, personal accuracy 98.0 %'
    """
    parts = [part for part in ("test", "validation") if f"{part}_loss" in row or f"personal_{part}_loss" in row]
    part = (*parts, "train")[0]
    percent = {"accuracy", "personal accuracy"}
    shown = {
        "accuracy": row.get(f"{part}_accuracy"),
        "loss": row.get(f"{part}_loss"),
        "personal accuracy": row.get(f"personal_{part}_accuracy"),
        "personal loss": row.get(f"personal_{part}_loss") if f"personal_{part}_accuracy" not in row else None,
    }
    for key, value in row.items():
        about = parse(key)
        if about and about.part == part and not about.statistic and about.name not in ("accuracy", "loss", "objective"):
            shown["personal " * about.personal + about.words] = value
            percent |= {"personal " * about.personal + about.words} if about.percent else set()
    words = {k: f"{100 * v:.1f} %" if k in percent else f"{v:.4g}" for k, v in shown.items() if v is not None}
    structure = {"F1": row.get("f1"), "density": row.get("density"), "rank": row.get("rank")}
    words |= {key: f"{value:.4g}" for key, value in structure.items() if value is not None}
    return ", ".join(f"{key} {value}" for key, value in words.items())
