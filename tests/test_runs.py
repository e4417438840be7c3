"""A run's directory: the same from the command line, from Python and from a saved result; one process at a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedax
from fedax import report
from fedax.cli import invoke
from fedax.errors import FedaxError
from fedax.experiments import parse, run
from fedax.runs.lock import locked

SAME = {
    "assessment.json",
    "clients.json",
    "experiment.json",
    "metrics.jsonl",
    "model.safetensors",
    "report.html",
    "result.json",
} | {"status.json"}
TABLE = {
    "rounds": 4,
    "data": {"name": "iris", "partition": {"name": "IID", "clients": 3}},
    "model": {"name": "logistic"},
    "algorithm": {"name": "FedAvg", "lr": 0.1},
}
LONG = """
cohort = 3
rounds = 8000
eval_every = 2000
checkpoint_every = 0
state_budget = "180B"  # of one cohort: the others' states are in a file
data = { name = "iris", partition = { name = "IID", clients = 6 } }
model.name = "logistic"
algorithm = { name = "SCAFFOLD", lr = 0.1 }
"""


def simulate(seed: int = 0, **options):
    problem, federation = fedax.experiments.prepare(parse(TABLE))
    return fedax.simulate(problem, federation, fedax.FedAvg(lr=0.1), rounds=4, seed=seed, **options)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def status(folder: Path) -> dict:
    return json.loads((folder / "status.json").read_text())


def test_all_ways_leave_the_same_directory(tmp_path):
    run(parse(TABLE), tmp_path / "file")
    simulate(out=tmp_path / "out")
    simulate().save(tmp_path / "saved")
    fedax.load(tmp_path / "saved").save(tmp_path / "again")
    for name in ("file", "out", "saved", "again"):
        assert names(tmp_path / name) == SAME, name
        assert status(tmp_path / name) == {"status": "finished", "round": 4, "rounds": 4, "message": ""}
    clients = [json.loads((tmp_path / name / "clients.json").read_text()) for name in ("file", "out", "saved", "again")]
    assert all(one == clients[0] for one in clients)


def test_seeds_made_in_python_are_one_group(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = [tmp_path / str(seed) for seed in range(3)]
    simulate(0, out=folders[0], label="mine")
    simulate(1, label="mine").save(folders[1])
    simulate(2, label="mine", out=folders[2])
    (row,) = report.table(folders)
    assert (row["algorithm"], row["runs"], row["seeds"], row["status"]) == ("mine", 3, [0, 1, 2], "finished")
    assert invoke(["report", *map(str, folders)]) == 0
    assert Path("report.html").is_file()


def test_a_run_that_ends_early_says_so(tmp_path):
    problem, federation = fedax.experiments.prepare(parse(TABLE))
    rows = fedax.stream(problem, federation, fedax.FedAvg(lr=0.1), rounds=4, out=tmp_path / "early")
    next(rows)
    assert status(tmp_path / "early")["status"] == "running"
    rows.close()
    assert status(tmp_path / "early")["status"] == "interrupted"
    mean = fedax.Problem(loss=lambda w, b: jnp.mean((b["x"] - w) ** 2) / 2, init=lambda key: jnp.zeros(()))
    clients = fedax.Federation.from_clients([{"x": np.float32([4])}])
    with pytest.raises(fedax.DivergedError):
        fedax.simulate(mean, clients, fedax.FedAvg(lr=1e30), rounds=4, out=tmp_path / "diverged")
    assert status(tmp_path / "diverged")["status"] == "diverged"
    assert not (tmp_path / "diverged" / ".lock").exists()


def test_bad_input_leaves_no_directory(tmp_path):
    with pytest.raises(fedax.FedaxError, match="seed"):
        simulate(-1, out=tmp_path / "a" / "b")
    assert not (tmp_path / "a").exists()


def fedax_process(*words: str, cwd: Path) -> subprocess.Popen[str]:
    shell = {**os.environ, "PYTHONPATH": str(Path(fedax.__file__).parents[1])}
    command = [sys.executable, "-m", "fedax", *words]
    return subprocess.Popen(command, cwd=cwd, env=shell, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(found, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_second_process_is_refused_and_a_dead_one_replaced(tmp_path):
    (tmp_path / "long.toml").write_text(LONG)
    out = tmp_path / "runs" / "long"
    whole = fedax_process("run", "long.toml", "--out", "whole", "--quiet", cwd=tmp_path)
    whole.communicate()
    assert whole.returncode == 0
    first = fedax_process("run", "long.toml", "--out", str(out), "--quiet", cwd=tmp_path)
    wait_for(lambda: len(list(out.glob("checkpoints/*.ckpt"))) == 2)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert (out / ".lock").is_file()
    both = [fedax_process("resume", str(out), "--quiet", cwd=tmp_path) for _ in range(2)]
    said = [process.communicate()[1] for process in both]
    codes = [process.returncode for process in both]
    assert sorted(codes) == [0, 2], said
    refused, done = said[codes.index(2)], said[codes.index(0)]
    assert f"is in use by process {both[codes.index(0)].pid} on" in refused
    assert refused.count("\n") == 1
    assert f"was in use by process {first.pid}" in done
    one, other = (fedax.load(folder).model for folder in (tmp_path / "whole", out))
    jax.tree.map(np.testing.assert_array_equal, one, other)
    assert not (out / ".lock").exists()


def test_a_process_may_ask_again(tmp_path):
    with locked(tmp_path / "a"), locked(tmp_path / "a"):
        pass
    assert not (tmp_path / "a").exists()


def test_a_lock_that_is_a_link_does_not_empty_what_it_points_to(tmp_path: Path) -> None:
    """A directory from somewhere else may hold anything under the lock's name."""
    precious, folder = tmp_path / "precious.txt", tmp_path / "run"
    precious.write_text("mine")
    folder.mkdir()
    (folder / ".lock").symlink_to(precious)
    with pytest.raises(FedaxError, match="cannot be written"), locked(folder):
        pass
    assert precious.read_text() == "mine"
