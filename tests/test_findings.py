"""docs/findings.md runs: each block prints the numbers that stand below it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import jax
import pytest

TEXT = (Path(__file__).parent.parent / "docs" / "findings.md").read_text()
SETUP, *BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
TITLES = [re.findall(r"## (.+)", TEXT[: TEXT.index(block)])[-1] for block in BLOCKS]
NOISE = 1e-12  # distances below this are rounding


@pytest.fixture(scope="module")
def names():
    with jax.enable_x64(True):
        found: dict[str, object] = {}
        exec(SETUP.replace('jax.config.update("jax_enable_x64", True)', ""), found)
        yield found


def words(line):
    """A printed line, numbers as numbers, rounding noise as 0."""

    def value(word):
        try:
            number = float(word)
        except ValueError:
            return word
        return 0.0 if abs(number) < NOISE else pytest.approx(number, rel=0.06)

    return [value(word) for word in line.split()]


def numbers(line):
    return [w if isinstance(w, str) else getattr(w, "expected", w) for w in words(line)]


@pytest.mark.parametrize(("title", "block"), list(zip(TITLES, BLOCKS, strict=True)), ids=TITLES)
def test_finding(title, block, names):
    expected = [line[2:] for line in block.splitlines() if line.startswith("# ")]
    assert expected
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(block, dict(names))  # none leans on another
    found = printed.getvalue().splitlines()
    assert len(found) == len(expected)
    for got, wanted in zip(found, expected, strict=True):
        if "e+" in wanted and "e+" in got and float(wanted.split()[-1]) > 1e20:  # a blow-up, of whatever size
            got, wanted = got.rsplit(" ", 1)[0], wanted.rsplit(" ", 1)[0]
        assert numbers(got) == words(wanted)
