"""Regularizers: prox by its definition, leaves, and what smooth methods make of them."""

from __future__ import annotations

import logging

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

import fedax
from conftest import LEAST_SQUARES, regression
from fedax.regularizers import L1, SquaredL2


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.floats(-3, 3), st.floats(0.01, 2), st.floats(0, 2), st.sampled_from([L1, SquaredL2]))
def test_prox_is_the_minimiser_of_its_definition(x, t, strength, kind):
    psi = kind(strength)
    found = float(psi.prox(fedax.Vector(jnp.array([x])), t).tree[0])

    def objective(z):
        penalty = abs(z) if kind is L1 else z * z / 2
        return strength * penalty + (z - x) ** 2 / (2 * t)

    best = minimize_scalar(objective, bounds=(-4, 4), method="bounded", options={"xatol": 1e-10})
    assert objective(found) <= best.fun + 1e-6


def test_intercepts_are_free_by_default():
    x = fedax.Vector({"kernel": jnp.ones(2), "bias": jnp.ones(1)})
    assert float(L1(1.0).value(x)) == 2
    assert float(L1(1.0, on="all").value(x)) == 3
    assert float(L1(1.0, on="bias").value(x)) == 1
    assert float(L1(1.0, on=lambda path: path == "kernel").value(x)) == 2
    assert SquaredL2(1.0).subgradient(x).tree["bias"].tolist() == [0.0]
    with pytest.raises(fedax.FedaxError, match="on='kernle' selects none of the leaves bias, kernel"):
        L1(1.0, on="kernle").check(x.tree)
    with pytest.raises(fedax.FedaxError, match="strength must be in"):
        L1(-1.0)


def test_ridge_regression_by_gradient_steps(x64):
    federation = regression()
    problem = fedax.Problem(loss=LEAST_SQUARES._batch_loss, init=lambda key: jnp.zeros(6), regularizer=SquaredL2(0.3))
    result = fedax.simulate(problem, federation, fedax.FedAvg(lr=0.3), rounds=600, weighted=True, eval_every=600)
    x, y = federation.arrays["x"], federation.arrays["y"]
    expected = np.linalg.solve(x.T @ x / len(y) + 0.3 * np.eye(6), x.T @ y / len(y))
    np.testing.assert_allclose(result.model, expected, rtol=1e-9)


def test_a_smooth_method_says_that_it_takes_subgradients(caplog):
    problem = fedax.Problem(loss=LEAST_SQUARES._batch_loss, init=lambda key: jnp.zeros(6), regularizer=L1(0.1))
    with caplog.at_level(logging.INFO, logger="fedax"):
        fedax.simulate(problem, regression(), fedax.FedAvg(lr=0.1), rounds=1)
    assert "FedAvg has no proximal step: it takes subgradients of L1" in caplog.text
