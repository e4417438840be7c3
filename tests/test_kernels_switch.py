"""FEDAX_KERNELS=off: everything still runs, by XLA's own operations, and agrees."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fedax
from fedax.experiments import parse, run
from fedax.kernels.convolution import convolve, max_pool, overlapping_max_pool
from fedax.kernels.dense import product
from fedax.kernels.loops import by_columns, local_loop, peeled
from fedax.kernels.switch import enabled
from fedax.models import CNN, MLP, ResNet18, SmallCNN
from fedax.vectors import Mixture

MODELS = {
    "cnn": CNN(outputs=3, channels=(16, 16), dense=(128,)),
    "mlp": MLP(outputs=3, hidden=(128, 128)),
    "resnet": ResNet18(outputs=3, channels=(16,), stem="7x7"),
    "small_cnn": SmallCNN(outputs=3, channels=(4, 16)),
}


def switch(monkeypatch, choice):
    """The switch is asked when a program is traced: what was traced before goes."""
    monkeypatch.setenv("FEDAX_KERNELS", choice)
    jax.clear_caches()


@pytest.fixture(params=["on", "off"])
def switched(request, monkeypatch):
    switch(monkeypatch, request.param)
    return request.param == "on"


def images(clients=2, rows=32):
    rng = np.random.default_rng(0)
    return fedax.Federation.from_clients(
        [
            {"x": rng.normal(size=(rows, 12, 12, 1)).astype(np.float32), "y": rng.integers(0, 3, rows)}
            for _ in range(clients)
        ]
    )


def differs(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(float(np.max(np.abs(np.asarray(a) - np.asarray(b)))) for a, b in pairs)


@pytest.mark.parametrize("name", MODELS)
def test_models_are_trained_alike_with_and_without(name, monkeypatch):
    found = {}
    for choice in ("on", "off"):
        switch(monkeypatch, choice)
        problem = fedax.Problem(MODELS[name], loss="cross_entropy")  # a new one: programs are kept with it
        options = {"rounds": 2, "local_steps": 2, "batch_size": 16, "executor": "looped"}
        found[choice] = fedax.simulate(problem, images(), fedax.FedAvg(lr=0.05), **options).model
    assert differs(found["on"], found["off"]) < 1e-5


def test_settings_in_lanes_are_alike_with_and_without(monkeypatch):
    found = {}
    for choice in ("on", "off"):
        switch(monkeypatch, choice)
        problem = fedax.Problem(MLP(outputs=3, hidden=(8,)), loss="cross_entropy")
        settings = fedax.grid(fedax.FedAvg(lr=0.1), {"lr": [0.02, 0.1]})
        swept = fedax.sweep(problem, images(), settings, rounds=2, local_steps=2, batch_size=16, mode="batched")
        found[choice] = [result.model for result in swept]
    assert differs(found["on"], found["off"]) < 1e-5


def test_the_switch_decides_what_is_traced(switched):
    assert enabled() is switched
    x, kernel = jnp.ones((2, 8, 8, 4)), jnp.ones((3, 3, 4, 4))
    order = ("NHWC", "HWIO", "NHWC")

    def traced(f, *arrays):
        return str(jax.make_jaxpr(f)(*arrays))

    program = traced(lambda x, w: convolve(x, w, (1, 1), "SAME", dimension_numbers=order), x, kernel)
    assert ("conv_general_dilated" in program) is not switched
    for pool in (max_pool, overlapping_max_pool):
        assert ("reduce_window" in traced(pool, x)) is not switched
    rows = jnp.ones((20, 128)), jnp.ones((128, 128))
    assert ("custom_vjp" in traced(product, *rows)) is switched
    assert local_loop(lanes=True, peels=True) is (by_columns if switched else lax.fori_loop)
    assert local_loop(lanes=False, peels=True) is (peeled if switched else lax.fori_loop)


def test_a_mixture_of_kernels_is_the_kernel_of_the_mixture(switched):
    rng = np.random.default_rng(1)
    x, own, shared = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((20, 128), (128, 128), (128, 128)))
    mixed = product(x, Mixture(own, shared, 0.3))
    np.testing.assert_allclose(mixed, x @ (0.3 * own + 0.7 * shared), rtol=1e-4, atol=1e-4)


def test_other_values_are_refused(monkeypatch):
    monkeypatch.setenv("FEDAX_KERNELS", "fast")
    with pytest.raises(fedax.FedaxError, match="FEDAX_KERNELS is 'fast': it must be on or off"):
        enabled()
    monkeypatch.setenv("FEDAX_KERNELS", "")
    assert enabled() is (jax.default_backend() == "cpu")


def test_a_run_refuses_other_values_before_it_writes(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDAX_KERNELS", "fast")
    table = {"rounds": 1, "data": {"name": "wine"}, "model": {"name": "logistic"}}
    asked = parse({**table, "algorithm": {"name": "FedAvg", "lr": 0.1}})
    with pytest.raises(fedax.FedaxError, match="FEDAX_KERNELS"):
        run(asked, tmp_path / "run")
    assert not (tmp_path / "run").exists()
