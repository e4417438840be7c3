"""Dependencies point one way, and method files stay readable: vectors only."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from fedax.algorithms import ALGORITHMS

ROOT = Path(__file__).parent.parent
METHODS = sorted((ROOT / "src/fedax/algorithms").glob("*.py"))
#: names of files that mean the same in every room, and a command's own, which mirrors the room that it shows
SHARED = {"__init__", "base", "registry"}


def test_layers_hold():
    command = [Path(sys.executable).parent / "lint-imports", "--no-cache"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


def test_no_modules_import_one_another_in_a_circle():
    """Imports within functions and for type checking count."""
    graph = grimp.build_graph("fedax", exclude_type_checking_imports=False, cache_dir=None)
    left = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    while free := [module for module, imported in left.items() if not imported & left.keys()]:
        for module in free:
            del left[module]
    # What is left is in a circle or imports one that is: take off those that nothing left imports.
    while outer := left.keys() - set().union(*left.values()):
        for module in outer:
            del left[module]
    assert not left, sorted(left)


def test_files_of_the_same_name_mean_the_same():
    homes: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src/fedax").rglob("*.py")):
        if path.parent.name != "cli" and path.stem not in SHARED:
            homes.setdefault(path.stem, []).append(str(path.relative_to(ROOT)))
    twice = {name: paths for name, paths in homes.items() if len(paths) > 1}
    # An experiment file is read there, a run's directory here; `fedax.plot` draws results and data/plot.py federations.
    assert set(twice) <= {"reading", "plot"}, twice


def test_classes_of_the_same_name_mean_the_same():
    homes: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src/fedax").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    twice = {name: paths for name, paths in homes.items() if len(paths) > 1}
    assert set(twice) <= {"Outcome", "Table", "Task"}, twice  # of a leaderboard, which nothing else imports


NO_METHODS = ("__init__", "base", "claims", "aggregation", "attacks", "hyperparameters", "with_model_state")


@pytest.mark.parametrize(
    "path",
    [p for p in METHODS if p.stem not in NO_METHODS],
    ids=lambda p: p.stem,
)
def test_a_method_uses_vectors_only(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    allowed = (
        "__future__",
        "typing",
        "collections.abc",
        "fedax.algorithms",
        "fedax.bounds",
        "fedax.vectors",
        "fedax.errors",
        "fedax.lazy_optax",
        "fedax.regularizers",
    )
    assert all(name.startswith(allowed) for name in imported), imported


ROOMS = ("client", "engine", "evaluation", "problem", "report", "runs", "flower", "experiments", "cli")
#: the yardsticks of personal methods: the shared model after local steps, and training alone
YARDSTICKS = {"Localised", "LocalOnly"}


@pytest.mark.parametrize("room", ROOMS)
def test_nobody_knows_a_method_by_name(room):
    """What belongs to a method is in its file: no table by method anywhere, and no import of one."""
    for path in sorted((ROOT / "src/fedax" / room).rglob("*.py")):
        named = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedax.algorithms"):
                named |= {alias.name for alias in node.names}
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named.add(node.value)
        assert not named & (ALGORITHMS.keys() - YARDSTICKS), path


def test_fedavg_is_short():
    assert len((ROOT / "src/fedax/algorithms/fedavg.py").read_text().splitlines()) < 60
