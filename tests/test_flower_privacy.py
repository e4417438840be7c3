"""Clipping, noise and the accountant: closed forms, numerical integrals, and an independent library's figures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, stats

import fedax
from dp_formulas import epsilon, renyi_fixed, renyi_poisson
from fedax.algorithms import ALGORITHMS
from fedax.client.device_data import Data
from fedax.client.plan import Plan
from fedax.client.public_parts import public_parts
from fedax.client.round import Client
from fedax.errors import FedaxError
from fedax.flower.messages import flatten
from fedax.flower.privacy_settings import Privacy
from fedax.privacy.accounting import Guarantee, known_epsilon, secret_epsilon
from fedax.privacy.clipping import clip, norm
from fedax.privacy.secret_cohorts import secret_draw
from fedax.privacy.secure_noise import add_noise
from fedax.testing.targets import make
from fedax.vectors import Vector

ORDERS = (2, 3, 8, 32)
X0 = Vector({"w": jnp.arange(1.0, 4.0)})


def renyi(order: int, one: tuple[float, float, float], other: tuple[float, float, float], sigma: float) -> float:
    """The Renyi divergence between two mixtures (q, a, b): N(a, sigma^2) with weight 1 - q, N(b, sigma^2) with q."""

    def log_density(x: float, mixture: tuple[float, float, float]) -> float:
        rate, a, b = mixture
        first = stats.norm.logpdf(x, a, sigma) + (math.log1p(-rate) if rate < 1 else -math.inf)
        second = stats.norm.logpdf(x, b, sigma) + (math.log(rate) if rate > 0 else -math.inf)
        return float(np.logaddexp(first, second))

    def integrand(x: float) -> float:
        return math.exp(order * log_density(x, one) + (1 - order) * log_density(x, other))

    around = [-1.0, 0.0, 1.0, float(order), *np.linspace(-3.0, order + 3.0, 7)]
    found, _ = integrate.quad(integrand, -40 * sigma, order + 40 * sigma, points=sorted(set(around)), limit=1000)
    return math.log(found) / (order - 1)


@pytest.mark.parametrize(("order", "rate"), list(itertools.product(ORDERS, (0.01, 0.2, 0.7))))
def test_poisson_is_the_divergence_of_the_mixture(order: int, rate: float) -> None:
    sigma = 3.0
    with_one, without = (rate, 0.0, 1.0), (0.0, 0.0, 0.0)
    exact = renyi(order, with_one, without, sigma)
    assert renyi_poisson(order, rate, sigma) == pytest.approx(exact, rel=1e-5, abs=1e-9)
    assert renyi(order, without, with_one, sigma) <= exact * (1 + 1e-6) + 1e-9  # the other direction is no worse


@pytest.mark.parametrize("order", ORDERS)
def test_without_sampling_it_is_the_gaussian_mechanism(order: int) -> None:
    for sigma in (0.5, 1.0, 6.0):
        assert renyi_poisson(order, 1.0, sigma) == pytest.approx(order / (2 * sigma**2))
        assert renyi_poisson(order, 1 - 1e-12, sigma) == pytest.approx(order / (2 * sigma**2), rel=1e-6)
        assert renyi_fixed(order, 1.0, sigma) == pytest.approx(order / (2 * (sigma / 2) ** 2))  # moved by 2 S


@pytest.mark.parametrize(("order", "rate"), list(itertools.product((2, 5, 16), (0.05, 0.3))))
def test_the_bound_for_fixed_cohorts_covers_a_replaced_client(order: int, rate: float) -> None:
    """Others upload zero; one client is drawn with probability q and uploads S in one federation, -S in the other."""
    for sigma in (2.0, 5.0):
        assert renyi_fixed(order, rate, sigma) >= renyi(order, (rate, 0.0, 1.0), (rate, 0.0, -1.0), sigma)
        assert renyi_fixed(order, rate, sigma) <= renyi_fixed(order, 1.0, sigma)


@pytest.mark.parametrize(
    ("rate", "multiplier", "rounds", "poisson"),
    [  # dp-accounting 0.6.0: PoissonSampledDpEvent(rate, GaussianDpEvent(multiplier)), delta 1e-5, the same orders
        (0.01, 1.1, 1000, 1.7252908180449444),
        (0.1, 4.0, 100, 1.0817024008570084),
        (0.5, 2.0, 50, 10.30285114792406),
        (1.0, 5.0, 20, 4.161911642354481),
    ],
)
def test_the_figures_of_another_library(rate: float, multiplier: float, rounds: int, poisson: float) -> None:
    assert epsilon(rounds, rate, multiplier, 1e-5, "poisson") == pytest.approx(poisson, rel=1e-9)


def test_fixed_cohorts_have_the_figures_of_another_library() -> None:
    # dp-accounting 0.6.0: SampledWithoutReplacementDpEvent, neighbours by replacement, its multiplier being z / 2.
    assert epsilon(1000, 0.01, 2.2, 1e-5, "fixed") == pytest.approx(3.1899987783606503, rel=1e-9)
    assert epsilon(50, 0.5, 4.0, 1e-5, "fixed") == pytest.approx(22.626631103850336, rel=1e-9)


@pytest.mark.parametrize("rounds", [1, 10, 100])
def test_epsilon_is_above_the_exact_one_and_near_it(rounds: int) -> None:
    """R rounds of all clients are one Gaussian mechanism with z / sqrt(R): Balle and Wang (2018), Theorem 8."""
    multiplier, delta = 8.0, 1e-5
    mu = math.sqrt(rounds) / multiplier

    def beyond(e: float) -> float:
        return float(stats.norm.cdf(mu / 2 - e / mu) - math.exp(e) * stats.norm.cdf(-mu / 2 - e / mu)) - delta

    exact = optimize.brentq(beyond, 0.0, 50.0)
    found = epsilon(rounds, 1.0, multiplier, delta, "poisson")
    assert exact <= found <= 1.25 * exact


@pytest.mark.parametrize("cohorts", ["fixed", "poisson"])
def test_epsilon_grows_with_rounds_and_rate_and_falls_with_noise(cohorts: str) -> None:
    by_rounds = [epsilon(r, 0.1, 2.0, 1e-5, cohorts) for r in (0, 1, 2, 10, 100, 1000)]  # type: ignore[arg-type]
    by_rate = [epsilon(50, q, 2.0, 1e-5, cohorts) for q in (0.01, 0.1, 0.5, 1.0)]  # type: ignore[arg-type]
    by_noise = [epsilon(50, 0.1, z, 1e-5, cohorts) for z in (10.0, 3.0, 1.0, 0.5)]  # type: ignore[arg-type]
    for values in (by_rounds, by_rate, by_noise):
        assert all(a < b for a, b in itertools.pairwise(values))
    assert by_rounds[0] == 0.0


def test_clipping_shortens_the_whole_upload_and_keeps_its_direction() -> None:
    rng = np.random.default_rng(0)
    upload = {"0.w": rng.normal(size=(4, 3)).astype(np.float32), "1.c": rng.normal(size=5).astype(np.float16)}
    whole = norm(upload)
    clipped = clip(upload, whole / 2)
    assert norm(clipped) == pytest.approx(whole / 2, rel=1e-3)
    assert {name: array.dtype for name, array in clipped.items()} == {n: a.dtype for n, a in upload.items()}
    np.testing.assert_allclose(clipped["0.w"], upload["0.w"] / 2, rtol=1e-6)
    assert clip(upload, whole * 1.01) is upload
    free = clip(upload, 0.1, public={"1.c"})
    np.testing.assert_array_equal(free["1.c"], upload["1.c"])
    assert norm({"w": free["0.w"]}) == pytest.approx(0.1, rel=1e-6)


def test_noise_is_gaussian_of_the_stated_size_on_a_grid_and_never_the_same() -> None:
    mean = {"a": np.zeros(40_000, np.float32), "b": np.zeros((100, 100)), "t": np.float32(3.0) * np.ones(2)}
    noisy = add_noise(mean, 0.5, public={"t"})
    drawn = np.concatenate([noisy["a"], noisy["b"].ravel()])
    assert stats.kstest(drawn, stats.norm(0.0, 0.5).cdf).pvalue > 1e-6
    np.testing.assert_array_equal(noisy["t"], mean["t"])
    fine = noisy["b"] * 2.0**21  # the grid of noise 2^-1
    np.testing.assert_array_equal(fine, np.rint(fine))
    assert abs(np.corrcoef(add_noise(mean, 0.5)["a"], noisy["a"])[0, 1]) < 0.03
    assert not np.array_equal(noisy["a"][:10_000], noisy["b"].ravel())


@pytest.mark.parametrize(("noise", "times"), [(2.2, 3), (4.0, 20), (8.0, 1000)])
def test_known_cohorts_have_the_figure_of_our_own_formula(noise: float, times: int) -> None:
    assert known_epsilon(noise, 1e-5, times) == pytest.approx(epsilon(times, 1.0, noise, 1e-5, "fixed"), rel=1e-6)


@pytest.mark.parametrize(("noise", "cohort", "rounds"), [(2.2, 10, 1000), (4.0, 50, 200), (4.0, 500, 50)])
def test_secret_cohorts_are_within_our_own_formulas(noise: float, cohort: int, rounds: int) -> None:
    """At most our bound, which leaves out sharper terms; no less than cohorts by chance, one client more or less."""
    ours = epsilon(rounds, cohort / 1000, noise, 1e-5, "fixed")
    least = epsilon(rounds, cohort / 1000, noise, 1e-5, "poisson")
    assert least < secret_epsilon(noise, 1e-5, rounds, cohort, 1000) <= ours * (1 + 1e-6)


def test_the_figure_is_not_the_flattering_one_unless_cohorts_are_secret() -> None:
    """50 of 1,000 clients, 200 rounds, noise 4: the busiest client takes part about twenty times."""
    work = {"uploads": 22, "rounds": 200, "cohort": 50, "clients": 1000}
    known, secret = Guarantee(4.0, 1e-5).epsilon(**work), Guarantee(4.0, 1e-5, "secret").epsilon(**work)
    assert secret < 4
    assert 12 < known < 14
    assert Privacy(clip=1.0, noise=4.0).guarantee == Guarantee(4.0, 1e-5, "known")


def test_secret_cohorts_are_even_and_need_the_secret() -> None:
    drawn = [secret_draw(b"a" * 32, round, 5, range(20)) for round in range(400)]
    counts = np.bincount(np.concatenate(drawn), minlength=20)
    assert stats.chisquare(counts).pvalue > 1e-6
    other = [secret_draw(b"b" * 32, round, 5, range(20)) for round in range(400)]
    assert sum(a == b for a, b in zip(drawn, other, strict=True)) < 5


def client_of(loss: Callable[[Any, Any], Any]) -> Client:
    problem = fedax.Problem(loss=loss, init=lambda key: X0.tree)
    plan, place = Plan(1, 1, 2, 3, True, 4, 4, "epochs", False), jnp.zeros(1, jnp.int32)
    return Client(
        problem, plan, Data({"x": jnp.ones((4, 3))}, place, place + 4, place + 3), 0, jax.random.key(0), 0, True
    )


@pytest.mark.parametrize("method", ALGORITHMS)
def test_every_method_uploads_changes(method: str) -> None:
    """Where there is nothing to learn, everything that a row could reach is zero: clipping moves no model."""
    algorithm = make(ALGORITHMS[method])
    learning = client_of(lambda w, b: jnp.mean((b["x"] @ w["w"]) ** 2))
    public = public_parts(learning, algorithm, X0)
    assert bool(public) == algorithm.sends_way == (method in {"FedDualAvg", "FedMiD", "FedCM"})
    idle = client_of(lambda w, b: 0.0 * jnp.sum(w["w"]) * jnp.sum(b["x"]))
    message, state = algorithm.broadcast(algorithm.init(X0)), algorithm.client_init(X0)
    upload = flatten(jax.jit(lambda: idle.work(algorithm, message, state)[0])())
    for name, array in upload.items():
        if name in public:
            assert float(array) > 0  # the way travelled
        else:
            np.testing.assert_allclose(array, 0.0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"clip": -1.0}, "clip is -1.0: it must be a number above 0"),
        ({"clip": "1"}, "clip is '1': it must be a number above 0"),
        ({"clip": 1.0, "noise": -2.0}, "noise is -2.0: it must be a number from 0 on"),
        ({"clip": 1.0, "delta": 1.5}, "delta is 1.5: it must be a number above 0 and below 1"),
        ({"clip": 1e-300}, "clip is 1e-300: float32 has numbers from 1.2e-38 to 3.4e+38"),
        ({"clip": 1e20, "noise": 1e20}, "clip times noise is 1e+40: float32 has numbers from 1.2e-38 to 3.4e+38"),
        (
            {"noise": 1.0},
            "clip is missing: it must be the norm that uploads are clipped to, of which noise is a multiple",
        ),
    ],
)
def test_bad_options_get_one_sentence(config: dict[str, object], sentence: str) -> None:
    with pytest.raises(FedaxError) as caught:
        Privacy.of(config)
    assert str(caught.value) == sentence


def test_what_is_asked_for() -> None:
    assert Privacy.of({"rounds": 3}) is None
    assert Privacy.of({"clip": 0.0, "noise": 0.0, "delta": 1e-5}) is None
    assert Privacy.of({"clip": 0.5}) == Privacy(clip=0.5)
    assert Privacy(clip=1.0).guarantee.epsilon(uploads=1, rounds=1, cohort=1, clients=1) == math.inf
    with pytest.raises(FedaxError, match="weighted is true"):
        Privacy(clip=1.0, noise=1.0).refuse(weighted=True)
    Privacy(clip=1.0).refuse(weighted=True)
