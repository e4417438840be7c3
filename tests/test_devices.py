"""The cohort spread over any number of devices; compiled programs kept between launches."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedax
from conftest import LEAST_SQUARES, regression

MATRIX = fedax.Problem(
    loss=lambda w, b: jnp.mean((b["x"].reshape(-1, 2, 3) @ w - b["y"][:, None, None]) ** 2),
    init=lambda key: jnp.ones((3, 2)),
    regularizer=fedax.regularizers.Nuclear(0.1),
)
RUNS = {
    "FedAvg": (LEAST_SQUARES, fedax.FedAvg(lr=0.02), {"weighted": True}),
    "SCAFFOLD": (LEAST_SQUARES, fedax.SCAFFOLD(lr=0.02), {}),
    "looped, states in a file": (
        LEAST_SQUARES,
        fedax.SCAFFOLD(lr=0.02),
        {"executor": "looped", "state_budget": "120B"},
    ),
    "APFL": (LEAST_SQUARES, fedax.APFL(lr=0.02, adaptive=True), {}),
    "FedDualAvg": (MATRIX, fedax.FedDualAvg(lr=0.02), {"local_steps": 1}),
}
OPTIONS = {"rounds": 6, "cohort": 5, "local_steps": 3, "batch_size": 4, "eval_every": 6}


def leaves(result, client=None):
    """The numbers of the shared model, or of a client's own."""
    return [np.asarray(a) for a in jax.tree.leaves(result.model if client is None else result.personal(client))]


def here(devices=None, names=tuple(RUNS)):
    """Every method's shared model, every client's own, and the losses, on some of this process' devices."""
    found = {}
    for name in names:
        problem, method, options = RUNS[name]
        result = fedax.simulate(problem, regression(), method, devices=devices, **OPTIONS | options)
        losses = [np.array([row["train_loss"] for row in result.history])]
        found[name] = sum((leaves(result, client) for client in (None, *range(6))), losses)
    return found


def work(folder, counts, names=tuple(RUNS)):
    """For another process: the same with other devices, left in a file by the first process."""
    for devices in counts:
        found = here(devices, names)
        if jax.process_index() == 0:
            (Path(folder) / f"{devices}.pickle").write_bytes(pickle.dumps(found))


def made(folder, devices):
    return pickle.loads((Path(folder) / f"{devices}.pickle").read_bytes())


def test_any_number_of_devices_makes_the_same_models(tmp_path):
    """Five clients a round over one to four devices: all but one leave places empty."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    code = f"from test_devices import work; work({str(tmp_path)!r}, [1, 2, 3, 4])"
    ran = launch(code, XLA_FLAGS=flags, PYTHONPATH=str(Path(__file__).parent))
    assert ran.returncode == 0, ran.stderr
    expected = made(tmp_path, 1)
    for devices in (2, 3, 4):
        found = made(tmp_path, devices)
        for name in RUNS:
            for mine, theirs in zip(found[name], expected[name], strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5, err_msg=f"{name}, {devices} devices")
    cores = len(os.sched_getaffinity(0))
    if cores < 4:
        lines = [line for line in ran.stderr.splitlines() if "cores" in line]
        assert lines[-1] == f"4 devices share {cores} cores: more devices than cores make a run slower"
        assert len(lines) == 4 - cores


SHOW = "import fedax, jax; fedax.configure(); print(jax.config.jax_compilation_cache_dir)"


def launch(code=SHOW, **environment):
    kept = {k: v for k, v in os.environ.items() if k not in ("FEDAX_COMPILE_CACHE", "JAX_COMPILATION_CACHE_DIR")}
    return subprocess.run(
        [sys.executable, "-c", code], env={**kept, **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"FEDAX_COMPILE_CACHE": "0"}, "None"),
        ({"FEDAX_COMPILE_CACHE": "1", "JAX_COMPILATION_CACHE_DIR": "/somewhere/else"}, "/somewhere/else"),
    ],
    ids=["off", "jax's own"],
)
def test_the_cache_is_left_alone(tmp_path, environment, expected):
    assert launch(FEDAX_CACHE=str(tmp_path), **environment).stdout.strip() == expected


def test_programs_are_kept_in_the_cache(tmp_path):
    code = "import fedax, jax, jax.numpy as jnp; fedax.configure(); jax.jit(lambda x: x @ x)(jnp.ones((8, 8)))"
    found = launch(code, FEDAX_CACHE=str(tmp_path), FEDAX_COMPILE_CACHE="1")
    assert found.stderr == ""
    assert any((tmp_path / "programs").rglob("*"))


HEARD = """
import sys, fedax.runtime as runtime
if sys.argv[1] == "noisy":
    runtime._said_on_reading = lambda: b"the machine is another"
