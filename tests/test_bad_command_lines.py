"""Bad command lines: each is one sentence, none hangs, none is accepted, none leaves anything behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import bad_command_lines
from fedax.cli import invoke

LONGEST = 10  # seconds
PARTS = ("experiments", "files", "sizes", "runs", "commands")
MADE = ("out", "keys", "exported", "table.csv", "app", "runs")


class Hangs(BaseException):
    """A command that took too long."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with all files that the command lines name, as the current one."""
    before, here = Path.cwd(), tmp_path_factory.mktemp("bad")
    bad_command_lines.prepare(here)
    os.chdir(here)
    yield here
    os.chdir(before)


def test_there_are_five_hundred() -> None:
    assert len(bad_command_lines.every()) >= 500


@pytest.mark.parametrize("part", PARTS)
def test_a_bad_command_line_is_one_sentence(home: Path, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    def ring(*_: object) -> None:
        raise Hangs

    wrong = []
    before = signal.signal(signal.SIGALRM, ring)
    try:
        for name, words in getattr(bad_command_lines, part)():
            signal.alarm(LONGEST)
            try:
                code: object = invoke(words)
            except BaseException as error:
                code = repr(error)
            signal.alarm(0)
            said = capsys.readouterr().err
            sentence = said.startswith("error: ") and said.count("\n") == 1 and said[:-1].isprintable()
            if code not in (1, 2) or not sentence or said.startswith("error: unexpected") or len(said) > 1000:
                wrong.append(f"{name}: {code}: {said[:200]!r}")
            wrong += [f"{name} leaves {made}" for made in MADE if (home / made).exists()]
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert not wrong, "\n".join(wrong)
