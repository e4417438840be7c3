"""Federations, their splits, the partitions and the bundled datasets."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import sklearn.datasets
from hypothesis import given, settings
from hypothesis import strategies as st

from fedax.data import (
    DATASETS,
    IID,
    PARTITIONS,
    ByLabel,
    Dirichlet,
    Federation,
    Homogeneous,
    Partition,
    Rows,
    load,
    partition,
)
from fedax.data.datasets import bundled
from fedax.errors import FedaxError

quick = settings(max_examples=60, deadline=None)
seeds = st.integers(0, 2**32)
labels = st.lists(st.integers(0, 6), min_size=1, max_size=80).map(lambda y: np.array(y, np.int32))
several = labels.filter(lambda y: len(np.unique(y)) > 1)
alphas = st.floats(-6, 6).map(lambda e: 10.0**e)


@st.composite
def fractions(draw):
    weights = np.array(draw(st.tuples(st.integers(1, 10), st.integers(0, 10), st.integers(0, 10))), float)
    return tuple((weights / weights.sum()).tolist())


def numbered(y):
    """A dataset whose x is the row's number, so that every row can be followed."""
    return {"x": np.arange(len(y)), "y": np.asarray(y)}


def owned(federation, i):
    return [federation.client(i, part)["x"] for part in ("train", "validation", "test")]


def all_rows(federation):
    return np.sort(np.concatenate([rows for i in range(federation.clients) for rows in owned(federation, i)]))


def says(*words):
    """A pattern that finds the words in this order."""
    return "(?s)" + ".*".join(re.escape(word) for word in words)


# Partitions: properties


@quick
@given(y=labels, data=st.data(), seed=seeds, split=st.none() | fractions())
def test_iid_is_exact_and_even(y, data, seed, split):
    clients = data.draw(st.integers(1, len(y)))
    federation = IID(clients).divide(numbered(y), split=split, seed=seed)
    sizes = federation.label_counts().sum(axis=1)
    assert all_rows(federation).tolist() == list(range(len(y)))
    assert sizes.max() - sizes.min() <= 1
    assert federation.train.count.min() >= 1


