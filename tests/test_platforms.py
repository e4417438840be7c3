"""What is chosen on a kind of device: tested with the description of one, for none but CPUs is at hand."""

from __future__ import annotations

import types

import jax
import numpy as np
import pytest

import fedax
from conftest import LEAST_SQUARES, regression
from fedax import platforms
from fedax.algorithms import ALGORITHMS
from fedax.client.device_data import Disk
from fedax.engine.store import Store
from fedax.kernels.switch import enabled
from fedax.testing import make

WORK = {"rounds": 2, "cohort": 4, "local_steps": 2, "batch_size": 4}


def device(**stats):
    return types.SimpleNamespace(memory_stats=lambda: stats or None)


@pytest.fixture
def gpu(monkeypatch):
    """JAX as it describes itself on a machine with GPUs, of as many bytes as are asked for."""

    def described(memory):
        monkeypatch.setattr(platforms, "kind", lambda: "gpu")
        monkeypatch.setattr(platforms, "device_memory", lambda: memory)
        jax.clear_caches()

    yield described
    jax.clear_caches()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_round_of_every_method_lowers_for_cuda(gpu, name):
    gpu(16 << 30)
    run = fedax.Simulation(LEAST_SQUARES, regression(), make(ALGORITHMS[name]), **WORK)
    prepared = run.prepared
    program, given = prepared.engine.call(prepared.algorithm, run.state, np.True_, 2, prepared.data)
    assert "func.func public @main" in program.trace(*given).lower(lowering_platforms=("cuda",)).as_text()


def test_a_network_is_batched_on_a_gpu_and_looped_over_on_a_cpu(gpu):
    """Its steps leave a core's cache, and keep a GPU busy only together."""
    rng = np.random.default_rng(0)
    images = [{"x": rng.normal(size=(20, 14, 14, 1)).astype(np.float32), "y": rng.integers(3, size=20)}] * 6
    federation = fedax.Federation.from_clients(images)

    def chosen():
        net = fedax.models.model("cnn", outputs=3, channels=(16,), dense=(64,))
        run = fedax.Simulation(fedax.Problem(net, loss="cross_entropy"), federation, fedax.FedAvg(lr=0.1), **WORK)
        return run.prepared.executor

    assert (chosen().name, enabled()) == ("looped", True)
    gpu(16 << 30)
    on = chosen()
    assert (on.name, on.chunk, enabled()) == ("batched", 4 // on.devices, False)
    gpu(1 << 20)  # with too little memory for the steps of one client: clients take turns
    assert chosen().name == "looped"


def test_rows_and_states_that_a_gpu_has_no_room_for_come_as_they_are_needed(gpu):
    options = {**WORK, "rounds": 4, "eval_every": 2}
    expected = fedax.simulate(LEAST_SQUARES, regression(), fedax.SCAFFOLD(lr=0.05), **options)
    gpu(400)
    run = fedax.Simulation(LEAST_SQUARES, regression(), fedax.SCAFFOLD(lr=0.05), **options)
    assert isinstance(run.prepared.data, Disk)
    assert isinstance(run.prepared.store, Store)
    rows = list(run)
    run.close()
    for row, other in zip(rows, expected.history, strict=True):
        assert row["train_loss"] == pytest.approx(other["train_loss"], rel=1e-5)


def test_memory_is_the_least_that_any_device_says(monkeypatch):
    for devices, found in (
        ([device(bytes_limit=8 << 30), device(bytes_limit=6 << 30)], 6 << 30),
        ([device()], None),
        ([device(bytes_in_use=5)], None),
    ):
        platforms.device_memory.cache_clear()
        monkeypatch.setattr(jax, "local_devices", lambda devices=devices: devices)
        assert platforms.device_memory() == found
    platforms.device_memory.cache_clear()


def test_a_platform_that_nobody_described_is_an_accelerator(monkeypatch):
    monkeypatch.setattr(platforms, "kind", lambda: "metal")
    monkeypatch.setattr(platforms, "device_memory", lambda: None)
    assert platforms.current() == platforms.ACCELERATOR
    assert platforms.room_to_hold() is None


def test_programs_of_another_accelerator_are_kept_apart(monkeypatch):
    """Two kinds of GPU in one machine's cache, as on a cluster with a shared home."""
    for kinds in (["A100"], ["H100", "H100"]):
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
        monkeypatch.setattr(jax, "local_devices", lambda k=kinds: [types.SimpleNamespace(device_kind=d) for d in k])
        assert fedax.runtime._accelerators() == kinds[0]
