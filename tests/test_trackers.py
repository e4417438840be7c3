"""Logging to other programs: the same rows as metrics.jsonl, and never at the price of a run."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fedax.cli import invoke

FILE = """
rounds = 4
local_steps = 2
batch_size = 5
eval_every = 2
data = { name = "iris", partition = { name = "IID", clients = 3 } }
model.name = "logistic"
algorithm = { name = "FedAvg", lr = 0.05 }
"""
Rows = dict[int, dict[str, float]]


class Fakes:
    """Three packages that write down what they are told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: dict[str, Rows] = {"tensorboard": {}, "mlflow": {}, "wandb": {}}
        self.began: dict[str, Any] = {}
        self.ended: dict[str, Any] = {}
        for name, content in (("tensorboardX", self.boards()), ("mlflow", self.mlflow()), ("wandb", self.wandb())):
            module = ModuleType(name)
            vars(module).update(content)
            monkeypatch.setitem(sys.modules, name, module)

    def keep(self, name: str, round: int, values: dict[str, float]) -> None:
        self.rows[name].setdefault(round, {}).update(values)

    def boards(self) -> dict[str, Any]:
        def writer(folder: str) -> Any:
            self.began["tensorboard"] = folder
            return SimpleNamespace(
                add_text=lambda *words: None,
                add_scalar=lambda key, value, round: self.keep("tensorboard", round, {key: value}),
                close=lambda: self.ended.update(tensorboard="closed"),
            )

        return {"SummaryWriter": writer}

    def mlflow(self) -> dict[str, Any]:
        return {
            "start_run": lambda run_name: self.began.update(mlflow=run_name),
            "log_params": lambda params: self.began.update(params=params),
            "log_metrics": lambda values, step: self.keep("mlflow", step, values),
            "set_tag": lambda key, value: None,
            "end_run": lambda status: self.ended.update(mlflow=status),
        }

    def wandb(self) -> dict[str, Any]:
        def init(name: str, config: dict[str, Any], **rest: Any) -> Any:
            self.began["wandb"] = (name, config)
            return SimpleNamespace(
                log=lambda values, step: self.keep("wandb", step, values),
                summary={},
                finish=lambda exit_code: self.ended.update(wandb=exit_code),
            )

        return {"init": init}


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fakes:
    monkeypatch.chdir(tmp_path)
    Path("file.toml").write_text(FILE)
    return Fakes(monkeypatch)


def logged(folder: str) -> Rows:
    rows = [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]
    return {row.pop("round"): row for row in rows}


def test_trackers_have_the_rows_of_the_log(fakes: Fakes) -> None:
    words = [word for name in fakes.rows for word in ("--log", name)]
    assert invoke(["run", "file.toml", "--out", "out", *words]) == 0
    rows = logged("out")
    assert list(rows) == [0, 2, 4]
    assert fakes.rows == {"tensorboard": rows, "mlflow": rows, "wandb": rows}
    assert fakes.began["tensorboard"] == "out/tensorboard"
    assert fakes.began["mlflow"] == "FedAvg, seed 0"
    assert fakes.began["params"]["algorithm.lr"] == "0.05"
    assert fakes.began["wandb"][1]["data.partition.name"] == "IID"
    assert fakes.ended == {"tensorboard": "closed", "mlflow": "FINISHED", "wandb": 0}


def test_a_tracker_of_the_file_that_fails_is_left_out(fakes: Fakes, caplog: pytest.LogCaptureFixture) -> None:
    def broken(values: Any, step: int) -> None:
        raise OSError("no route to host")

    vars(sys.modules["mlflow"])["log_metrics"] = broken
    Path("file.toml").write_text('log = ["mlflow", "wandb"]\nseeds = [0, 1]\n' + FILE)
    with caplog.at_level(logging.WARNING, logger="fedax"):
        assert invoke(["compare", "file.toml", "--out", "out"]) == 0
    assert "MLflow takes no more metrics: no route to host" in caplog.text
    last = [logged(f"out/runs/fedavg-seed{seed}") for seed in (0, 1)]
    assert fakes.rows["wandb"] == last[1], "the second run follows the first"
    assert fakes.began["wandb"][0] == "FedAvg, seed 1"


@pytest.mark.parametrize(
    ("name", "gone", "words"),
    [
        ("tensorboard", ["tensorboardX", "torch.utils.tensorboard"], ["'tensorboard'", "pip install tensorboardX"]),
        ("mlflow", ["mlflow"], ["'mlflow'", "pip install mlflow"]),
        ("wandb", ["wandb"], ["'wandb'", "pip install wandb"]),
        ("wandbb", [], ["log", "wandbb", "did you mean 'wandb'"]),
    ],
)
def test_a_missing_package_is_one_sentence_before_any_work(
    fakes: Fakes,
    name: str,
    gone: list[str],
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for module in gone:
        monkeypatch.setitem(sys.modules, module, None)
    assert invoke(["run", "file.toml", "--out", "out", "--log", name]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert all(word in line for word in words), line
    assert not Path("out").exists()
