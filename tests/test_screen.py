"""What the command line shows fits the terminal: help, tables, bars; and what it says where there is none."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console
from rich.text import Text

import fedax
from fedax.cli import invoke
from fedax.cli.app import app
from fedax.cli.console import table
from fedax.cli.progress import watch
from fedax.experiments import Run
from fedax.papers.reproductions import ids


@pytest.mark.parametrize("width", [80, 120])
def test_bars_fit_the_terminal_and_cut_nothing_but_metrics(width: int) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=width)
    with watch(screen, quiet=False) as progress:
        progress.begin([Run("Local only", 0, Path("out")), Run("APFL", 12, Path("out"))], 5000)
        progress.start(Run("Local only", 0, Path("out")))
        for rounds in (100, 4321):
            progress.advance(rounds)
            progress.evaluated({"test_accuracy": 0.8123, "test_loss": 0.7118, "personal_test_accuracy": 0.9})
    *_, both, one = Text.from_ansi(screen.file.getvalue()).plain.splitlines()  # type: ignore[attr-defined]
    assert both.startswith("all runs ")
    assert " 4321/10000 " in both
    assert one.startswith("Local only, seed 0 ━")
    assert " 4321/5000 " in one
    assert "accuracy 81.2 %" in one
    assert re.search(r"\d:\d\d:\d\d( left)?$", one.rstrip())
    assert max(len(both), len(one)) <= width


def test_bars_begin_again_for_each_stage_of_a_search() -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=120)
    one, other = Run("FedAvg", 0, Path("out")), Run("APFL", 0, Path("out"))
    with watch(screen, quiet=False) as progress:
        for runs in ([one], [one, other], [one, other], [one]):
            progress.begin(runs, 10)
            for run in runs:
                progress.start(run)
                progress.advance(10)
                progress.end(run)
    last = Text.from_ansi(screen.file.getvalue()).plain.splitlines()[-6:]  # type: ignore[attr-defined]
    assert [line.partition(",")[0] for line in last] == ["FedAvg", "FedAvg", "APFL", "FedAvg", "APFL", "FedAvg"]


def test_away_from_a_terminal_a_long_run_says_once_a_minute_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr("fedax.cli.progress.time.monotonic", lambda: clock[0])
    with watch(Console(file=io.StringIO()), quiet=False) as progress:
        progress.begin([], 100)
        progress.start(Run("FedAvg", 3, Path("out")))
        for seconds, rounds in ((20, 10), (50, 15), (120, 20), (121, 21), (220, 30)):  # 10 rounds in 100 seconds
            clock[0] = seconds
            progress.advance(rounds)
            progress.evaluated({"test_accuracy": rounds / 100, "test_loss": 0.5})
    assert capsys.readouterr().out.splitlines() == [
        "FedAvg, seed 3: 20 %, accuracy 15.0 %, loss 0.5, about 13 minutes left",  # 800 seconds
        "FedAvg, seed 3: 30 %, accuracy 21.0 %, loss 0.5, about 12 minutes left",  # 700
    ]


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """A command and all below it, each with what is typed for it."""
    yield name, command
    for word, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{name} {word}")


@pytest.mark.parametrize(("name", "command"), dict(commands(typer.main.get_command(app), "fedax")).items())
def test_examples_in_the_help_fit_a_terminal_of_80_columns(name: str, command: Any) -> None:
    blocks = [block for block in command.help.split("\n\n") if block.startswith("\b")]
    assert blocks or name in ("fedax data", "fedax flower", "fedax leaderboard")
    shown = [Text.from_markup(line).plain for block in blocks for line in block.splitlines()]
    assert [line for line in shown if len(line) > 78] == []


@pytest.mark.parametrize("what", ["list", "data list", "reproduce"])
def test_listings_fit_a_terminal_of_80_columns(
    what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert invoke(what.split()) == 0
    said = Text.from_ansi(capsys.readouterr().out).plain
    assert max(map(len, said.splitlines())) <= 80
    words = set(said.split())
    for name in {"list": fedax.algorithms.ALGORITHMS, "data list": fedax.data.DATASETS, "reproduce": ids()}[what]:
        assert name in words


def test_a_narrow_terminal_does_without_some_columns_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(width: int) -> list[str]:
        monkeypatch.setattr("fedax.cli.console.console", lambda: Console(width=width))
        made = table("Two", ("name", "rows", "of [b]"), [("a[1]", "1", "x")], right=["rows"], spare=["of [b]"])
        with (screen := Console(width=width)).capture() as said:
            screen.print(made)
        return said.get().split()

    assert shown(80)[1:3] == ["name", "rows"]
    assert " ".join(shown(80)).endswith("a[1] 1 a terminal of 110 columns shows of [b] too")
    assert shown(120)[-3:] == ["a[1]", "1", "x"]


def test_a_bar_says_that_its_programs_are_compiled_until_the_first_round(tmp_path):
    run = Run("FedAvg", 0, tmp_path)
    with watch(Console(file=io.StringIO(), force_terminal=True, width=120), quiet=False) as live:
        live.begin([run], 4)
        live.start(run)
        bar = live.bars.tasks[-1]
        assert bar.fields["metrics"] == "compiling"
        live.advance(1)
        assert (bar.fields["metrics"], bar.completed) == ("", 1)
