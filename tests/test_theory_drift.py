"""FedAvg leaves the optimum it starts at, with identical clients; the instances of Theorems 2.8 and 2.10."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedax.bounds import table_2_1, theorem_2_10
from fedax.errors import FedaxError
from fedax.papers.theory import (
    drift,
    exponent,
    identical_clients,
    lower_bound_instance,
    normal_rows,
    piecewise_quadratic,
    worst_case,
)

CLIENTS = 16384
#: from one round to the next the mean moves by -lr^2 K^1.5 L sigma / (3 sqrt(2 pi)) and is drawn back by (3/4) lr K L x
RESTS_AT = -4 / (9 * np.sqrt(2 * np.pi))


def settled(instance, lr, steps):
    """The model once the pull back balances the drift, in units of lr sqrt(K) sigma."""
    rounds = int(6 / (0.75 * lr * steps))
    return float(drift(instance, lr=lr, local_steps=steps, rounds=rounds)) / (lr * steps**0.5)


def test_fedavg_leaves_the_optimum_by_what_the_bias_says():
    kink = identical_clients(piecewise_quadratic(), sigma=1.0, clients=CLIENTS)
    found = {(lr, k): settled(kink, lr, k) for lr, k in ((0.01, 16), (0.0025, 16), (0.0025, 256))}
    for setting, value in found.items():
        assert value == pytest.approx(RESTS_AT, rel=0.25), setting  # noise of 16384 clients, order lr K L = 0.6
    away = {setting: value * setting[0] * setting[1] ** 0.5 for setting, value in found.items()}
    assert exponent([0.01, 0.0025], [away[0.01, 16], away[0.0025, 16]]) == pytest.approx(1, abs=0.2)
    assert exponent([16, 256], [away[0.0025, 16], away[0.0025, 256]]) == pytest.approx(0.5, abs=0.1)


def test_on_a_quadratic_it_stays():
    bowl = identical_clients(lambda x: x**2 / 2, sigma=1.0, clients=CLIENTS)
    lr, steps = 0.01, 16
    noise = lr * steps**0.5 / CLIENTS**0.5 / np.sqrt(2 * lr * steps)  # a mean of clients, kept over 1 / (lr K) rounds
    assert abs(float(drift(bowl, lr=lr, local_steps=steps, rounds=40))) < 4 * noise


def test_one_local_step_does_not_drift():
    kink = identical_clients(piecewise_quadratic(), sigma=1.0, clients=CLIENTS)
    lr = 0.3
    noise = 1 / np.sqrt(CLIENTS * 2 * 0.75 * lr)  # in the same units; 4 of it is a quarter of the drift with K > 1
    assert abs(settled(kink, lr, 1)) < 4 * noise < 0.3 * abs(RESTS_AT)


@pytest.mark.parametrize("zeta", [0.0, 3.0], ids=["Theorem 2.8", "Theorem 2.10"])
def test_no_step_size_beats_the_lower_bound(zeta):
    K, R, setting = 8, 16, {"L": 1.0, "B": 1.0, "sigma": 2.0, "zeta": zeta}
    made = lower_bound_instance(**setting, clients=64, local_steps=K, rounds=R)
    bound = worst_case(**setting, K=K, R=R)
    errors = []
    for lr in 2.0 ** np.arange(-9, 2):
        ends = [drift(made, lr=lr, local_steps=K, rounds=R, seed=s) for s in range(2)]
        errors.append(np.mean([float(made.objective(x)) for x in ends]))
    assert min(errors) > bound / 200  # the theorem's constant is not named; case 2 alone has about 1/100
    assert min(errors) < bound  # and it is not the trivial bound
    # Table 2.1: the fourth coordinate stays within 8 zeta / L, where clients' curvatures make zeta 3/2 of itself
    rates = table_2_1(L=1.0, B=1.0, sigma=2.0, zeta=1.5 * zeta, zeta_star=zeta, M=64, K=K, R=R)
    assert rates["lower"] / 200 < min(errors) < rates["upper"]
    assert theorem_2_10(L=1.0, B=1.0, sigma=2.0, zeta_star=zeta, M=64, K=K, R=R) / 200 < min(errors)


def test_an_instance_has_the_constants_it_was_asked_for():
    setting = {"L": 2.0, "B": 3.0, "sigma": 0.5, "zeta": 1.5}
    made = lower_bound_instance(**setting, clients=6, local_steps=4, rounds=10)
    problem, federation = made.problem, made.federation
    with jax.enable_x64(True):
        gradient = jax.grad(lambda x, i: problem.loss(x, jax.tree.map(jnp.asarray, federation.client(i))))
        at_optimum = np.array([gradient(jnp.zeros(4), i) for i in range(6)])
        assert np.mean(np.sum(at_optimum**2, 1)) == pytest.approx(setting["zeta"] ** 2)
        np.testing.assert_allclose(at_optimum.mean(0), 0, atol=1e-12)
        x = jnp.array([0.3, -0.2, 0.7, 0.4])
        mean = np.mean([problem.loss(x, jax.tree.map(jnp.asarray, federation.client(i))) for i in range(6)])
        assert mean == pytest.approx(float(made.objective(x)))
        curvature = np.linalg.eigvalsh(jax.hessian(made.objective)(x))
        assert curvature.max() == pytest.approx(setting["L"])
        assert curvature.min() > 0
    assert np.linalg.norm(made.start) < setting["B"]


def test_bad_input_is_one_sentence():
    setting = {"L": 1.0, "B": 1.0, "sigma": 1.0, "rounds": 4}
    with pytest.raises(FedaxError, match="clients must be even for zeta above 0, not 3"):
        lower_bound_instance(**setting, clients=3, local_steps=2, zeta=1.0)
    with pytest.raises(FedaxError, match="local_steps must be at least 2 for the lower bound, not 1"):
        lower_bound_instance(**setting, clients=2, local_steps=1)
    with pytest.raises(FedaxError, match="B must be above 0, not 0"):
        worst_case(L=1.0, B=0, sigma=1.0, K=2, R=2)
    with pytest.raises(FedaxError, match="sigma must not be negative, and it is -1"):
        normal_rows(-1.0)
    with pytest.raises(FedaxError, match="clients must be a whole number from 1 on, not 0"):
        identical_clients(piecewise_quadratic(), 1.0, 0)
