"""Generated clients: the papers' laws, exact constants, and each client a function of its number."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest
from scipy.stats import norm

from fedax.data.generators.clusters import ClusterClients, clusters
from fedax.data.generators.quadratics import QuadraticClients, quadratics
from fedax.data.generators.synthetic import SyntheticClients, synthetic
from fedax.errors import FedaxError
from fedax.testing.problems import quadratic_loss

KEY = jax.random.key(np.uint32(3))


def models(generator):
    return jax.jit(jax.vmap(lambda i: generator.model(KEY, i)))(np.arange(generator.clients))


# synthetic(gamma, beta)


@pytest.mark.parametrize(
    ("reading", "parameter", "variance"),
    [("variance", 0.5, 0.5), ("deviation", 0.5, 0.25), ("variance", 1, 1), ("deviation", 1, 1), ("variance", 0, 0)],
)
def test_the_two_readings_of_gamma_and_beta(reading, parameter, variance):
    generator = SyntheticClients(gamma=parameter, beta=parameter, reading=reading, clients=3000, rows=2)
    w, b = map(np.asarray, models(generator))
    # A client's mean over 600 weights is u_i plus noise of variance 1/600; over 3000 clients the variance's
    # relative standard error is sqrt(2/3000) = 2.6 %.
    assert w.mean(axis=(1, 2)).var() == pytest.approx(variance + 1 / 600, rel=0.12)
    assert (w - w.mean(axis=(1, 2), keepdims=True)).var() == pytest.approx(1, rel=0.02)
    if parameter:
        assert np.corrcoef(w.mean(axis=(1, 2)), b.mean(axis=1))[0, 1] > 0.8  # b_i has the mean of W_i
    x = generator.federation(3).arrays["x"].reshape(3000, 2, 60)
    sigma = np.arange(1, 61) ** -1.2
    # The mean over a row's features: B_i, the mean of v_i - B_i, and that of Sigma's noise.
    assert x[:, 0].mean(axis=1).var() == pytest.approx(variance + 1 / 60 + sigma.sum() / 3600, rel=0.12)
    within = (x[:, 0] - x[:, 1]).var(axis=0) / 2
    np.testing.assert_allclose(within, sigma, rtol=0.15)


def test_labels_are_the_models():
    generator = SyntheticClients(gamma=0.5, beta=0.5, clients=6, rows=80)
    federation = generator.federation(3)
    w, b = (np.asarray(a, np.float64) for a in models(generator))
    for i in range(6):
        for part, rows in (("train", 72), ("test", 8)):
            client = federation.client(i, part)
            scores = client["x"] @ w[i] + b[i]
            best = np.sort(scores, axis=1)
            clear = best[:, -1] - best[:, -2] > 1e-3
            assert len(clear) == rows
            assert (scores.argmax(axis=1) == client["y"])[clear].all()
            assert clear.mean() > 0.9


def test_one_mean_a_client_changes_no_label_but_one_a_class_does():
    """u_i (1'x + 1) is added to all classes alike."""
    plain, shifted, by_class = (
        SyntheticClients(gamma=gamma, beta=1, clients=20, rows=100, mean=mean).federation(1).arrays["y"]
        for gamma, mean in ((0, "client"), (1, "client"), (1, "class"))
    )
    assert (plain == shifted).mean() > 0.999  # but for ties in single precision
    assert (plain == by_class).mean() < 0.8


def test_the_iid_set_has_one_model_and_centred_inputs_and_synthetic_0_0_has_not():
    iid, zero = (SyntheticClients(clients=200, rows=50, iid=flag) for flag in (True, False))
    w, b = map(np.asarray, models(iid))
    assert (w == w[0]).all()
    assert (b == b[0]).all()
    assert np.asarray(models(zero)[0]).std(axis=0).mean() == pytest.approx(1, rel=0.05)
    mean = iid.federation(0).arrays["x"].mean(axis=0)
    # 10 000 rows with variances k^-1.2.
    assert (abs(mean) < 5 * np.arange(1, 61) ** -0.6 / 100).all()
    assert zero.federation(0).arrays["x"].reshape(200, 50, 60).mean(axis=1).std() > 0.9


def test_published_sizes():
    sizes = SyntheticClients(clients=4000).sizes(0)
    total = sizes.sum(axis=1)
    assert total.min() >= 50
    # floor(exp(4 + 2 z)) exceeds exp(4) with probability 1/2 and exp(6) with that of z > 1.
    assert np.mean(total - 50 >= np.ceil(np.exp(4))) == pytest.approx(0.5, abs=0.04)
    assert np.mean(total - 50 >= np.ceil(np.exp(6))) == pytest.approx(norm.sf(1), abs=0.03)
    assert (sizes[:, 0] == (0.9 * total).astype(int)).all()
    capped = SyntheticClients(clients=4000, max_rows=300).sizes(0).sum(axis=1)
    np.testing.assert_array_equal(capped, np.minimum(total, 300))
    few = SyntheticClients(clients=7).sizes(0)
    np.testing.assert_array_equal(few, sizes[:7])


# A client is a function of its number


@pytest.mark.parametrize(
    ("small", "large"),
    [
        (
            SyntheticClients(clients=9, gamma=1, beta=1, max_rows=60),
            SyntheticClients(clients=12, gamma=1, beta=1, max_rows=120),
        ),
        (ClusterClients(clients=9, rows=20, test_rows=0), ClusterClients(clients=12, rows=33, test_rows=4)),
        (QuadraticClients(clients=8, rows=4, sigma=1), QuadraticClients(clients=12, rows=4, sigma=1)),
    ],
)
def test_more_clients_or_rows_leave_the_others_as_they_are(small, large):
    one, two = small.federation(3), large.federation(3)
    for i in (0, 3, small.clients - 1):
        # As many rows as the smallest client's, which are not all of this one's.
        count = int(one.train.count.min())
        alone = jax.jit(small.client, static_argnums=2)(KEY, i, count)
        for name, array in one.client(i).items():
            # A program for another batch may round otherwise, and then a label that is a tie may differ.
            both = slice(0, min(len(array), int(two.train.count[i])))
            if array.dtype.kind == "i":
                assert (array[both] == two.client(i)[name][both]).mean() > 0.95
                assert (array[:count] == np.asarray(alone[name])).mean() > 0.95
            else:
                np.testing.assert_allclose(array[both], two.client(i)[name][both], atol=1e-5)
                np.testing.assert_allclose(array[:count], alone[name], atol=1e-5)


def test_client_one_of_a_million_costs_one_client():
    generator = SyntheticClients(clients=10**6, gamma=1, beta=1, rows=10)
    client = jax.jit(generator.client, static_argnums=2)
    far, near = (client(KEY, i, 10)["x"] for i in (999_999, 0))
    assert not np.isin(far, near).any()


@pytest.mark.parametrize("make", [lambda s: synthetic(1, 1, clients=3, rows=9, seed=s), lambda s: clusters(seed=s)])
def test_the_seed_decides(make):
    one, again, other = (make(seed).arrays["x"] for seed in (0, 0, 2**32 - 1))
    np.testing.assert_array_equal(one, again)
    assert np.isin(one, other).mean() < 0.05  # single precision has few numbers near 1
    assert len(np.unique(one)) > 0.95 * one.size


# Quadratics


@pytest.mark.parametrize(
    ("clients", "dimension", "rows", "mu", "ratio", "zeta", "sigma", "seed"),
    [
        (2, 2, 2, 0.05, 100.0, 5.0, 0.3, 2**32 - 1),
        (7, 3, 5, 0.5, 2.0, 0.7, 2.0, 1),
        (3, 6, 3, 1.0, 1.0, 0.0, 1.0, 2),
        (4, 5, 4, 0.1, 30.0, 2.0, 0.0, 3),
    ],
)
def test_every_constant_is_exact(clients, dimension, rows, mu, ratio, zeta, sigma, seed):
    with jax.enable_x64(True):
        federation = quadratics(
            clients=clients, dimension=dimension, rows=rows, mu=mu, L=mu * ratio, zeta=zeta, sigma=sigma, seed=seed
        )
    close = {"rtol": 1e-6, "atol": 1e-6 * ratio}
    a = federation.arrays["A"].reshape(clients, rows, dimension, dimension)
    b = federation.arrays["b"].reshape(clients, rows, dimension)
    values = np.linalg.eigvalsh(a)
    np.testing.assert_allclose(values[..., 0], mu, **close)
    np.testing.assert_allclose(values[..., -1], mu * ratio, **close)

    def gradients(x):
        return np.einsum("crij,crj->cri", a, x - b)

    star = federation.info["optimum"].astype(float)
    of_clients = gradients(star).mean(axis=1)
    np.testing.assert_allclose(of_clients.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(of_clients, axis=1), zeta, **close)
    for x in (star, star + 3.0):
        noise = gradients(x) - gradients(x).mean(axis=1, keepdims=True)
        np.testing.assert_allclose((noise**2).sum(axis=-1), sigma**2, rtol=1e-5, atol=1e-5 * ratio)
    solved = np.linalg.solve(a.mean(axis=(0, 1)), np.einsum("crij,crj->i", a, b) / (clients * rows))
    np.testing.assert_allclose(star, solved, atol=1e-5 * ratio)
    loss = float(quadratic_loss(star, {key: np.asarray(v) for key, v in federation.arrays.items()}))
    assert federation.info["minimum"] == pytest.approx(loss, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("rows", [4, 2])
def test_in_dimension_one_too(rows):
    federation = quadratics(clients=4, dimension=1, L=2.0, mu=2.0, zeta=0.5, sigma=3.0, rows=rows)
    gradients = 2 * (federation.info["optimum"] - federation.arrays["b"]).reshape(4, rows)
    np.testing.assert_allclose(abs(gradients.mean(axis=1)), 0.5, rtol=1e-5)
    np.testing.assert_allclose(gradients.std(axis=1), 3.0, rtol=1e-5)
    assert (federation.arrays["A"] == 2).all()


def test_clients_pull_in_many_directions():
    federation = quadratics(clients=40, dimension=5, L=1.0, mu=1.0, zeta=1.0)
    pulls = federation.info["optimum"] - federation.arrays["b"]
    assert np.linalg.svd(pulls, compute_uv=False)[-1] > 1


# Gaussian clusters


def test_the_best_rule_is_as_good_as_the_normal_law_says():
    generator = ClusterClients(clients=20, rows=1000, test_rows=0, classes=2, dimension=5, shift=0.0, noise=2.0)
    federation = generator.federation(3)
    x, y = federation.arrays["x"], federation.arrays["y"]
    centres = np.asarray(generator.centres(KEY))
    nearest = ((x[:, None] - centres) ** 2).sum(axis=-1).argmin(axis=1)
    expected = norm.cdf(np.linalg.norm(centres[0] - centres[1]) / 4)
    assert 0.6 < expected < 0.99
    assert np.mean(nearest == y) == pytest.approx(expected, abs=5 * 0.5 / np.sqrt(20_000))
    assert y.mean() == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(20_000))


def test_each_client_moves_each_cluster_by_its_own():
    generator = ClusterClients(clients=300, rows=200, test_rows=0, classes=3, dimension=8, separation=2, shift=0.7)
    federation = generator.federation(3)
    centres = np.asarray(generator.centres(KEY))
    moved = np.array([[c["x"][c["y"] == k].mean(axis=0) for k in range(3)] for c in map(federation.client, range(300))])
    moved = moved - centres
    # A mean of about 67 rows adds noise of variance 1/67.
    assert moved.std() == pytest.approx(np.sqrt(0.49 + 1 / 67), rel=0.03)
    assert abs(np.corrcoef(moved.reshape(300, -1), rowvar=False) - np.eye(24)).max() < 6 / np.sqrt(300)
    within = np.concatenate([c["x"] - centres[c["y"]] - m[c["y"]] for c, m in
                             zip(map(federation.client, range(300)), moved, strict=True)])  # fmt: skip
    assert within.std() == pytest.approx(np.sqrt(1 - 3 / 200), rel=0.01)
    wide = ClusterClients(classes=400, dimension=20, separation=2)
    assert np.asarray(wide.centres(KEY)).std() == pytest.approx(2, rel=0.05)


# Bad input


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: synthetic(-1, 0), "gamma is -1: it must be a finite number of at least 0"),
        (lambda: synthetic(0, float("nan")), "beta is nan: it must be a finite number of at least 0"),
        (lambda: synthetic(0, 0, rows="powerlaw"), "rows is 'powerlaw': it must be 'lognormal'"),
        (lambda: synthetic(0, 0, rows=1), "rows is 1: it must be an integer of at least 2"),
        (lambda: synthetic(0, 0, max_rows=49), "max_rows is 49: it must be an integer of at least 50"),
        (lambda: synthetic(0, 0, reading="std"), "reading is 'std': it must be 'variance' or 'deviation'"),
        (lambda: synthetic(0, 0, mean="one"), "mean is 'one': it must be 'client' or 'class'"),
        (lambda: synthetic(0, 0, test_share=1), "test_share is 1: it must be below 1"),
        (lambda: synthetic(0, 0, iid=1), "iid is 1: it must be True or False"),
        (lambda: synthetic(0, 0, client=3), "unknown option 'client': did you mean 'clients'?"),
        (lambda: synthetic(0, 0, clients=2, seed=2**32), "seed is 4294967296: it must be below 2**32"),
        (lambda: quadratics(mu=0), "mu is 0: it must be above 0 and at most L, 1.0"),
        (lambda: quadratics(mu=2.0), "mu is 2.0: it must be above 0 and at most L, 1.0"),
        (lambda: quadratics(dimension=1), "mu is 0.1: it must be equal to L, as dimension is 1"),
        (lambda: quadratics(clients=1), "clients is 1: it must be at least 2, as zeta is 1.0"),
        (lambda: quadratics(sigma=1.0), "rows is 1: it must be at least 2, as sigma is 1.0"),
        (lambda: quadratics(clients=3, dimension=1, mu=1.0), "clients is 3: it must be an even number, as zeta is 1.0"),
        (lambda: clusters(classes=1), "classes is 1: it must be an integer of at least 2"),
        (lambda: clusters(shift=-0.5), "shift is -0.5: it must be a finite number of at least 0"),
        (lambda: clusters(seed=-1), "seed is -1: it must be an integer of at least 0"),
    ],
)
def test_bad_options_are_named(build, sentence):
    with pytest.raises(FedaxError, match=re.escape(sentence)):
        build()
