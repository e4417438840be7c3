"""The iterate bias of SGD: the exponents and constants of thesis sections 2.2 and 2.4, each from its closed form."""

from __future__ import annotations

from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

import fedax
from fedax.errors import FedaxError
from fedax.papers.theory import (
    exponent,
    iterate_bias,
    of_client,
    piecewise_quadratic,
    sde_bias,
    smooth_bend,
    third_derivative,
    with_noise,
)

STEPS = (64, 128, 256, 512)
RATES = (1e-5, 3e-5, 1e-4)
ORIGIN = 0.0
KINK = with_noise(piecewise_quadratic(), 1.0)
BEND = with_noise(smooth_bend(Q=1.0), 1.0)

pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.parametrize(("problem", "in_rate", "in_steps"), [(KINK, 2, 1.5), (BEND, 3, 2)], ids=["kink", "smooth"])
def test_the_exponents_of_the_thesis(problem, in_rate, in_steps):
    found = [iterate_bias(problem, ORIGIN, lr=lr, steps=512) for lr in RATES]
    assert exponent(RATES, [f.mean[-1] for f in found]) == pytest.approx(in_rate, abs=0.1)
    assert exponent(STEPS, [found[-1].mean[k - 1] for k in STEPS]) == pytest.approx(in_steps, abs=0.1)


def test_the_kinks_bias_is_what_the_half_normal_gives():
    # x_j is N(0, lr^2 j) to first order, so a step's mean gradient is (1/2) E max(x_j, 0) = lr sqrt(j / 2 pi) / 2
    lr, steps = 1e-4, 256
    expected = -(lr**2) / 2 / np.sqrt(2 * np.pi) * np.sqrt(np.arange(steps)).sum()
    low, high = iterate_bias(KINK, ORIGIN, lr=lr, steps=steps, samples=20000).after(steps)
    assert low - 0.02 * abs(expected) < expected < high + 0.02 * abs(expected)  # first order in lr L k = 0.026
    assert high - low < 0.1 * abs(expected)


def test_the_smooth_bias_has_one_quarter_and_not_one_half():
    lr, steps = 1e-4, 256
    low, high = iterate_bias(BEND, ORIGIN, lr=lr, steps=steps, samples=20000).after(steps)
    quarter = float(sde_bias(BEND, ORIGIN, lr=lr, steps=steps))
    assert quarter == pytest.approx(-(lr**3) * steps**2 / 4, rel=0.05)  # F''' = Q = 1, sigma = 1, up to sampling
    assert low * 1.03 < -(lr**3) * steps * (steps - 1) / 4 < high * 0.97
    assert 2 * quarter < 1.5 * low  # eq. 2.29's -(1/2), far outside


def test_one_quarter_in_exact_arithmetic():
    # SGD on F = h x^2/2 + Q x^3/6 with xi = +-sigma: all 2^k paths in fractions, no sampling and no rounding
    lr, h, Q, sigma = Fraction(1, 10**6), Fraction(2), Fraction(5), Fraction(3)
    for start in (Fraction(0), Fraction(1, 3)):
        for k in (2, 4, 7):
            paths, z = [start], start
            for _ in range(k):
                paths = [x - lr * (h * x + Q * x**2 / 2 + s) for x in paths for s in (-sigma, sigma)]
                z = z - lr * (h * z + Q * z**2 / 2)
            bias = sum(paths) / len(paths) - z
            assert abs(bias / (lr**3 * k * (k - 1) * sigma**2 * Q) + Fraction(1, 4)) < 1e-4


def test_the_theorems_bounds_hold_with_their_constants():
    lr, steps = 0.02, 100
    for problem, Q in ((KINK, None), (BEND, 1.0)):
        size = np.abs(iterate_bias(problem, ORIGIN, lr=lr, steps=steps).mean)
        k = np.arange(1, steps + 1)
        assert np.all(size <= np.minimum(4 * lr**2 * k**1.5, lr * k**0.5))  # Theorem A.1, L = sigma = 1
        if Q is None:
            assert np.all(size[1:] >= 0.002 * np.minimum(lr**2 * k**1.5, lr**0.5)[1:])  # Theorem A.4
        else:
            slack = 1.05  # of the Monte Carlo: the bound is the leading term itself
            assert np.all(size <= slack * lr**3 * k**2 * Q / 4)  # Theorem A.7


def test_on_a_quadratic_the_interval_contains_0():
    bowl = with_noise(lambda x: x @ jnp.array([[2.0, 0.5], [0.5, 1.0]]) @ x / 2, 1.0)
    for paired in (True, False):
        found = iterate_bias(bowl, jnp.ones(2), lr=0.05, steps=40, paired=paired, confidence=0.9999)
        low, high = found.after(40)
        assert np.all(low <= 0), paired
        assert np.all(high >= 0), paired


