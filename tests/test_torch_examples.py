"""examples/pytorch and examples/lora, in small."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'fedax[torch]'")

EXAMPLES = Path(__file__).parent.parent / "examples"


def example(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_a_cnn_by_two_methods(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("FEDAX_DATA", raising=False)
    made = example(EXAMPLES / "pytorch" / "compare.py")
    accuracy = made.main(rounds=1, clients=10, out=tmp_path / "cnn.pt")
    assert 0 < accuracy < 1
    made.CNN(8).load_state_dict(torch.load(tmp_path / "cnn.pt"))
    assert "in PyTorch" in capsys.readouterr().out


def test_adapters_alone_are_trained_and_sent():
    made = example(EXAMPLES / "lora" / "adapt.py")
    found = made.main(rounds=2, pretraining=2, clients=3)
    adapters = made.with_adapters(made.Transformer())
    trained = sum(p.numel() for p in adapters.parameters() if p.requires_grad)
    assert found["floats that a client sends"] == trained < found["floats of the whole model"] / 10
    assert found["the dialect, after"] < found["the dialect, before"]
