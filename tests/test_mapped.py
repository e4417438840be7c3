"""A set on disk that exceeds its budget: the run is that of the set in memory, and the set is never on the devices."""

from __future__ import annotations

import tracemalloc

import jax
import numpy as np
import pytest

import fedax
from conftest import vector
from fedax.data import IID, Federation, Rows
from fedax.data.federation import arrange
from fedax.data.storage.sharing import too_large
from fedax.models import model
from fedax.regularizers import L1

ROWS, FEATURES, BUDGET = 6000, 40, 60_000  # the set is 960 kB, and a client at most 64 kB
PROBLEM = fedax.Problem(model("logistic", outputs=3), loss="cross_entropy")
SPARSE = fedax.Problem(model("logistic", outputs=3), loss="cross_entropy", regularizer=L1(0.01))
OPTIONS = {"rounds": 2, "cohort": 3, "local_steps": 3, "batch_size": 5, "eval_every": 2, "seed": 1}


def federation(x, y):
    """30 clients of 40 to 330 rows, an eighth of them for validation, and one test set for all."""
    rng = np.random.default_rng(1)
    count = rng.integers(40, 330, 30)
    start = np.cumsum(count) - count
    held = count // 8
    train, validation = Rows(start, count - held), Rows(start + count - held, held)
    assert start[-1] + count[-1] < ROWS - 300
    return Federation({"x": x, "y": y}, train, validation, Rows(np.full(30, ROWS - 300), np.full(30, 300)))


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The same federation in memory and mapped from an npy file."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
    y = (x[:, :3] + rng.normal(size=(ROWS, 3))).argmax(axis=1).astype(np.int32)
    path = tmp_path_factory.mktemp("mapped") / "x.npy"
    np.save(path, x)
    return federation(x, y), federation(np.load(path, mmap_mode="r"), y)


@pytest.fixture
def budget(monkeypatch):
    """A budget of a few clients, and the largest array that is put on a device from here on."""
    monkeypatch.setenv("FEDAX_MEMORY_BUDGET", str(BUDGET))
    largest = {"bytes": 0}
    put = jax.device_put

    def watched(tree, *args, **kwargs):
        sizes = [getattr(leaf, "nbytes", 0) for leaf in jax.tree.leaves(tree)]
        largest["bytes"] = max([largest["bytes"], *sizes])
        return put(tree, *args, **kwargs)

    monkeypatch.setattr(jax, "device_put", watched)
    return largest


@fedax.algorithm
class Further(fedax.FedAvg):
    """FedAvg on further minibatches, which are not those drawn for the round."""

    def step(self, x_i, oracle, x, client, ctx):
        return x_i - self.lr * oracle.fresh(1).grad(x_i)


