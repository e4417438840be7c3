"""Clients that are made as they are needed are the clients of the federation in memory."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import fedax
from conftest import vector
from fedax.data import ClusterClients, LassoClients, LowRankClients, QuadraticClients, SyntheticClients
from fedax.data.generators.lazy import Lazy, lazily
from fedax.errors import FedaxError
from fedax.models import model
from fedax.regularizers import L1

GENERATORS = {
    "even": SyntheticClients(clients=9, gamma=1.0, beta=1.0, rows=20, features=5, classes=3),
    "uneven": SyntheticClients(clients=9, gamma=1.0, beta=1.0, max_rows=120, features=5, classes=3),
    "clusters": ClusterClients(clients=9, rows=15, test_rows=5, dimension=4, classes=3),
    "lasso": LassoClients(clients=9, rows=15, test_rows=5, dimension=12, ones=3, own=2),
    "low_rank": LowRankClients(clients=9, rows=15, test_rows=5, dimension=4, ones=2),
}
METHODS = {
    "FedAvg": fedax.FedAvg(lr=0.1),
    "SCAFFOLD": fedax.SCAFFOLD(lr=0.1),
    "full gradients": fedax.SCAFFOLD(lr=0.1, option="I"),
    "APFL": fedax.APFL(lr=0.1),
}
OPTIONS = {"rounds": 5, "cohort": 4, "local_steps": 3, "batch_size": 4, "eval_every": 5, "seed": 3}


PROBLEM = fedax.Problem(model("logistic", outputs=3), loss="cross_entropy")


@pytest.mark.parametrize("name", GENERATORS)
def test_a_client_made_alone_has_the_rows_it_has_in_memory(name):
    lazy = Lazy(GENERATORS[name], seed=2)
    whole = GENERATORS[name].federation(2)
    np.testing.assert_array_equal(lazy.train.count, whole.train.count)
    most = int((whole.train.count + whole.test.count).max())
    made = jax.jit(lambda number: lazy.make(number, most))(np.uint32(7))
    mine = whole.client(7)
    for key, rows in mine.items():
        np.testing.assert_allclose(made[key][: len(rows)], rows, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "method"), [*(("even", method) for method in METHODS), ("uneven", "SCAFFOLD"), ("clusters", "FedAvg")]
)
def test_a_run_is_that_of_the_federation_in_memory(name, method):
    generator = GENERATORS[name]
    lazy = fedax.simulate(PROBLEM, Lazy(generator, seed=2), METHODS[method], **OPTIONS)
    whole = fedax.simulate(PROBLEM, generator.federation(2), METHODS[method], **OPTIONS)
    np.testing.assert_allclose(vector(lazy.model), vector(whole.model), rtol=0, atol=1e-6)
    assert np.abs(vector(lazy.model)).max() > 1e-3
    for key, value in whole.history[-1].items():
        if key != "seconds":
            assert lazy.history[-1][key] == pytest.approx(value, abs=1e-5), key
    if METHODS[method].personalised:
        for i in range(9):
            np.testing.assert_allclose(vector(lazy.personal(i)), vector(whole.personal(i)), rtol=0, atol=1e-6)


def test_what_is_left_to_a_cohort_does_not_depend_on_who_is_shown():
    generator = GENERATORS["even"]
    few, all_ = (fedax.simulate(PROBLEM, Lazy(generator, 2, n), METHODS["SCAFFOLD"], **OPTIONS) for n in (2, 9))
    np.testing.assert_allclose(vector(few.model), vector(all_.model), rtol=0, atol=1e-6)  # two programs, two roundings
    assert (few.clients, all_.clients) == (2, 9)


def test_epochs_and_weights_are_of_each_clients_own_rows():
    options = {**OPTIONS, "local_steps": None, "local_epochs": 1.0, "weighted": True}
    generator = GENERATORS["uneven"]
    pair = [fedax.simulate(PROBLEM, f, METHODS["FedAvg"], **options) for f in (Lazy(generator), generator.federation())]
    np.testing.assert_allclose(*(vector(result.model) for result in pair), rtol=0, atol=1e-6)
    assert pair[0].history[-1]["gradients"] == pair[1].history[-1]["gradients"]


@pytest.mark.parametrize("name", ["uneven", "quadratics"])
def test_shown_clients_are_the_first(name):
    """Also where clients are balanced among all of them, and not among those that are shown."""
    generator = {**GENERATORS, "quadratics": QuadraticClients(clients=9, dimension=3)}[name]
    shown = Lazy(generator, seed=5, shown=3).shown_clients
    whole = generator.federation(5)
    assert shown.clients == 3
    for i in range(3):
        for key, rows in whole.client(i).items():
            np.testing.assert_allclose(shown.client(i)[key], rows, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["lasso", "low_rank"])
def test_a_million_clients_with_a_known_truth(name):
    """Made as needed they are the first clients of a small federation, and the truth of those shown is attached."""
    sizes = {"dimension": 6, "ones": 2, "own": 1, "rows": 12, "test_rows": 4}
    million = lazily(name, preset="thesis-III", clients=1_000_000, shown=9, seed=2, **sizes)
    small = fedax.data.divided(name, preset="thesis-III", clients=9, seed=2, **sizes)
    make = jax.jit(lambda number: million.make(number, 12))
    for i in range(9):
        made = make(np.uint32(i))
        for key, rows in small.client(i).items():
            np.testing.assert_allclose(made[key], rows, rtol=1e-6, atol=1e-5)
    np.testing.assert_array_equal(million.shown_clients.info["truth"]["weights"], small.info["truth"]["weights"])
    linear = fedax.Problem(model("linear" if name == "lasso" else "trace", outputs=1), loss="mse", regularizer=L1(0.1))
    options = {"rounds": 2, "cohort": 5, "local_steps": 2, "batch_size": 4, "eval_every": 2}
    last = fedax.simulate(linear, million, fedax.FedDualAvg(lr=0.01), **options).history[-1]
    assert 0 <= last["f1"] <= 1
    assert np.isfinite(last["test_loss"])


def test_by_name():
    lazy = lazily("synthetic", preset="1-1", clients=100_000, rows=20, seed=3, shown=2)
    assert lazy == Lazy(SyntheticClients(clients=100_000, gamma=1.0, beta=1.0, rows=20), 3, 2)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        (
            "digits",
            {},
            "digits cannot make its clients as they are needed: lasso, low_rank, synthetic and clusters can",
        ),
        ("haxby", {}, "haxby cannot make its clients"),
        ("synthetic", {"preset": "1-1", "shown": 0}, "shown"),
        ("synthetic", {"preset": "1-2"}, "unknown synthetic preset '1-2'"),
        ("synthetic", {"preset": "1-1", "row": 3}, "did you mean 'rows'"),
    ],
)
def test_a_mistake_is_one_sentence(name, options, words):
    with pytest.raises(FedaxError, match=words):
        lazily(name, **options)


def test_clients_made_as_needed_cannot_be_held_out():
    with pytest.raises(FedaxError, match="cannot be held out"):
        fedax.simulate(PROBLEM, Lazy(GENERATORS["even"]), METHODS["FedAvg"], unseen=0.2, **OPTIONS)