@quick
@given(y=several, data=st.data(), alpha=alphas, seed=seeds, split=st.none() | fractions())
def test_dirichlet_is_exact_and_keeps_min_rows(y, data, alpha, seed, split):
    clients = data.draw(st.integers(1, len(y)))
    min_rows = data.draw(st.integers(1, len(y) // clients))
    federation = Dirichlet(clients, alpha, min_rows).divide(numbered(y), split=split, seed=seed)
    assert all_rows(federation).tolist() == list(range(len(y)))
    assert federation.label_counts().sum(axis=1).min() >= min_rows
    assert federation.train.count.min() >= 1


@quick
@given(sizes=st.lists(st.integers(1, 12), min_size=2, max_size=7), data=st.data(), seed=seeds)
def test_by_label_gives_each_client_its_labels(sizes, data, seed):
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    clients = data.draw(st.integers(1, len(y)))
    rule = ByLabel(clients, data.draw(st.integers(1, len(sizes))))
    if rule.clients * rule.labels > np.minimum(sizes, clients).sum():
        with pytest.raises(FedaxError, match=says("clients * labels", str(clients * rule.labels))):
            rule.divide(numbered(y), seed=seed)
        return
    federation = rule.divide(numbered(y), seed=seed)
    held = federation.label_counts() > 0
    assert (held.sum(axis=1) == rule.labels).all()
    holders = np.pad(held.sum(axis=0), (0, len(sizes) - held.shape[1]))
    # As even as the rows allow: who has one holder less than another has no row for one more.
    assert all(h >= holders.max() - 1 or h == size for h, size in zip(holders, sizes, strict=True))
    assert all_rows(federation).tolist() == np.flatnonzero(holders[y] > 0).tolist()


@quick
@given(data=st.data(), y=several, seed=seeds)
def test_a_partition_is_a_function_of_the_seed(data, y, seed):
    rule = data.draw(st.sampled_from([IID(1), IID(len(y)), Dirichlet(len(y), 0.1), Homogeneous(3), ByLabel(1, 1)]))
    one, two = (rule.divide(numbered(y), split=(0.5, 0.25, 0.25), seed=seed) for _ in range(2))
    for i in range(rule.clients):
        for a, b in zip(owned(one, i), owned(two, i), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("rule", [IID(5), ByLabel(5, 2), Dirichlet(5, 0.5)])
def test_another_seed_is_another_division(rule):
    y = np.arange(200) % 10
    assert not np.array_equal(rule.divide(numbered(y)).arrays["x"], rule.divide(numbered(y), seed=1).arrays["x"])


def test_by_label_shares_are_unequal_and_no_two_clients_need_agree():
    counts = ByLabel(20, 2).divide(numbered(np.arange(4000) % 10)).label_counts()
    sizes = counts.sum(axis=1)
    assert counts.sum() == 4000
    assert ((counts > 0).sum(axis=0) == 4).all()
    assert sizes.max() > 1.3 * sizes.min()
    assert len({tuple(row) for row in counts > 0}) > 10


def test_by_label_leaves_out_labels_without_a_holder():
    federation = ByLabel(2, 2).divide(numbered(np.arange(100) % 10))
    assert federation.rows == 40
    assert (federation.label_counts() > 0).sum() == 4


def test_dirichlet_shares_have_the_laws_moments():
    clients, alpha = 5, 0.7
    y = np.repeat(np.arange(2000), 200)
    shares = Dirichlet(clients, alpha).divide(numbered(y)).label_counts() / 200
    mean = 1 / clients
    np.testing.assert_allclose(shares.mean(axis=1), mean, atol=0.02)
    np.testing.assert_allclose(shares.var(axis=1), mean * (1 - mean) / (clients * alpha + 1), rtol=0.1)


@pytest.mark.parametrize("alpha", [5e-324, 1e-6, 1e300])
def test_dirichlet_at_the_ends_of_the_floats(alpha):
    counts = Dirichlet(4, alpha).divide(numbered(np.arange(4000) % 10)).label_counts()
    if alpha < 1:
        assert ((counts == 0) | (counts > 390)).sum() >= 30
    else:
        assert (counts == 100).all()


def test_homogeneous_shares_all_rows_without_copies():
    data = numbered(np.arange(30) % 3)
    federation = Homogeneous(500).divide(data)
    assert federation.clients == 500
    for i in (0, 499):
        assert np.shares_memory(federation.client(i)["x"], data["x"])
        np.testing.assert_array_equal(federation.client(i)["x"], data["x"])


def test_homogeneous_splits_once():
    federation = Homogeneous(7).divide(numbered(np.arange(30) % 3), split=(0.5, 0.2, 0.3))
    assert federation.rows == 30
    for part, count in (("train", 15), ("validation", 6), ("test", 9)):
        assert (federation.part(part).count == count).all()
        assert (federation.part(part).start == federation.part(part).start[0]).all()
    assert np.sort(np.concatenate(owned(federation, 6))).tolist() == list(range(30))


# Splits


@quick
@given(y=labels, split=fractions(), seed=seeds)
def test_split_is_disjoint_complete_and_stratified(y, split, seed):
    federation = Federation.from_clients([numbered(y)], split=split, seed=seed)
    parts = owned(federation, 0)
    assert np.sort(np.concatenate(parts)).tolist() == list(range(len(y)))
    assert len(parts[0]) >= 1
    for part, fraction in zip(parts, split, strict=True):
        assert abs(len(part) - fraction * len(y)) <= 2
        assert fraction > 0 or len(part) == 0
        for label in np.unique(y):
            # The row that is owed to an empty training part may be one more.
            slack = 1 + 1e-6 if split[0] * len(y) >= 2 else 2
            assert abs((y[part] == label).sum() - fraction * (y == label).sum()) <= slack


@quick
@given(ys=st.lists(labels, min_size=2, max_size=4), other=labels, split=fractions(), seed=seeds)
def test_a_clients_split_does_not_depend_on_the_others(ys, other, split, seed):
    one = Federation.from_clients([numbered(y) for y in ys], split=split, seed=seed)
    two = Federation.from_clients([numbered(other), numbered(ys[1])], split=split, seed=seed)
    for a, b in zip(owned(one, 1), owned(two, 1), strict=True):
        np.testing.assert_array_equal(a, b)


def test_splits_differ_between_clients_and_seeds():
    clients = [numbered(np.arange(60) % 3)] * 2
    one, two = (Federation.from_clients(clients, split=(0.5, 0, 0.5), seed=seed) for seed in (0, 1))
    assert not np.array_equal(one.client(0)["x"], one.client(1)["x"])
    assert not np.array_equal(one.client(0)["x"], two.client(0)["x"])


def test_many_classes_of_one_row_do_not_all_round_to_training():
    federation = Federation.from_clients([numbered(np.arange(100))], split=(0.7, 0.1, 0.2))
    assert [len(part) for part in owned(federation, 0)] == [70, 10, 20]


@pytest.mark.parametrize("y", [np.linspace(0, 1, 10), np.zeros((10, 4), np.int32)])
def test_split_without_labels_is_plain(y):
    federation = Federation.from_clients([numbered(y)], split=(0.5, 0.2, 0.3))
    assert [len(part) for part in owned(federation, 0)] == [5, 2, 3]


def test_every_client_keeps_a_training_row():
    federation = Federation.from_clients([numbered([0]), numbered([0, 1, 1])], split=(0.01, 0.0, 0.99))
    assert federation.train.count.tolist() == [1, 1]


# Federations


def test_from_clients_keeps_rows_order_and_dtypes():
    clients = [{"x": np.random.default_rng(i).normal(size=(i + 2, 3)), "y": np.full(i + 2, i)} for i in range(3)]
    federation = Federation.from_clients(clients)
    assert federation.clients == 3
    assert federation.names == ("0", "1", "2")
    assert federation.arrays["x"].dtype == np.float64
    assert federation.validation.count.sum() == federation.test.count.sum() == 0
    for i, client in enumerate(clients):
        np.testing.assert_array_equal(federation.client(i)["x"], client["x"])
        assert np.shares_memory(federation.client(i)["x"], federation.arrays["x"])
    assert federation.client(0, "test")["x"].shape == (0, 3)


@quick
@given(order=st.permutations(range(4)))
def test_reordered_clients_are_the_same_clients(order):
    federation = Dirichlet(4, 0.5).divide(numbered(np.arange(90) % 7), split=(0.6, 0.2, 0.2))
    other = federation.reordered(order)
    assert other.arrays["x"] is federation.arrays["x"]
    for new, old in enumerate(order):
        assert other.names[new] == federation.names[old]
        for a, b in zip(owned(other, new), owned(federation, old), strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(other.label_counts(), federation.label_counts()[list(order)])


def test_label_counts_count_every_part():
    y = np.array([0, 0, 3, 3, 3, 1])
    federation = Federation.from_clients([numbered(y), numbered([2])], split=(0.4, 0.3, 0.3))
    assert federation.label_counts().tolist() == [[2, 1, 0, 3], [0, 0, 1, 0]]


def test_repr_is_one_line():
    assert "\n" not in repr(load("digits"))
    assert "10 clients" in repr(load("digits"))


# Datasets and registries


@pytest.mark.parametrize("name", [n for n, d in DATASETS.items() if not d.files and not d.options])
def test_bundled_datasets(name):
    federation = load(name, partition=Homogeneous(2), split=None)
    x, y = federation.arrays["x"], federation.arrays["y"]
    assert x.dtype == np.float32
    assert federation.info["dataset"] == name
    assert f"{len(x)} rows" in DATASETS[name].description
    if federation.info["classes"] is None:
        assert y.dtype == np.float32
    else:
        assert y.dtype == np.int32
        assert sorted(set(y.tolist())) == list(range(federation.info["classes"]))
    if name == "digits":
        assert x.shape == (1797, 64)
        assert (x.min(), x.max()) == (0, 1)
    else:
        np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-5)
        np.testing.assert_allclose(x.std(axis=0), 1, atol=1e-4)


@pytest.mark.parametrize("name", bundled.FILES)
def test_bundled_files_are_read_as_scikit_learn_reads_them(name):
    x, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    ours = bundled._load(name)
    np.testing.assert_array_equal(ours[0], x)
    np.testing.assert_array_equal(ours[1], y)


def test_bundled_files_that_moved_are_read_by_scikit_learn(monkeypatch):
    monkeypatch.setitem(bundled.FILES, "iris", ("moved.csv", 1))
    x, y = sklearn.datasets.load_iris(return_X_y=True)
    ours = bundled._load("iris")
    np.testing.assert_array_equal(ours[0], x)
    np.testing.assert_array_equal(ours[1], y)


def test_load_divides_by_default_among_ten():
    federation = load("digits", seed=4)
    assert federation.info == {"dataset": "digits", "partition": "IID(clients=10)", "classes": 10, "seed": 4}
    assert abs(federation.test.count.sum() - 0.2 * 1797) <= 10


def test_partitions_by_name():
    assert {"IID", "ByLabel", "Shards", "Dirichlet", "DirichletSize", "Homogeneous"} <= set(PARTITIONS)
    assert partition("bylabel", clients=4) == ByLabel(4, 2)
    assert partition("IID", clients=4) == IID(4)


def test_import_is_light():
    code = "import sys, fedax.data; print({'jax', 'sklearn', 'pandas'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


# Bad input

X, Y = np.ones((3, 2)), np.array([0, 1, 1])
GOOD = {"x": X, "y": Y}
HOLED = np.array([[1.0, 2.0], [np.nan, 1.0], [0.0, 0.0]])


@pytest.mark.parametrize(
    ("clients", "options", "words"),
    [
        ([], {}, ["clients is []", "at least 1"]),
        ([GOOD, {}], {}, ["client 1 is {}", "dict of arrays"]),
        ([GOOD, {"x": X[:0], "y": Y[:0]}], {}, ["client 1 has 0 rows", "at least 1"]),
        ([{"x": X[:0]}], {"names": ["oslo"]}, ["client 0 ('oslo') has 0 rows"]),
        ([GOOD, {"x": X, "y": Y[:2]}], {}, ["client 1", "'x' has 3", "'y' has 2"]),
        ([GOOD, {"x": X}], {}, ["client 1", "['x']", "client 0", "['x', 'y']"]),
        ([GOOD, {"x": np.ones((3, 5)), "y": Y}], {}, ["client 1", "'x'", "(5,)", "client 0", "(2,)"]),
        ([GOOD, {"x": X.astype(np.float32), "y": Y}], {}, ["client 1", "'x'", "float32", "float64"]),
        ([GOOD, {"x": HOLED, "y": Y}], {}, ["client 1", "NaN or infinity", "'x'", "row 1"]),
        ([GOOD, {"x": X * np.inf, "y": Y}], {}, ["client 1", "NaN or infinity", "'x'", "row 0"]),
        ([{"x": np.array(["a"])}], {}, ["client 0", "'x'", "<U1", "numeric"]),
        ([{"x": [[1.0], [1.0, 2.0]]}], {}, ["client 0", "'x'", "unequal shape"]),
        ([{"x": 3.0}], {}, ["client 0", "'x'", "3.0", "must have rows"]),
        ([{1: X}], {}, ["client 0", "key 1", "strings"]),
        ([GOOD], {"split": (0.5, 0.5)}, ["split is (0.5, 0.5)", "three"]),
        ([GOOD], {"split": (0.5, 0.2, 0.2)}, ["split is (0.5, 0.2, 0.2)", "sum to 1"]),
        ([GOOD], {"split": (1.2, -0.2, 0.0)}, ["split is (1.2, -0.2, 0.0)", "non-negative"]),
        ([GOOD], {"split": (float("nan"), 0.5, 0.5)}, ["split is (nan", "non-negative"]),
        ([GOOD], {"split": 0.8}, ["split is 0.8", "three"]),
        ([GOOD], {"seed": -1}, ["seed is -1", "at least 0"]),
        ([GOOD, GOOD, GOOD], {"names": ["a", "b", "a"]}, ["names", "'a'", "clients 0 and 2", "distinct"]),
        ([GOOD, GOOD], {"names": ["a"]}, ["names has 1", "2 clients"]),
        ([GOOD, GOOD], {"names": "ab"}, ["names is 'ab'", "sequence of strings"]),
    ],
)
def test_bad_clients(clients, options, words):
    with pytest.raises(FedaxError, match=says(*words)) as error:
        Federation.from_clients(clients, **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: IID(0), ["clients is 0", "at least 1"]),
        (lambda: IID(2.5), ["clients is 2.5", "integer"]),
        (lambda: IID(4).divide(GOOD), ["clients is 4", "at most", "3"]),
        (lambda: IID(1).divide({}), ["the dataset is {}"]),
        (lambda: IID(1).divide({"x": HOLED}), ["the dataset", "NaN", "'x'", "row 1"]),
        (lambda: IID(1).divide(GOOD, seed="a"), ["seed is 'a'", "integer"]),
        (lambda: ByLabel(2, 0), ["labels is 0", "at least 1"]),
        (lambda: ByLabel(2, 3).divide(GOOD), ["labels is 3", "2 labels"]),
        (lambda: ByLabel(2, 2).divide(GOOD), ["clients * labels is 4", "at most 3"]),
        (lambda: ByLabel(1, 1).divide({"x": X}), ["ByLabel", "no array 'y'"]),
        (lambda: ByLabel(1, 1).divide({"y": X}), ["ByLabel", "'y'", "float64", "integer"]),
        (lambda: Dirichlet(2, 0), ["alpha is 0", "above 0"]),
        (lambda: Dirichlet(2, -0.5), ["alpha is -0.5", "above 0"]),
        (lambda: Dirichlet(2, float("inf")), ["alpha is inf", "finite"]),
        (lambda: Dirichlet(2, "0.5"), ["alpha is '0.5'", "number"]),
        (lambda: Dirichlet(2, 1.0, min_rows=0), ["min_rows is 0", "at least 1"]),
        (lambda: Dirichlet(2, 1.0, min_rows=2).divide(GOOD), ["min_rows is 2", "at most 1"]),
        (lambda: Dirichlet(2, 1.0).divide({"x": X}), ["Dirichlet", "no array 'y'"]),
        (lambda: partition("dirichlett", clients=2), ["'dirichlett'", "did you mean 'Dirichlet'", "IID"]),
        (
            lambda: partition("Dirichlet", clients=2, alhpa=1),
            ["Dirichlet", "'alhpa'", "did you mean 'alpha'"],
        ),
        (
            lambda: partition("Dirichlet", clients=2),
            ["Dirichlet is missing alpha", "clients, alpha, min_rows"],
        ),
        (lambda: load("digit"), ["dataset 'digit'", "did you mean 'digits'"]),
        (lambda: load("iris", partition="IID"), ["partition is 'IID'", "IID(10)"]),
        (lambda: load("diabetes", partition=ByLabel(3)), ["ByLabel(clients=3, labels=2)", "'y'", "float32"]),
    ],
)
def test_bad_partitions_and_datasets(build, words):
    with pytest.raises(FedaxError, match=says(*words)) as error:
        build()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda f: f.part("tests"), ["part 'tests'", "did you mean 'test'"]),
        (lambda f: f.client(2), ["client is 2", "0 to 1"]),
        (lambda f: f.client(-1), ["client is -1", "0 to 1"]),
        (lambda f: f.label_counts("z"), ["array 'z'", "Allowed: x, y"]),
        (lambda f: f.label_counts("x"), ["array 'x'", "float64", "integer"]),
        (lambda f: f.reordered([0, 0]), ["order is [0, 0]", "exactly once"]),
        (lambda f: f.reordered([0]), ["order is [0]", "0 to 1"]),
    ],
)
def test_bad_use_of_a_federation(use, words):
    with pytest.raises(FedaxError, match=says(*words)):
        use(Federation.from_clients([GOOD, GOOD]))