CASES = {
    "minibatches alone": (fedax.FedAvg(lr=0.1), "batched"),
    "debug": (fedax.FedAvg(lr=0.1), "debug"),
    "full gradients too": (fedax.SCAFFOLD(lr=0.1, option="I"), "batched"),
    "further minibatches": (Further(lr=0.1), "batched"),
    "own models": (fedax.Ditto(lr=0.1, lam=0.5), "batched"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_is_that_of_the_set_in_memory(case, pair, budget):
    method, executor = CASES[case]
    memory, mapped = pair
    assert too_large(mapped.arrays)
    assert not too_large(memory.arrays)
    options = {**OPTIONS, "executor": executor, "protocol": False}
    whole = fedax.simulate(PROBLEM, memory, method, **options)
    assert budget["bytes"] >= memory.arrays["x"].nbytes
    budget["bytes"] = 0
    before = jax.live_arrays()
    known, seen = set(map(id, before)), [0]

    def look(_):
        seen.extend(array.nbytes for array in jax.live_arrays() if id(array) not in known)

    near = fedax.simulate(PROBLEM, mapped, method, on_progress=look, **options)
    # three clients' rows, or what evaluation has at a time: the test rows that all share, beside a client's
    assert 0 < budget["bytes"] <= 3 * 64_000 + 48_000
    assert max(seen) <= 3 * 64_000 + 48_000
    np.testing.assert_allclose(vector(near.model), vector(whole.model), rtol=0, atol=1e-6)
    for key, value in whole.history[-1].items():
        if key != "seconds":
            assert near.history[-1][key] == pytest.approx(value, rel=1e-5, abs=1e-6), key
    if method.personalised:
        for i in (0, 29):
            np.testing.assert_allclose(vector(near.personal(i)), vector(whole.personal(i)), rtol=0, atol=1e-6)


def test_a_round_of_minibatches_takes_these_rows_alone(pair, budget):
    """Even where all clients take part and all rows are everyone's."""
    everything = Rows(np.zeros(30, int), np.full(30, ROWS))
    nothing = Rows(np.zeros(30, int), np.zeros(30, int))
    shared = [Federation(f.arrays, everything, nothing, f.test) for f in pair]
    options = {**OPTIONS, "cohort": None, "local_steps": 2, "weighted": True, "eval_on": ["test"]}
    whole = fedax.simulate(PROBLEM, shared[0], fedax.FedAvg(lr=0.1), **options)
    budget["bytes"] = 0
    near = fedax.simulate(PROBLEM, shared[1], fedax.FedAvg(lr=0.1), **options)
    assert budget["bytes"] <= max(30 * 2 * 5 * FEATURES * 4, BUDGET)
    np.testing.assert_allclose(vector(near.model), vector(whole.model), rtol=0, atol=1e-6)


def test_composite_problems_newcomers_sweeps_and_states_beside_the_devices(pair, budget):
    options = OPTIONS
    memory, mapped = (
        fedax.simulate(SPARSE, f, fedax.Ditto(lr=0.1, lam=0.5), unseen=0.2, state_budget=3000, **options) for f in pair
    )
    np.testing.assert_allclose(vector(mapped.model), vector(memory.model), rtol=0, atol=1e-6)
    assert mapped.history[-1]["prox_gradient"] == pytest.approx(memory.history[-1]["prox_gradient"], rel=1e-5)
    for moment in ("last", "chosen"):
        for kind, parts in memory.by_client.moments[moment].values.items():
            found = mapped.by_client.moments[moment].values[kind]["test"]["loss"]
            np.testing.assert_allclose(found, parts["test"]["loss"], rtol=1e-5)
    grid = fedax.grid(fedax.FedAvg(lr=0.1), {"lr": [0.05, 0.2]})
    for one, other in zip(*(fedax.sweep(PROBLEM, f, grid, **options) for f in pair), strict=True):
        np.testing.assert_allclose(vector(one.model), vector(other.model), rtol=0, atol=1e-6)


def test_a_set_in_a_file_is_divided_without_a_copy_in_memory(tmp_path, monkeypatch):
    """Rows of a mapped set go to another file a part at a time, in the order of the partition."""
    x = np.random.default_rng(0).normal(size=(20_000, 50))
    np.save(tmp_path / "x.npy", x)
    order = np.random.default_rng(1).permutation(20_000)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    monkeypatch.setattr("fedax.data.storage.sharing.PART", 200_000)
    monkeypatch.setenv("FEDAX_MEMORY_BUDGET", "1000000")
    monkeypatch.setenv("FEDAX_CACHE", str(tmp_path / "cache"))
    tracemalloc.start()
    made = arrange({"x": mapped}, np.split(order, 10), split=None, seed=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < x.nbytes / 4
    np.testing.assert_array_equal(
        made.arrays["x"], x[np.concatenate([order[p * 2000 : p * 2000 + 2000] for p in range(10)])]
    )
    assert too_large(made.arrays)


def test_an_experiment_on_an_archive_above_the_budget(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 6)).astype(np.float32)
    rows = {"x": x, "y": (x[:, 0] > 0).astype(np.int32)}
    monkeypatch.setenv("FEDAX_CACHE", str(tmp_path / "cache"))
    last = []
    for name, budget in (("memory", None), ("mapped", "2000")):
        np.savez(tmp_path / f"{name}.npz", **rows)
        if budget:
            monkeypatch.setenv("FEDAX_MEMORY_BUDGET", budget)
        federation = fedax.data.load("numpy", path=str(tmp_path / f"{name}.npz"), partition=IID(7))
        assert too_large(federation.arrays) == (budget is not None)
        problem = fedax.Problem(model("logistic", outputs=2), loss="cross_entropy")
        last.append(fedax.simulate(problem, federation, fedax.FedAvg(lr=0.1), rounds=2, eval_every=2).history[-1])
    for key, value in last[0].items():
        if key != "seconds":
            assert last[1][key] == pytest.approx(value, rel=1e-5, abs=1e-6), key
