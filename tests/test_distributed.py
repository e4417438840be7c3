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

    shared = tmp_path / "killed"  # by the launcher, and one of the two is killed: the other stops, and says why
    here = {"cwd": machines[0], "env": {**os.environ, **alone}, "stderr": subprocess.PIPE, "text": True}
    twice = [sys.executable, "-m", "fedax", *words[2:], str(shared), "--processes", "2"]
    with subprocess.Popen(twice, stdout=subprocess.DEVNULL, **here) as launcher:
        while len(list((shared / "checkpoints").glob("*.ckpt"))) < 2 and launcher.poll() is None:
            time.sleep(0.01)
        os.kill(process_of(launcher, 1), signal.SIGKILL)
        said = launcher.communicate(timeout=100)[1]
    assert launcher.returncode == 1
    ended_one = "another process of the run has ended, so this one stops"
    assert said == f"error: {ended_one}: `fedax resume` with as many processes goes on from the last checkpoint\n"
    assert json.loads((shared / "status.json").read_text())["status"] == "failed"
    again = [sys.executable, "-m", "fedax", "resume", str(shared), "--processes", "2"]
    with subprocess.Popen(again, stdout=subprocess.PIPE, **here) as launcher:
        said = launcher.communicate(timeout=100)[0]
    assert launcher.returncode == 0
    assert "goes on after round" in said
    assert "Gloo" not in said
    killed, never = (folder / "model.safetensors" for folder in (shared, machines[0] / "out"))
    assert killed.read_bytes() == never.read_bytes()


def process_of(launcher: subprocess.Popen[str], number: int) -> int:
    """The process with this number, of those that a launcher has started."""
    (found,) = (
        int(child)
        for child in Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
        if f"FEDAX_PROCESS={number}" in Path(f"/proc/{child}/environ").read_text().split("\0")
    )
    return found


DISAGREE = """
import os, fedax, test_devices
seed = int(os.environ["SLURM_PROCID"])
try:
    fedax.simulate(test_devices.LEAST_SQUARES, test_devices.regression(seed), fedax.FedAvg(lr=0.1), rounds=2, seed=seed)
except fedax.FedaxError as error:
    print(error)
"""


def test_tasks_of_slurm_that_disagree_say_on_what(tmp_path):
    """JAX's own detection makes the tasks of one `srun` the processes of one run."""
    with socket.socket() as free:  # JAX takes the port from the job's number
        port = next(port for port in range(61440 + os.getpid() % 4000, 65536) if free.connect_ex(("127.0.0.1", port)))
    step = {"SLURM_JOB_ID": str(port - 61440), "SLURM_STEP_NODELIST": "127.0.0.1", "SLURM_NTASKS": "2"}
    tasks = [
        subprocess.Popen(
            [sys.executable, "-c", DISAGREE],
            env={
                **{k: v for k, v in os.environ.items() if not k.startswith("FEDAX_PROCESS")},
                **step,
                "SLURM_STEP_NUM_TASKS": "2",
                "SLURM_PROCID": str(number),
                "SLURM_LOCALID": str(number),
                "FEDAX_DEVICES": "1",
                "PYTHONPATH": os.pathsep.join([str(TESTS), str(Path(fedax.__file__).parents[1])]),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(2)
    ]
    sentence = "the processes of the run disagree on data, seed: each must be started with the same experiment"
    assert [said.strip() for said in ended(tasks)] == [sentence, sentence]


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