NONE, ALL = Rows([0], [0]), Rows([0], [3])


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Rows([0, 1], [1]), ["start has 2", "count 1"]),
        (lambda: Rows([0], [-1]), ["count is [-1]", "non-negative"]),
        (lambda: Rows([0.5], [1]), ["start is [0.5]", "integer"]),
        (lambda: Federation({"x": X, "y": Y[:2]}, ALL, NONE, NONE), ["arrays", "'x': 3", "'y': 2"]),
        (lambda: Federation({}, ALL, NONE, NONE), ["arrays", "{}"]),
        (lambda: Federation(GOOD, Rows([1], [3]), NONE, NONE), ["train", "client 0", "up to 4", "3"]),
        (lambda: Federation(GOOD, NONE, ALL, NONE), ["train", "client 0", "0 rows"]),
        (lambda: Federation(GOOD, ALL, NONE, Rows([0, 0], [0, 0])), ["test has 2 clients", "train 1"]),
    ],
)
def test_bad_federations_built_by_hand(build, words):
    with pytest.raises(FedaxError, match=says(*words)):
        build()


@pytest.mark.parametrize(
    ("blocks", "words"),
    [([[0, 1], [1, 2]], ["more than one client"]), ([[0], []], ["without rows"]), ([[0]], ["without rows"])],
)
def test_a_third_partys_partition_is_checked(blocks, words):
    @dataclass(frozen=True)
    class Broken(Partition):
        def assign(self, arrays, rows, rng):
            return [np.array(block, np.int64) for block in blocks]

    with pytest.raises(FedaxError, match=says("Broken(clients=2)", *words)):
        Broken(2).divide(GOOD)
