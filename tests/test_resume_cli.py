"""`fedax resume`, as a user types it, after a kill or Ctrl-C; and the fields of a file that go with long runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import fedax
from fedax.cli import invoke
from fedax.experiments import Experiment, parse, read
from fedax.experiments.resolved import resolved_comparison, resolved_run
from fedax.experiments.resuming import recall
from fedax.runs.files import write_json

ROOT = Path(__file__).parents[1]
FLOWERS = """
rounds = 3000
cohort = 2
local_steps = 2
batch_size = 5
eval_every = 500
data = { name = "iris", partition = { name = "IID", clients = 3 } }
model.name = "logistic"
algorithm = { name = "SCAFFOLD", lr = 0.1 }
"""
SEVERAL = FLOWERS.replace(
    'algorithm = { name = "SCAFFOLD", lr = 0.1 }',
    "algorithm = [" + ", ".join(f'{{ name = "{name}", lr = 0.1 }}' for name in ("FedAvg", "SCAFFOLD", "FedProx")) + "]",
).replace('"FedProx",', '"FedProx", mu = 0.1,')


class Said(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Fedax = Callable[..., Said]


@pytest.fixture
def type_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fedax:
    """Type a command in an empty directory that holds flowers.toml and several.toml."""
    monkeypatch.chdir(tmp_path)
    Path("flowers.toml").write_text(FLOWERS)
    Path("several.toml").write_text(SEVERAL)

    def type_(*words: str) -> Said:
        capsys.readouterr()
        code = invoke(words)
        return Said(code, *capsys.readouterr())

    return type_


def document(path: str | Path) -> Any:
    return json.loads(Path(path).read_text())


def rows(path: str) -> list[dict[str, Any]]:
    return [{**json.loads(line), "seconds": 0} for line in Path(path).read_text().splitlines()]


def kill(words: list[str], checkpoints: Path) -> None:
    """Start a command with a checkpoint after every few rounds, and kill it once there are two of this run."""
    command = [sys.executable, "-m", "fedax", *words, "--set", "checkpoint_every=0"]
    shell = {**os.environ, "PYTHONPATH": str(Path(fedax.__file__).parents[1])}
    process = subprocess.Popen(command, env=shell, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and len(list(checkpoints.glob("*.ckpt"))) < 2:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the run ended before it could be killed"


def stop_in(monkeypatch: pytest.MonkeyPatch, run: int, round: int) -> None:
    """Press Ctrl-C in a run of the next command, once it has done some rounds."""
    begun = []

    def start(self: Any, run: Any) -> None:
        begun.append(run)

    def advance(self: Any, rounds: int) -> None:
        if len(begun) == run and rounds >= round:
            begun.append(None)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("fedax.cli.progress.Lines.start", start)
    monkeypatch.setattr("fedax.cli.progress.Lines.advance", advance)


# Killed


def test_a_killed_run_goes_on_to_the_same_bits(type_: Fedax) -> None:
    assert type_("run", "flowers.toml", "--out", "never").code == 0
    assert not Path("never/checkpoints").exists()
    kill(["run", "flowers.toml", "--out", "killed"], Path("killed/checkpoints"))
    assert document("killed/status.json")["status"] == "running"
    said = type_("resume", "killed")
    assert (said.code, said.err) == (0, "")
    assert "SCAFFOLD, seed 0: goes on after round" in said.out
    assert said.out.splitlines()[-1] == "Report: killed/report.html"
    assert Path("killed/model.safetensors").read_bytes() == Path("never/model.safetensors").read_bytes()
    assert rows("killed/metrics.jsonl") == rows("never/metrics.jsonl")
    assert document("killed/status.json") == document("never/status.json")
    assert document("killed/clients.json") == document("never/clients.json")
    assert not Path("killed/checkpoints").exists()


def test_a_comparison_killed_in_its_second_run_keeps_the_first_and_begins_the_third(type_: Fedax) -> None:
    assert type_("compare", "several.toml", "--out", "never").code == 0
    kill(["compare", "several.toml", "--out", "killed"], Path("killed/runs/scaffold-seed0/checkpoints"))
    first = Path("killed/runs/fedavg-seed0/model.safetensors")
    written = first.stat().st_mtime_ns
    assert not Path("killed/runs/fedprox-seed0").exists()
    said = type_("resume", "killed")
    assert (said.code, said.err) == (0, "")
    assert "SCAFFOLD, seed 0: goes on after round" in said.out
    assert said.out.count("seed 0: finished") == 2
    assert first.stat().st_mtime_ns == written
    for name in document("never/experiment.json")["runs"]:
        pair = [Path(folder, "runs", name) for folder in ("killed", "never")]
        assert pair[0].joinpath("model.safetensors").read_bytes() == pair[1].joinpath("model.safetensors").read_bytes()
        assert rows(f"killed/runs/{name}/metrics.jsonl") == rows(f"never/runs/{name}/metrics.jsonl")
    assert Path("killed/summary.csv").read_text().count("\n") == 4
    assert Path("killed/report.html").exists()


# Stopped


def test_ctrl_c_says_how_to_go_on_and_loses_no_round(type_: Fedax, monkeypatch: pytest.MonkeyPatch) -> None:
    assert type_("run", "flowers.toml", "--out", "never").code == 0
    with monkeypatch.context() as patch:
        stop_in(patch, run=1, round=700)
        said = type_("run", "flowers.toml", "--out", "a b")
    reached = document("a b/status.json")["round"]
    assert said.code == 130
    assert said.err.splitlines()[1:] == [
        f"error: interrupted after round {reached} (SCAFFOLD, seed 0); `fedax resume 'a b'` goes on"
    ]
    said = type_("resume", "a b")
    assert said.code == 0
    assert f"SCAFFOLD, seed 0: goes on after round {reached}\n" in said.out
    assert Path("a b/model.safetensors").read_bytes() == Path("never/model.safetensors").read_bytes()


def test_ctrl_c_at_the_end_of_a_run_is_an_interruption_of_the_comparison(
    type_: Fedax, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = ("compare", "several.toml", "--set", "rounds=20", "--out", "out")
    with monkeypatch.context() as patch:
        stop_in(patch, run=2, round=20)
        said = type_(*short)
    assert said.code == 130
    assert said.err.splitlines()[1:] == ["error: interrupted before 1 of the runs; `fedax resume out` goes on"]
    assert type_("resume", "out").code == 0
    assert [document(p)["status"] for p in Path("out/runs").glob("*/status.json")] == ["finished"] * 3


def test_one_run_of_a_comparison_goes_on_as_part_of_it(type_: Fedax, monkeypatch: pytest.MonkeyPatch) -> None:
    text = SEVERAL.replace('"FedProx", mu = 0.1', '"APFL"').replace("rounds = 3000", "rounds = 200")
    Path("personal.toml").write_text(text)
    assert type_("compare", "personal.toml", "--out", "never").code == 0
    with monkeypatch.context() as patch:
        stop_in(patch, run=1, round=50)
        assert type_("compare", "personal.toml", "--out", "out").code == 130
    said = type_("resume", "out/runs/fedavg-seed0")
    assert said.code == 0
    assert said.out.splitlines()[-1] == "Report: out/runs/fedavg-seed0/report.html"
    kept = [document(f"{folder}/runs/fedavg-seed0/clients.json") for folder in ("out", "never")]
    assert "moments" in kept[0]  # which a run alone of a method without personal models does not have
    assert kept[0] == kept[1]
    assert not Path("out/runs/fedavg-seed0/summary.csv").exists()
    assert sorted(p.name for p in Path("out/runs").iterdir()) == ["fedavg-seed0"]


def test_a_run_without_a_checkpoint_starts_over(type_: Fedax, monkeypatch: pytest.MonkeyPatch) -> None:
    short = ("run", "flowers.toml", "--set", "rounds=40", "--set", "eval_every=10", "--out")
    assert type_(*short, "never").code == 0
    with monkeypatch.context() as patch:
        stop_in(patch, run=1, round=10)
        assert type_(*short, "out").code == 130
    for path in Path("out/checkpoints").iterdir():
        path.unlink()
    said = type_("resume", "out")
    assert said.code == 0
    assert "SCAFFOLD, seed 0: starts over, it has no checkpoint\n" in said.out
    assert Path("out/model.safetensors").read_bytes() == Path("never/model.safetensors").read_bytes()
    assert rows("out/metrics.jsonl") == rows("never/metrics.jsonl")


@pytest.mark.parametrize("executor", ["looped", "debug"])
def test_every_executor_goes_on(type_: Fedax, monkeypatch: pytest.MonkeyPatch, executor: str) -> None:
    short = ("run", "flowers.toml", "--set", "rounds=8", "--set", "eval_every=4", "--set", f"executor={executor}")
    assert type_(*short, "--out", "never").code == 0
    with monkeypatch.context() as patch:
        stop_in(patch, run=1, round=3)
        assert type_(*short, "--out", "out").code == 130
    assert type_("resume", "out").code == 0
    assert Path("out/model.safetensors").read_bytes() == Path("never/model.safetensors").read_bytes()


# Ended, or another experiment, or none


def test_what_has_ended_gets_its_report_alone(type_: Fedax) -> None:
    assert type_("run", "flowers.toml", "--set", "rounds=2", "--out", "out").code == 0
    Path("out/report.html").unlink()
    before = {path.name: path.stat().st_mtime_ns for path in Path("out").iterdir()}
    said = type_("resume", "out")
    assert said == (0, "out has come to its end: only its report is written again\nReport: out/report.html\n", "")
    after = {path.name: path.stat().st_mtime_ns for path in Path("out").iterdir()}
    assert {name: when for name, when in after.items() if name != "report.html"} == before


def test_a_diverged_run_has_ended(type_: Fedax) -> None:
    text = 'rounds = 50\ndata.name = "diabetes"\nmodel.name = "linear"\nalgorithm = { name = "FedAvg", lr = 1e6 }\n'
    Path("fast.toml").write_text(text)
    first = type_("run", "fast.toml", "--set", "checkpoint_every=0", "--out", "out")
    assert first.code == 1
    assert "resume" not in first.err
    assert not Path("out/checkpoints").exists()
    said = type_("resume", "out")
    assert (said.code, said.err) == (1, first.err)
    assert "has come to its end" in said.out


def edit(path: str, **changes: Any) -> None:
    table = document(path)
    Path(path).write_text(json.dumps({**table, **changes}))


def test_an_edited_experiment_is_refused_with_what_differs(type_: Fedax, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        stop_in(patch, run=1, round=10)
        assert type_("run", "flowers.toml", "--out", "out").code == 130
    resolved = document("out/experiment.json")
    edit("out/experiment.json", batch_size=6, algorithm={**resolved["algorithm"], "lr": 0.2})
    status = document("out/status.json")
    said = type_("resume", "out")
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert "lr=0.1" in said.err
    assert "lr=0.2" in said.err
    assert "schedule was" in said.err
    assert document("out/status.json") == status
    edit("out/experiment.json", **{**resolved, "checkpoint_every": 30})
    assert type_("resume", "out").code == 0


def test_an_edited_comparison_is_refused_for_the_runs_that_have_ended_too(
    type_: Fedax, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stop_in(patch, run=2, round=1)
        assert type_("compare", "several.toml", "--set", "rounds=100", "--out", "out").code == 130
    resolved = document("out/experiment.json")
    first, *others = resolved["algorithm"]
    edit("out/experiment.json", algorithm=[{**first, "lr": 0.3}, *others])
    said = type_("resume", "out")
    expected = "fedavg-seed0 cannot go on under another experiment: algorithm.lr was 0.1 and is 0.3"
    assert (said.code, said.out, said.err) == (2, "", f"error: {expected}\n")
    edit("out/experiment.json", **{**resolved, "problem": {**resolved["problem"], "loss": "mse"}})
    assert "problem.loss was 'cross_entropy' and is 'mse'" in type_("resume", "out").err
    edit("out/experiment.json", **{**resolved, "seeds": [0, 1]})
    said = type_("resume", "out")
    assert said.code == 2
    assert "its runs were fedavg-seed0, scaffold-seed0, fedprox-seed0 and are fedavg-seed0, fedavg-seed1" in said.err
    assert not Path("out/runs/fedprox-seed0").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere", "'nowhere' is not a run or a comparison"),
        ("flowers.toml", "'flowers.toml' is not a run or a comparison"),
        (".", "'.' is not a run or a comparison"),
        ("broken", "broken/experiment.json cannot be read"),
        ("list", "list/experiment.json cannot be read: it must be a JSON object"),
        ("wrong", "wrong/experiment.json: unknown field 'rouns': did you mean 'rounds'"),
        ("sweep", "sweep/experiment.json: data is missing"),
    ],
)
def test_what_is_no_run_is_one_sentence(type_: Fedax, name: str, words: str) -> None:
    contents = {"broken": "{", "list": "[]", "wrong": '{"rouns": 3}', "sweep": '{"rounds": 3, "sweep": {"lr": [1]}}'}
    for folder, content in contents.items():
        Path(folder).mkdir()
        Path(folder, "experiment.json").write_text(content)
    said = type_("resume", name)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"error: {words}")
    assert said.err.count("\n") == 1


# What is written down is what was asked

FILES = [*sorted((ROOT / "experiments").glob("*.toml")), ROOT / "src/fedax/experiments/demo.toml"]
FURTHER: dict[str, dict[str, Any]] = {
    "infinite bound": {"problem": {"regularizer": {"name": "Box", "low": -1, "high": float("inf")}}},
    "schedule": {"algorithm": {"name": "FedAvg", "lr": {"kind": "inverse-time", "initial": 0.1, "decay": 1}}},
    "divided": {"data": {"name": "haxby"}},
    "generated": {"data": {"name": "synthetic", "preset": "1-1", "rows": 20, "lazy": True, "shown": 5}},
    "budget": {"state_budget": "3MB", "checkpoint_every": 7, "unseen": 0.25, "eval_on": ["train"]},
    "machine": {"executor": "batched", "devices": 1, "chunk": 3},
}


def described() -> dict[str, Experiment]:
    plain = {
        "rounds": 3,
        "data": {"name": "iris"},
        "model": {"name": "logistic"},
        "algorithm": {"name": "FedMiD", "lr": 1},
    }
    return {path.stem: read(path) for path in FILES} | {name: parse({**plain, **new}) for name, new in FURTHER.items()}


@pytest.mark.parametrize("name", [*(path.stem for path in FILES), *FURTHER])
def test_a_resolved_experiment_is_read_back_as_it_was(tmp_path: Path, name: str) -> None:
    experiment = described()[name]
    unswept = {"sweep": None}
    write_json(tmp_path / "experiment.json", resolved_comparison(experiment, ["a"]))
    again = recall(tmp_path)
    assert [table.build() for table in again.algorithm] == [table.build() for table in experiment.algorithm]
    assert {**again.model_dump(), "algorithm": 0} == {**experiment.model_dump(), **unswept, "algorithm": 0}
    table = experiment.algorithm[-1]
    write_json(tmp_path / "experiment.json", {**resolved_run(experiment, table, 5), "devices": 2, "chunk": 1})
    alone = recall(tmp_path)
    assert (alone.seeds, alone.devices, alone.chunk) == ([5], 2, 1)
    assert [made.resolved() for made in alone.algorithm] == [table.resolved()]


# What else a file may say

LAZY = """
rounds = 4
cohort = 3
local_steps = 2
batch_size = 5
eval_every = 2
model.name = "logistic"
algorithm = { name = "SCAFFOLD", lr = 0.1 }
[data]
name = "synthetic"
preset = "1-1"
clients = 5000
rows = 12
features = 4
classes = 3
lazy = true
shown = 7
"""


def test_clients_made_as_they_are_needed(type_: Fedax) -> None:
    Path("lazy.toml").write_text(LAZY)
    said = type_("run", "lazy.toml", "--out", "out")
    assert said.code == 0, said.err
    assert document("out/experiment.json")["data"]["shown"] == 7
    clients = document("out/clients.json")
    assert clients["names"] == [str(i) for i in range(7)]
    assert np.shape(clients["label_counts"]) == (7, 3)
    assert len(clients["values"]["test"]["accuracy"]) == 7


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            ["data.lazy=true"],
            "data: iris cannot make its clients as they are needed: lasso, low_rank, synthetic and clusters can",
        ),
        (["data.shown=3"], "data: shown is 3: it goes with lazy = true"),
        (["data.lazy=1"], "data.lazy is 1: it must be true or false"),
        (["checkpoint_every=-1"], "checkpoint_every is -1: it must be at least 0"),
        (["checkpoint_every=often"], "checkpoint_every is 'often': it must be a number"),
        (["state_budget=much"], "state_budget: state_budget must be a size such as 2GiB or 500MB, not 'much'"),
        (["state_budget=20B"], "state_budget is 20 B: the states of one cohort of 2 clients need"),
        (["devices=0"], "devices is 0: it must be at least 1"),
        (["devices=99"], "devices must be in [1, "),
        (["chunk=some"], "chunk is 'some': it must be a whole number"),
        (["problem.augment=flip-crip"], "problem.augment: unknown augmentation 'flip-crip': did you mean 'flip-crop'?"),
        (["problem.augment=flip-crop"], "problem.augment is 'flip-crop': it needs images, and the rows of iris are 4"),
    ],
)
def test_a_mistake_is_one_sentence(type_: Fedax, settings: list[str], words: str) -> None:
    said = type_("run", "flowers.toml", *(word for setting in settings for word in ("--set", setting)))
    assert said.code == 2
    assert said.err.startswith(f"error: {words}")
    assert said.err.count("\n") == 1
    assert not Path("runs").exists()


def test_the_budget_of_a_file_decides_where_states_are_kept(type_: Fedax) -> None:
    short = ("run", "flowers.toml", "--set", "rounds=4", "--out")
    assert type_(*short, "devices").code == 0
    size = 4 * (4 * 3 + 3)  # bytes of a client's control variate: 4 features, 3 classes, float32
    assert type_(*short, "file", "--state-budget", f"{2 * size}B").code == 0
    assert document("devices/result.json")["info"]["states"] == "devices"
    assert document("file/result.json")["info"]["states"] == "FileSlots"
    assert Path("file/model.safetensors").read_bytes() == Path("devices/model.safetensors").read_bytes()
    assert not Path("file/checkpoints").exists()


def test_how_clients_are_run_can_be_chosen(type_: Fedax) -> None:
    chosen = {"executor": "batched", "devices": 1, "chunk": 1}
    settings = [word for field, value in chosen.items() for word in ("--set", f"{field}={value}")]
    assert type_("run", "flowers.toml", "--set", "rounds=4", *settings, "--out", "run").code == 0
    assert {key: document("run/experiment.json")[key] for key in chosen} == chosen
    assert {key: document("run/result.json")["info"][key] for key in chosen} == chosen


def test_augmentation_is_what_the_file_says(type_: Fedax) -> None:
    rng = np.random.default_rng(0)
    images = rng.normal(size=(60, 8, 8)).astype(np.float32)
    np.savez("images.npz", x=images, y=np.arange(60) % 3)
    text = FLOWERS.replace('name = "iris"', 'name = "numpy", path = "images.npz"').replace("3000", "6")
    Path("images.toml").write_text(text)
    augmented = ("run", "images.toml", "--set", "problem.augment=flip-crop", "--out")
    for words in ((*augmented, "one"), (*augmented, "two"), ("run", "images.toml", "--out", "plain")):
        said = type_(*words)
        assert said.code == 0, said.err
    one, two, plain = (Path(name, "model.safetensors").read_bytes() for name in ("one", "two", "plain"))
    assert one == two != plain
    assert rows("one/metrics.jsonl")[0] == rows("plain/metrics.jsonl")[0]  # images that are evaluated stay as they are
    assert document("one/experiment.json")["problem"]["augment"] == "flip-crop"
    Path("whole.toml").write_text(text.replace("batch_size = 5\n", ""))
    said = type_("run", "whole.toml", "--set", "problem.augment=flip-crop")
    assert said.err == "error: problem.augment is 'flip-crop': it changes minibatches, so batch_size must be given\n"


def test_a_forged_finished_is_not_believed(tmp_path, monkeypatch, caplog):
    """A status that says finished where there is no result: the run goes on to its end."""
    monkeypatch.chdir(tmp_path)
    tables = '[data]\nname = "iris"\n[model]\nname = "linear"\n[algorithm]\nname = "FedAvg"\nlr = 0.1\n'
    Path("iris.toml").write_text(f"rounds = 2\nbatch_size = 8\n{tables}")
    assert invoke(["run", "iris.toml", "--out", "run", "--quiet"]) == 0
    Path("run/result.json").unlink()
    model = Path("run/model.safetensors").read_bytes()
    Path("run/model.safetensors").unlink()
    assert invoke(["resume", "run", "--quiet"]) == 0
    assert "its files do not" in caplog.text
    assert Path("run/result.json").is_file()
    assert Path("run/model.safetensors").read_bytes() == model
