"""Several processes on one machine, each with devices of its own: one run, the same models, one writer."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import fedax
import test_devices
from fedax.cli import invoke

TESTS = Path(__file__).parent
FLOWERS = """
rounds = 120
cohort = 3
local_steps = 2
batch_size = 5
eval_every = 60
data = { name = "iris", partition = { name = "IID", clients = 7 } }
model.name = "logistic"
algorithm = { name = "SCAFFOLD", lr = 0.1 }
"""


def launch(*commands: list[str], folders: list[Path], **environment: str) -> list[subprocess.Popen[str]]:
    """Start one process a command, as machines of one run."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    shared = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(Path(fedax.__file__).parents[1])]),
        "FEDAX_COORDINATOR": address,
        "FEDAX_PROCESSES": str(len(commands)),
        "FEDAX_DEVICES": "2",
        **environment,
    }
    return [
        subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env={**shared, "FEDAX_PROCESS": str(number)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number, (command, folder) in enumerate(zip(commands, folders, strict=True))
    ]


def ended(processes: list[subprocess.Popen[str]]) -> list[str]:
    """What each said; all must end well."""
    try:
        said = [process.communicate(timeout=600)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(said)
    return ["".join(line for line in text.splitlines(True) if not line.startswith("[Gloo]")) for text in said]


def test_two_processes_make_the_models_of_one(tmp_path):
    names = ["looped, states in a file", "APFL", "FedDualAvg"]
    code = f"import test_devices; test_devices.work({str(tmp_path)!r}, [None], {names!r})"
    ended(launch(["-c", code], ["-c", code], folders=[tmp_path, tmp_path]))
    found = test_devices.made(tmp_path, None)
    for name, expected in test_devices.here(names=names).items():
        for mine, theirs in zip(found[name], expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5, err_msg=name)


def test_fedax_run_on_two_machines(tmp_path):
    """The command as typed on each: process 0 alone writes and speaks; killed, it goes on to the same bits."""
    machines = [tmp_path / "a", tmp_path / "b"]
    for machine in machines:
        machine.mkdir()
        (machine / "flowers.toml").write_text(FLOWERS)
    (tmp_path / "one.toml").write_text(FLOWERS)
    words = ["-m", "fedax", "run", "flowers.toml", "--set", "checkpoint_every=0", "--out"]
    alone = {"FEDAX_DEVICES": "1"}
    first, second = ended(launch([*words, "out"], [*words, "out"], folders=machines, **alone))
    assert "SCAFFOLD, seed 0: finished at round 120" in first
    assert second == ""
    assert [path.name for path in machines[1].iterdir()] == ["flowers.toml"]
    assert invoke(["run", str(tmp_path / "one.toml"), "--out", str(tmp_path / "one")]) == 0
    one, two = fedax.load(tmp_path / "one"), fedax.load(machines[0] / "out")
    assert two.info["devices"] == 2
    for mine, theirs in zip(test_devices.leaves(two), test_devices.leaves(one), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
    for mine, theirs in zip(two.history, one.history, strict=True):
        assert mine["test_loss"] == pytest.approx(theirs["test_loss"], rel=1e-5)

    shared = tmp_path / "killed"  # a directory that both see, as `fedax resume` needs
    processes = launch([*words, str(shared)], [*words, str(shared)], folders=machines, **alone)
    while len(list((shared / "checkpoints").glob("*.ckpt"))) < 2 and processes[0].poll() is None:
        time.sleep(0.01)
    for process in processes:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert json.loads((shared / "status.json").read_text())["status"] == "running"
    again = ["-m", "fedax", "resume", str(shared)]
    assert "goes on after round" in ended(launch(again, again, folders=machines, **alone))[0]
    killed, never = (folder / "model.safetensors" for folder in (shared, machines[0] / "out"))
    assert killed.read_bytes() == never.read_bytes()


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"FEDAX_COORDINATOR": "here"}, "FEDAX_COORDINATOR must be host:port, such as 10.0.0.1:9000, not 'here'"),
        ({"FEDAX_PROCESSES": "none"}, "FEDAX_PROCESSES must be a whole number from 1 on, not 'none'"),
        ({"FEDAX_PROCESS": "2"}, "FEDAX_PROCESS must be a whole number in [0, 1], not '2'"),
        ({"FEDAX_COORDINATOR": ""}, "FEDAX_COORDINATOR must be host:port, such as 10.0.0.1:9000, not ''"),
    ],
)
def test_a_mistake_is_one_sentence(monkeypatch, environment, words):
    right = {"FEDAX_COORDINATOR": "127.0.0.1:9000", "FEDAX_PROCESSES": "2", "FEDAX_PROCESS": "0"}
    for name, value in (right | environment).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(fedax.FedaxError) as caught:
        fedax.runtime.join_processes()
    assert str(caught.value) == words