def test_pairing_changes_the_width_and_not_the_answer():
    options = {"lr": 0.05, "steps": 30, "samples": 40000, "confidence": 0.9999}
    plain, paired = (iterate_bias(KINK, ORIGIN, paired=p, **options) for p in (False, True))
    assert abs(plain.mean[-1] - paired.mean[-1]) < plain.half[-1]
    assert paired.half[-1] < plain.half[-1] / 3


def test_the_interval_covers_as_often_as_it_says():
    # bias of F = x^3 / 6 after two steps from 0 with xi in N(0, 1): -lr^3 / 2, exactly
    cubic, lr = with_noise(lambda x: x**3 / 6, 1.0), 0.1
    hits = 0
    for seed in range(60):
        low, high = iterate_bias(cubic, ORIGIN, lr=lr, steps=2, samples=400, confidence=0.8, seed=seed).after(2)
        hits += low <= -(lr**3) / 2 <= high
    assert 36 <= hits <= 58  # binomial(60, 0.8): five deviations below, three above


def test_the_third_derivative_along_directions():
    c = jnp.array([1.0, -2.0, 0.5])
    u, v, w = jnp.eye(3)
    assert float(third_derivative(lambda x: jnp.exp(c @ x), jnp.zeros(3), u, v, w)) == pytest.approx(-1.0)
    assert float(third_derivative(lambda x: jnp.exp(c @ x), jnp.zeros(3), v)) == pytest.approx(-8.0)


def test_the_sde_gives_the_direction_in_several_dimensions():
    # D^3 F[., n, n] = Q (c n)^2 c, and E (c n)^2 = sigma^2 |c|^2 / d
    c, lr, steps, sigma = jnp.array([1.0, -2.0, 0.5]), 2e-4, 100, 0.6
    tilted = with_noise(lambda x: x @ x / 2 + (c @ x) ** 3 / 6, sigma)
    expected = -(lr**3) * steps**2 / 4 * sigma**2 * float(c @ c) / 3 * np.asarray(c)
    np.testing.assert_allclose(sde_bias(tilted, jnp.zeros(3), lr=lr, steps=steps, samples=1 << 16), expected, rtol=0.02)
    measured = iterate_bias(tilted, jnp.zeros(3), lr=lr, steps=steps, samples=20000)
    np.testing.assert_allclose(measured.mean[-1], expected, rtol=0.06)  # higher order in lr k = 0.02, and 1/k


def test_a_clients_minibatches():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2)) + 0.5
    data = {"x": x, "y": (rng.random(40) < 1 / (1 + np.exp(-x @ [2.0, -1.0]))).astype(int)}
    problem = fedax.Problem((lambda key, x: jnp.zeros(2), lambda w, x: x @ w), loss="logistic")
    client = of_client(problem, fedax.Federation.from_clients([data]), 0, batch_size=4)
    start, lr, steps = jnp.array([1.5, -1.0]), 2e-3, 50
    measured = iterate_bias(client, start, lr=lr, steps=steps, samples=20000)
    predicted = np.asarray(sde_bias(client, start, lr=lr, steps=steps))
    assert np.all(np.abs(measured.mean[-1] - predicted) < measured.half[-1] + 0.06 * np.abs(predicted))
    assert np.all(measured.half[-1] < 0.1 * np.abs(predicted))


def test_bad_input_is_one_sentence():
    with pytest.raises(FedaxError, match=r"no third derivative here: its second one jumps from 0\.5 to 1 at this"):
        sde_bias(KINK, ORIGIN, lr=0.1, steps=10)
    with pytest.raises(FedaxError, match=r"^lr must be above 0, not 0$"):
        iterate_bias(KINK, ORIGIN, lr=0, steps=10)
    with pytest.raises(FedaxError, match=r"^steps must be a whole number from 1 on, not 0$"):
        iterate_bias(KINK, ORIGIN, lr=0.1, steps=0)
    with pytest.raises(FedaxError, match=r"^sigma must be above 0, not -1$"):
        with_noise(lambda x: x, -1)
    lasso = fedax.Problem(loss=lambda w, b: w, init=lambda key: jnp.zeros(()), regularizer=fedax.regularizers.L1(1.0))
    with pytest.raises(FedaxError, match="L1 has no gradient"):
        of_client(lasso, fedax.Federation.from_clients([{"x": [1.0]}]), 0, 1)