runtime.configure()
import jax
print(jax.config.jax_compilation_cache_dir)
"""


def test_programs_are_kept_where_reading_them_back_is_silent(tmp_path):
    kept = {k: v for k, v in os.environ.items() if k not in ("FEDAX_COMPILE_CACHE", "JAX_COMPILATION_CACHE_DIR")}
    found = {}
    for how in ("noisy", "as it is"):
        command = [sys.executable, "-c", HEARD, how]
        shell = {**kept, "FEDAX_CACHE": str(tmp_path / how)}
        done = [subprocess.run(command, env=shell, capture_output=True, text=True, check=True) for _ in range(2)]
        assert [each.stderr for each in done] == ["", ""]
        found[how] = {each.stdout.strip() for each in done}
    assert found["noisy"] == {"None"}
    assert str(tmp_path) in found["as it is"].pop()
    (folder,) = (tmp_path / "as it is" / "programs").iterdir()
    assert any("small" in path.name for path in folder.iterdir())


def test_a_damaged_cache_is_compiled_again_without_a_word(tmp_path):
    code = "import fedax, jax; fedax.configure(); print(jax.jit(lambda x: x * 2 + 1)(jax.numpy.float32(3)))"
    assert launch(code, FEDAX_CACHE=str(tmp_path / "kept")).stdout == "7.0\n"
    entries = [path for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    assert entries
    for path in entries:
        path.write_bytes(b"\xff" * 100)
    (tmp_path / "file").write_text("no directory can be made in a file")
    for cache in (tmp_path / "kept", tmp_path / "file"):
        found = launch(code, FEDAX_CACHE=str(cache))
        assert (found.stdout, found.stderr) == ("7.0\n", "")


def test_a_wrong_wish_is_named(tmp_path):
    found = launch(FEDAX_CACHE=str(tmp_path), FEDAX_COMPILE_CACHE="yes")
    assert "FEDAX_COMPILE_CACHE must be 0 or 1, not 'yes'" in found.stderr
    for devices in ("0", "1000000", "²", "9" * 5000):
        found = launch(FEDAX_CACHE=str(tmp_path), FEDAX_DEVICES=devices)
        assert "FEDAX_DEVICES must be a whole number from 1 to 1024, not" in found.stderr


@pytest.mark.parametrize(
    "first",
    ["fedax.data.lasso('thesis-III')", "fedax.data.load('digits')", "fedax.models.model('mlp', outputs=2)"],
)
def test_what_comes_before_a_run_leaves_it_its_devices(first):
    """Data may be made with JAX, whose number of devices is fixed by its first use."""
    code = f"import fedax; {first}; fedax.FedAvg; fedax.configure(); import jax; print(len(jax.devices()))"
    found = launch(code, FEDAX_DEVICES="3")
    assert found.stdout.strip() == "3", found.stderr
    assert found.stderr == ""


def test_importing_sets_nothing_up():
    """No devices, no cache, no warning filters: whoever imports a part of Fedax finds JAX as it was."""
    rooms = "vectors algorithms problem client engine evaluation experiments regularizers papers.theory testing"
    imports = "; ".join(f"import fedax.{room}" for room in rooms.split())
    show = "print(jax.config.jax_compilation_cache_dir, jax.device_count(), *(f[1] for f in warnings.filters))"
    found = launch(f"import warnings, jax; {imports}; {show}", FEDAX_COMPILE_CACHE="1", FEDAX_DEVICES="3")
    assert found.stdout.startswith("None 1 "), found.stderr
    assert "persistent" not in found.stdout


def test_a_run_says_that_jax_was_in_use_before_it():
    code = "import jax, fedax; jax.devices(); fedax.configure(); print(jax.device_count())"
    found = launch(code, FEDAX_DEVICES="3")
    assert found.stdout.strip() == "1"
    assert "JAX was in use before the run, with 1 of 3 devices: call fedax.configure() before" in found.stderr
