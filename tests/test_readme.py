"""The README's Python runs as it stands, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL), ids=["example", "method"])
def test_the_examples_run(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(block, names)
    assert (tmp_path / "runs/scaffold/model.safetensors").exists() or "FedProx" in names


def test_links_and_named_files_exist():
    links = re.findall(r"\]\(([^)]+)\)", TEXT) + re.findall(r"experiments/[\w-]+\.toml", TEXT)
    assert links
    for link in links:
        assert (ROOT / link).exists(), link
