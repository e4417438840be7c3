"""Dependencies point one way, and method files stay readable: vectors only."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
METHODS = sorted((ROOT / "src/fedax/algorithms").glob("*.py"))


def test_layers_hold():
    command = [Path(sys.executable).parent / "lint-imports", "--no-cache"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize(
    "path", [p for p in METHODS if p.stem not in ("__init__", "base", "claims")], ids=lambda p: p.stem
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
        "fedax.vectors",
        "fedax.errors",
        "fedax.lazy_optax",
        "fedax.regularizers",
    )
    assert all(name.startswith(allowed) for name in imported), imported


def test_fedavg_is_short():
    assert len((ROOT / "src/fedax/algorithms/fedavg.py").read_text().splitlines()) < 60
