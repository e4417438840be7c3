"""The code blocks of the pages, and how each is run.

A block's language says what becomes of it: `python` runs, the blocks of a page in one namespace; each command of
`console` runs; `toml` is read as an experiment, whole or the tables that it has; `title="name"` writes the block to a
file, where later blocks find it. What a page says in a comment before a block holds for that block:

    <!-- in tests: rounds=60 -> rounds=3 -->      fewer rounds, smaller grids; several of them with ;
    <!-- not run: the reason -->                  for the few that cannot: a server that waits, hours of work
    <!-- file: first.toml = experiments/first.toml -->      a file of the repository that the page's commands need
    <!-- setup: fedax run first.toml -->          a command that runs before the page's blocks
    <!-- needs: torch -->                         a package that the block needs, or, below the title, the page
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
#: pages whose blocks a test of their own runs, with the numbers that they print
ELSEWHERE = {"docs/findings.md": "test_findings.py", "docs/theory.md": "test_theory_advice.py"}
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*/README.md")]
)
FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
MARK = re.compile(r"<!-- (in tests|not run|file|needs|setup): (.+?) -->")
LANGUAGES = {"python", "py", "console", "toml", "nginx", "text"}


@dataclasses.dataclass
class Block:
    """A code block and what its page says of it."""

    language: str
    title: str
    text: str
    line: int
    not_run: str = ""
    needs: str = ""


@dataclasses.dataclass
class Page:
    """A page's blocks in order, and what they need."""

    blocks: list[Block]
    files: dict[str, str]
    needs: list[str]
    setup: list[str]


def read(page: str) -> Page:
    """The blocks of a page, with what tests replace already replaced."""
    text = (ROOT / page).read_text()
    found = Page([], {}, [], [])
    for match in FENCE.finditer(text):
        before = text[: match.start()].rstrip().splitlines()
        block = Block(match[1], match[2] or "", match[3], text[: match.start()].count("\n") + 1)
        while before and (mark := MARK.fullmatch(before[-1].strip())):
            before.pop()
            if mark[1] == "not run":
                block.not_run = mark[2]
            elif mark[1] == "needs":
                block.needs = mark[2]
            elif mark[1] == "in tests":
                for change in mark[2].split("; "):
                    old, _, new = change.partition(" -> ")
                    assert old in block.text, f"{page}:{block.line} has no {old!r} to replace"
                    block.text = block.text.replace(old, new)
        found.blocks.append(block)
    for mark in MARK.finditer(text):
        if mark[1] == "file":
            name, _, source = mark[2].partition(" = ")
            found.files[name] = source
        elif mark[1] == "setup":
            found.setup.append(mark[2])
        elif mark[1] == "needs" and not text[mark.end() :].lstrip().startswith(("```", "<!-- in tests")):
            found.needs += mark[2].split(", ")
    return found


def run(page: str, blocks: list[Block], folder: Path) -> None:
    """Run a page's blocks in a directory, which is the current one."""
    module = types.ModuleType("page_that_runs")  # classes and functions of a page look for the module that they are of
    sys.modules[module.__name__] = module
    names: dict[str, Any] = vars(module)
    for block in blocks:
        if block.title:
            (folder / block.title).write_text(block.text)
        lacks = block.needs and importlib.util.find_spec(block.needs) is None
        if lacks or block.not_run or (block.title and block.language != "toml"):
            continue
        where = f"{page}:{block.line}"
        if block.language == "python":
            exec(compile("\n" * block.line + block.text, str(ROOT / page), "exec"), names)
        elif block.language == "py":
            compile(block.text, where, "exec")
        elif block.language == "toml":
            _read_experiment(block.text)
        elif block.language == "console":
            for command in commands(block.text):
                _run(command, where)


def commands(text: str) -> Iterator[str]:
    """The commands of a block, those over several lines as one."""
    for line in text.replace("\\\n", " ").splitlines():
        command = re.sub(r"(^|\s\s+)#.*", "", line).strip()
        if command:
            yield command


def _run(command: str, where: str) -> None:
    from fedax.cli.app import invoke

    if command.startswith("fedax ") and not re.search(r"[|$<>&;]", command):
        assert invoke(shlex.split(command, comments=True)[1:]) == 0, f"{where}: {command}"
        return
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    surroundings = os.environ | {"PATH": path}
    done = subprocess.run(
        ["bash", "-ec", command], capture_output=True, text=True, check=False, env=surroundings, timeout=120
    )
    assert done.returncode == 0, f"{where}: {command}\n{done.stdout}{done.stderr}"


def _read_experiment(text: str) -> None:
    """Check an experiment, or the tables of one in place of those of the smallest."""
    from fedax.experiments import parse

    table = tomllib.loads(text)
    whole = tomllib.loads((ROOT / "experiments/first.toml").read_text())
    parse(table if "data" in table and "rounds" in table else whole | table)


def prepare(page: Page, folder: Path) -> None:
    """Put the repository's files that a page needs into its directory, and run the commands that come before it."""
    for name, source in page.files.items():
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, folder / name)
        else:
            shutil.copy(ROOT / source, folder / name)
    for command in page.setup:
        _run(command, "setup")
