"""Localised: any method's shared model after a few SGD steps on each client's rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedax
from conftest import QUADRATIC, quadratic_loss, quadratics
from fedax import schedules
from fedax.errors import FedaxError
from fedax.experiments.file_tables import AlgorithmTable
from fedax.regularizers import L1
from fedax.testing import check_algorithm
from fedax.testing.driven_run import DrivenRun
from fedax.testing.problems import smooth
from fedax.testing.whole_runs import compilations


@pytest.fixture(autouse=True, scope="module")
def double():
    """Double precision for this module."""
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize(
    "base", [fedax.SCAFFOLD(lr=0.1), fedax.FedDeper(lr=0.1, rho=0.05), fedax.FedDualAvg(lr=0.1)], ids=repr
)
@pytest.mark.parametrize("lr", [None, 0.03])
def test_localised_descends_from_its_bases_model(base, lr):
    federation, _ = quadratics(8)
    setting = smooth(federation, 3, 3)
    plain, wrapped = (DrivenRun(m, setting).advance(4) for m in (base, fedax.Localised(base, steps=6, lr=lr)))
    np.testing.assert_array_equal(wrapped.shared, plain.shared)
    for i in range(8):
        v = plain.shared
        for _ in range(6):
            v = v - (lr or 0.1) * federation.arrays["A"][i] @ (v - federation.arrays["b"][i])
        np.testing.assert_allclose(wrapped.personal[i], v, rtol=0, atol=1e-12)


@pytest.mark.parametrize("base", [fedax.SCAFFOLD(lr=0.05), fedax.FedMiD(lr=0.05), fedax.LocalOnly], ids=str)
def test_localised_keeps_the_contract_whatever_its_base(base):
    if base is fedax.LocalOnly:
        with pytest.raises(FedaxError, match="base must have a shared model to start from, and LocalOnly has none"):
            fedax.Localised(base(lr=0.1), steps=2)
    else:
        cheap = ["purity", "shapes", "cost", "identity", "claims", "save and load"]
        check_algorithm(fedax.Localised(base, steps=3), checks=cheap).raise_if_failed()


def test_localised_combines_uploads_as_its_base_does():
    setting = smooth(quadratics(8)[0], 3, 5)
    base = fedax.Robust(fedax.FedAvg(lr=0.1), rule="median")
    plain, wrapped = (DrivenRun(m, setting).advance(3) for m in (base, fedax.Localised(base, steps=2, lr=0.1)))
    np.testing.assert_array_equal(wrapped.shared, plain.shared)


def test_localised_takes_a_prox_where_its_base_does():
    """The fixed point of its steps is the optimality condition of f_i + psi."""
    strength, lr = 1.5, 0.2
    federation, _ = quadratics(8)
    problem = fedax.Problem(loss=quadratic_loss, init=lambda key: jnp.ones(5), regularizer=L1(strength=strength))
    result = fedax.simulate(problem, federation, fedax.Localised(fedax.FedMiD(lr=lr), steps=500), rounds=2)
    zeros = 0
    for i in range(8):
        v = np.asarray(result.personal(i))
        g = federation.arrays["A"][i] @ (v - federation.arrays["b"][i])
        np.testing.assert_allclose(g[v != 0], -strength * np.sign(v[v != 0]), rtol=0, atol=1e-10)
        assert (np.abs(g[v == 0]) <= strength).all()
        zeros += int((v == 0).sum())
    assert 0 < zeros < 40


def test_localised_resolves_its_bases_schedules():
    decay = schedules.InverseTime(0.2, 1.0)
    context = fedax.algorithms.Context(round=3)
    assert fedax.Localised(fedax.FedAvg(lr=decay), steps=2).at(context) == fedax.Localised(
        fedax.FedAvg(lr=0.05), steps=2
    )
    federation, _ = quadratics(1)
    one, other = (
        DrivenRun(m, smooth(federation)).advance(4).shared
        for m in (fedax.Localised(fedax.FedAvg(lr=decay), steps=2, lr=0.1), fedax.FedAvg(lr=decay))
    )
    np.testing.assert_array_equal(one, other)


def test_localised_sweeps_over_the_rate_of_its_base():
    federation, _ = quadratics(1)
    settings = [fedax.Localised(fedax.FedAvg(lr=lr), steps=2) for lr in (0.1, 0.2)]
    swept = fedax.sweep(QUADRATIC, federation, settings, rounds=3, local_steps=2)
    for setting, result in zip(settings, swept, strict=True):
        alone = fedax.simulate(QUADRATIC, federation, setting, rounds=3, local_steps=2)
        np.testing.assert_allclose(result.model, alone.model, rtol=0, atol=1e-13)
        np.testing.assert_allclose(result.personal(3), alone.personal(3), rtol=0, atol=1e-13)


def test_another_rate_of_the_base_is_no_new_program():
    federation, _ = quadratics(1)
    one, other = (
        DrivenRun(fedax.Localised(fedax.FedAvg(lr=lr), steps=2), smooth(federation, 2)) for lr in (0.11, 0.12)
    )
    one.advance()
    before = compilations()
    other.advance()
    assert compilations() == before
    assert np.max(np.abs(one.shared - other.shared)) > 1e-4


def test_localised_in_an_experiment_file():
    decay = {"kind": "inverse-time", "initial": 0.1, "decay": 1}
    table = AlgorithmTable(name="localised", steps=20, base={"name": "fedavg", "lr": decay, "server_lr": 1})
    assert table.build() == fedax.Localised(fedax.FedAvg(lr=schedules.InverseTime(0.1, 1)), steps=20)
    assert table.resolved() == {
        "name": "Localised",
        "label": "Localised",
        "base": {"name": "FedAvg", "lr": decay, "server_lr": 1},
        "steps": 20,
        "lr": None,
    }
    assert fedax.Localized is fedax.Localised  # as it was once spelt
    assert fedax.algorithms.build("Localized", base=fedax.FedAvg(lr=0.1), steps=2).steps == 2
    for table, message in (
        ("FedAvg", "base must be a method such as FedAvg"),
        (0.1, "base must be a method such as FedAvg"),
        ({"name": "FedAvgg", "lr": 0.1}, "unknown algorithm 'FedAvgg': did you mean 'FedAvg'"),
        ({"name": "FedAvg", "lr": [1]}, "base.lr is \\[1\\]: it must be a number"),
        ({"name": "FedAvg", "lr": 0.1, "label": "mine"}, "unknown field of FedAvg 'label'"),
        ({"lr": 0.1}, "a schedule needs kind, one of .*; a method, name"),
    ):
        with pytest.raises(ValueError, match=message):
            AlgorithmTable(name="Localised", steps=2, base=table)
    with pytest.raises(ValueError, match=r"FedAvg: lr must be a number in \(0, inf\), not FedAvg"):
        AlgorithmTable(name="FedAvg", lr={"name": "FedAvg", "lr": 0.1})


def test_localised_needs_a_rate_from_somewhere():
    @fedax.algorithm
    class Still(fedax.Algorithm):
        """No rate."""

    with pytest.raises(FedaxError, match="lr must be given, for Still has none of its own"):
        fedax.Localised(Still(), steps=2)
    assert fedax.Localised(Still(), steps=2, lr=0.1).lr == 0.1
