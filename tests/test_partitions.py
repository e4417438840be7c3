"""Shards, sizes, ranges, columns, shifted features and other libraries' partitioners: exact for any input."""

from __future__ import annotations

import copy
import itertools
import os
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedax.data import load
from fedax.data.partitions.dividing import meet, take_more
from fedax.data.partitions.registry import (
    IID,
    ByColumn,
    ByLabel,
    ByWriter,
    Dirichlet,
    DirichletLabels,
    DirichletSize,
    FeatureShift,
    FromFlower,
    LabelGroups,
    Pathological,
    Shards,
    partition,
)
from fedax.errors import FedaxError

quick = settings(max_examples=80, deadline=None)
seeds = st.integers(0, 2**32)
several = (
    st.lists(st.integers(0, 6), min_size=2, max_size=90)
    .map(lambda y: np.array(y, np.int32))
    .filter(lambda y: len(np.unique(y)) > 1)
)


def numbered(y):
    """A dataset whose x is the row's number, so that every row can be followed."""
    return {"x": np.arange(len(y)), "y": np.asarray(y)}


def blocks(federation):
    """Each client's rows, all its parts together."""
    parts = ("train", "validation", "test")
    return [np.concatenate([federation.client(i, p)["x"] for p in parts]) for i in range(federation.clients)]


def same(one, two):
    return all(np.array_equal(a, b) for a, b in zip(blocks(one), blocks(two), strict=True))


# Shards


@quick
@given(y=several, data=st.data(), seed=seeds)
def test_a_client_holds_whole_runs_of_the_sorted_rows(y, data, seed):
    clients = data.draw(st.integers(1, len(y)))
    per_client = data.draw(st.integers(1, len(y) // clients))
    federation = Shards(clients, per_client).divide(numbered(y), seed=seed)
    assert np.sort(np.concatenate(blocks(federation))).tolist() == list(range(len(y)))
    place = np.empty(len(y), int)
    place[np.argsort(y, kind="stable")] = np.arange(len(y))
    low, high = len(y) // (clients * per_client), -(-len(y) // (clients * per_client))
    for rows in blocks(federation):
        runs = np.split(np.sort(place[rows]), np.flatnonzero(np.diff(np.sort(place[rows])) > 1) + 1)
        # Neighbouring shards join to one run, so there are at most per_client, of at least a shard each.
        assert len(runs) <= per_client
        assert min(map(len, runs)) >= low
        assert per_client * low <= len(rows) <= per_client * high


def test_mcmahans_mnist():
    """200 shards of 300 rows, 2 a client: labels of 6000 rows are cut at shards' ends, so 2 labels at most."""
    counts = Shards(100, 2).divide({"y": np.arange(60_000) % 10}).label_counts()
    assert set(np.unique(counts).tolist()) <= {0, 300, 600}
    assert (counts.sum(axis=1) == 600).all()
    assert (counts > 0).sum(axis=1).max() == 2
    # Two of 200 shards, 20 of a label: both of one label with probability 19/199.
    assert 0 < ((counts > 0).sum(axis=1) == 1).sum() < 25


# Sizes


@quick
@given(rows=st.integers(1, 300), data=st.data(), exponent=st.floats(-6, 6), seed=seeds)
def test_dirichlet_sizes_are_exact_and_keep_min_rows(rows, data, exponent, seed):
    clients = data.draw(st.integers(1, rows))
    min_rows = data.draw(st.integers(1, rows // clients))
    rule = DirichletSize(clients, 10.0**exponent, min_rows)
    federation = rule.divide({"x": np.arange(rows)}, seed=seed, split=(0.6, 0.2, 0.2))
    assert np.sort(np.concatenate(blocks(federation))).tolist() == list(range(rows))
    assert min(map(len, blocks(federation))) >= min_rows
    assert same(federation, rule.divide({"x": np.arange(rows)}, seed=seed, split=(0.6, 0.2, 0.2)))


def test_dirichlet_sizes_have_the_laws_variance_and_labels_stay_even():
    clients, alpha = 2000, 0.8
    federation = DirichletSize(clients, alpha).divide({"y": np.arange(2_000_000) % 2})
    share = federation.train.count / 2_000_000
    mean = 1 / clients
    assert share.var() == pytest.approx(mean * (1 - mean) / (clients * alpha + 1), rel=0.15)
    counts = federation.label_counts()
    # Given its size n, a client's ones are hypergeometric: mean n/2, variance just below n/4.
    z = (counts[:, 1] - counts.sum(axis=1) / 2) / np.sqrt(counts.sum(axis=1) / 4)
    assert z.std() == pytest.approx(1, abs=0.1)


# Equal sizes, shares of labels


@quick
@given(y=several, data=st.data(), exponent=st.floats(-6, 6), seed=seeds)
def test_dirichlet_labels_leave_no_row_out_and_sizes_are_equal(y, data, exponent, seed):
    rule = DirichletLabels(data.draw(st.integers(1, len(y))), 10.0**exponent)
    federation = rule.divide(numbered(y), seed=seed)
    assert np.sort(np.concatenate(blocks(federation))).tolist() == list(range(len(y)))
    assert np.ptp(federation.train.count) <= 1
    assert same(federation, rule.divide(numbered(y), seed=seed))


def test_dirichlet_labels_leave_rows_out_where_clients_take_fewer():
    federation = DirichletLabels(4, 0.05, rows=6).divide({"y": np.arange(100) % 10})
    assert federation.train.count.tolist() == [6] * 4


@quick
@given(clients=st.integers(1, 30), rows=st.none() | st.integers(2, 8), seed=seeds)
def test_label_groups_are_the_published_pairs(clients, rows, seed):
    federation = LabelGroups(clients, rows=rows).divide({"y": np.arange(400) % 10}, seed=seed)
    counts = federation.label_counts()
    held = [tuple(np.flatnonzero(row).tolist()) for row in counts]
    assert set(held) <= {(0, 5), (1, 6), (2, 7), (3, 8), (4, 9)}
    of_group = [held.count(pair) for pair in set(held)]
    assert max(of_group) - min(of_group) <= 1
    assert np.ptp(counts[counts > 0]) <= (40 if rows is None else 0)
    if rows is not None:
        assert (counts.sum(axis=1) == rows // 2 * 2).all()


@pytest.mark.parametrize("alpha", [0.1, 0.6, 5.0])
def test_dirichlet_labels_have_the_laws_variance(alpha):
    clients, labels, size = 2000, 10, 500
    counts = DirichletLabels(clients, alpha).divide({"y": np.arange(clients * size) % labels}).label_counts()
    mean = 1 / labels
    # Shares p of variance v, then `size` draws: v + E[p (1 - p)] / size.
    v = mean * (1 - mean) / (labels * alpha + 1)
    expected = v + (mean * (1 - mean) - v) / size
    assert (counts / size).var() == pytest.approx(expected, rel=0.05)


def test_dirichlet_labels_of_a_tiny_alpha_are_one_label_each_as_far_as_rows_last():
    # Ten labels of 100 rows, ten clients of 100 rows: two who draw the same label share it and take what is left.
    counts = DirichletLabels(10, 1e-6).divide({"y": np.arange(1000) % 10}, seed=1).label_counts()
    assert (counts.max(axis=1) == 100).sum() >= 3
    assert counts.sum(axis=0).tolist() == [100] * 10


# Ranges of rows with few labels


@quick
@given(
    sizes=st.lists(st.integers(1, 30), min_size=2, max_size=6),
    clients=st.integers(1, 8),
    data=st.data(),
    seed=seeds,
)
def test_pathological_keeps_labels_and_range_or_says_why_not(sizes, clients, data, seed):
    y = np.repeat(np.arange(len(sizes)), sizes)
    labels = data.draw(st.integers(1, len(sizes)))
    min_rows = data.draw(st.integers(labels, 20))
    max_rows = data.draw(st.integers(min_rows, 40))
    rule = Pathological(clients, labels, min_rows, max_rows)
    try:
        federation = rule.divide(numbered(y), seed=seed)
    except FedaxError:
        # What is refused is impossible or at least tight: equal shares of the rarest labels would not do.
        places = -(-clients * labels // len(sizes))
        assert min(sizes) // places < -(-min_rows // labels)
        return
    counts = federation.label_counts()
    assert ((counts > 0).sum(axis=1) == labels).all()
    assert counts.sum(axis=1).min() >= min_rows
    assert counts.sum(axis=1).max() <= max_rows
    taken = np.concatenate(blocks(federation))
    assert len(np.unique(taken)) == len(taken)
    assert same(federation, rule.divide(numbered(y), seed=seed))


def test_pfedfbe_mnist():
    """20 clients of 1165 to 3834 rows and 2 labels each, out of 60000: in the mean (1165 + 3834) / 2 rows."""
    counts = Pathological(20).divide({"y": np.arange(60_000) % 10}).label_counts()
    sizes = counts.sum(axis=1)
    assert ((counts > 0).sum(axis=1) == 2).all()
    assert 1165 <= sizes.min() < 1800
    assert 3000 < sizes.max() <= 3834
    assert len(set(sizes.tolist())) == 20
    # 20 uniform draws: a standard error of 770 / sqrt(20) = 172; labels that run out take a little.
    assert 2000 < sizes.mean() < 2900


@quick
@given(
    held=st.lists(st.permutations([True, True, False, False]), min_size=1, max_size=3),
    size=st.lists(st.integers(3, 7), min_size=4, max_size=4),
    need=st.integers(2, 9),
)
def test_a_need_is_met_exactly_where_enumeration_finds_it_can_be(held, size, need):
    held, size = np.array(held), np.array(size)
    found = meet(held, size, need)
    # A client with two labels takes k of the first and need - k of the second.
    first, second = held.argmax(axis=1), 3 - held[:, ::-1].argmax(axis=1)
    possible = any(
        all(sum(k * (f == l) + (need - k) * (s == l) for k, f, s in zip(ks, first, second, strict=True)) <= n
            for l, n in enumerate(size))
        for ks in itertools.product(range(1, need), repeat=len(held))
    )  # fmt: skip
    assert (found is not None) == possible
    if found is not None:
        assert (found.sum(axis=1) == need).all()
        assert (found.sum(axis=0) <= size).all()
        assert ((found > 0) == held).all()
        wanted = np.full(len(held), need + 3)
        more = take_more(found, held, size, wanted, np.random.default_rng(0))
        assert (more >= found).all()
        assert (more.sum(axis=0) <= size).all()
        short = more.sum(axis=1) < wanted
        # Who has less than it wanted holds labels without a row left.
        assert not (held[short] & (more.sum(axis=0) < size)).any()


# Columns


@quick
@given(
    values=st.lists(st.integers(-3, 9), min_size=1, max_size=60),
    min_rows=st.integers(1, 5),
    clients=st.none() | st.integers(1, 6),
    text=st.booleans(),
)
def test_a_client_has_all_rows_of_its_value_and_no_other(values, min_rows, clients, text):
    column = np.array([f"w{v:+d}" for v in values]) if text else np.array(values)
    data = {**numbered(np.zeros(len(values), int)), "writer": column}
    count = {v: (column == v).sum() for v in np.unique(column)}
    enough = [v for v in count if count[v] >= min_rows]
    rule = ByColumn(clients, "writer", min_rows)
    if len(enough) < (clients or 1):
        with pytest.raises(FedaxError, match=f"the column 'writer' has {len(enough)} values with at least {min_rows}"):
            rule.divide(data)
        return
    federation = rule.divide(data, split=(0.5, 0.2, 0.3))
    expected = enough if clients is None else sorted(sorted(enough, key=lambda v: -count[v])[:clients])
    assert federation.names == tuple(f"writer {v}" for v in expected)
    assert set(federation.arrays) == {"x", "y"}
    for value, rows in zip(expected, blocks(federation), strict=True):
        assert np.sort(rows).tolist() == np.flatnonzero(column == value).tolist()


def test_a_column_may_be_the_labels_and_then_stays():
    federation = partition("bycolumn", column="y").divide(numbered([5, 3, 5]))
    assert federation.names == ("y 3", "y 5")
    assert federation.client(1)["y"].tolist() == [5, 5]


def test_by_writer_reads_writer():
    data = {**numbered([0, 1, 1]), "writer": np.array(["b", "a", "b"])}
    assert ByWriter().divide(data).names == ("writer a", "writer b")
    assert partition("ByWriter", clients=1).divide(data).names == ("writer b",)


# Features


def images(rows=24, side=5):
    rng = np.random.default_rng(0)
    return {"x": rng.random((rows, side, side), np.float32), "y": np.arange(rows)}


def test_right_angles_are_exact_and_client_zero_keeps_its_images():
    data = images()
    federation = FeatureShift(4, rotation=360).divide(data, split=(0.5, 0.0, 0.5), seed=2)
    for i in range(4):
        for part in ("train", "test"):
            got = federation.client(i, part)
            expected = [np.rot90(data["x"][row], i) for row in got["y"]]
            np.testing.assert_array_equal(got["x"], expected)


def test_a_turn_by_any_angle_moves_a_dot_along_a_circle():
    # A wide blob keeps its total weight, and its centre goes round the image's by the angle.
    side, angle = 61, 40.0
    row, column = np.mgrid[:side, :side] - (side - 1) / 2
    blob = np.exp(-((row + 0) ** 2 + (column - 15) ** 2) / 20)
    data = {"x": np.repeat(blob[None], 2, axis=0), "y": np.arange(2)}
    turned = FeatureShift(2, rotation=2 * angle).divide(data).client(1)["x"][0]
    assert turned.sum() == pytest.approx(blob.sum(), rel=1e-2)
    right, up = (turned * column).sum() / turned.sum(), (turned * -row).sum() / turned.sum()
    assert np.degrees(np.arctan2(up, right)) == pytest.approx(angle, abs=0.5)
    assert np.hypot(up, right) == pytest.approx(15, abs=0.1)


def test_channels_and_flat_images_turn_like_plain_ones():
    plain = images()
    flat = {**plain, "x": plain["x"].reshape(24, -1)}
    colour = {**plain, "x": np.stack([plain["x"]] * 3, axis=-1)}
    one, two, three = (FeatureShift(3, rotation=100).divide(data).arrays["x"] for data in (plain, flat, colour))
    np.testing.assert_array_equal(two, one.reshape(24, -1))
    for channel in range(3):
        np.testing.assert_allclose(three[..., channel], one, atol=1e-6)


def test_noise_grows_with_the_clients_number_and_rows_stay_iid():
    data = {"x": np.zeros((8000, 50), np.float32), "y": np.arange(8000)}
    rule = FeatureShift(4, noise=2.0)
    federation = rule.divide(data, seed=5)
    for i in range(4):
        # 100 000 draws: a relative standard error of 0.22 %.
        assert federation.client(i)["x"].std() == pytest.approx(2.0 * i / 4, rel=0.02)
    plain = IID(4).divide(data, seed=5)
    np.testing.assert_array_equal(federation.arrays["y"], plain.arrays["y"])
    np.testing.assert_array_equal(federation.arrays["x"], rule.divide(data, seed=5).arrays["x"])
    assert not np.array_equal(federation.arrays["x"], rule.divide(data, seed=6).arrays["x"])


def test_bytes_become_floats_from_zero_to_one_and_the_given_arrays_stay():
    data = {"x": np.arange(256, dtype=np.uint8).reshape(64, 2, 2), "y": np.arange(64)}
    before = copy.deepcopy(data)
    x = FeatureShift(2, rotation=360).divide(data).arrays["x"]
    assert x.dtype == np.float32
    assert (x.min(), x.max()) == (0, 1)
    np.testing.assert_array_equal(data["x"], before["x"])
    floats = {"x": images()["x"], "y": np.arange(24)}
    kept = floats["x"].copy()
    FeatureShift(1, noise=1.0).divide(floats)
    FeatureShift(3, noise=1.0).divide(floats)
    np.testing.assert_array_equal(floats["x"], kept)


# Partitioners of flwr-datasets


class Table:
    """As much of `datasets.Dataset` as partitioners use."""

    def __init__(self, columns):
        self.columns = {key: list(values) for key, values in columns.items()}

    from_dict = classmethod(lambda cls, columns: cls(columns))

    def __getitem__(self, key):
        return self.columns[key]

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def select(self, rows):
        return Table({key: [values[row] for row in rows] for key, values in self.columns.items()})


class Stub:
    """A partitioner in the form of flwr-datasets: one assignment, then `num_partitions` and `load_partition`."""

    def __init__(self, rule):
        self.rule, self._dataset = rule, None

    @property
    def dataset(self):
        return self._dataset

    @dataset.setter
    def dataset(self, value):
        if self._dataset is not None:
            raise Exception("The dataset should be assigned only once to the partitioner.")
        self._dataset = value

    @property
    def num_partitions(self):
        return len(self.rule(self.dataset))

    def load_partition(self, partition_id):
        return self.dataset.select(self.rule(self.dataset)[partition_id])


@pytest.fixture
def installed(monkeypatch):
    module = types.ModuleType("datasets")
    module.Dataset = Table
    monkeypatch.setitem(sys.modules, "datasets", module)


def by_y(table):
    labels = np.asarray(table["y"])
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


def test_another_librarys_partitioner_divides_again_and_again(installed):
    y = np.array([2, 0, 2, 1])
    rule = FromFlower(partitioner=Stub(by_y))
    for _ in range(2):
        federation = rule.divide({**numbered(y), "image": np.zeros((4, 2, 2))})
        assert [rows.tolist() for rows in blocks(federation)] == [[1], [3], [0, 2]]
        assert federation.info["partition"] == "FromFlower(Stub)"
    assert load("iris", partition=rule, split=None).clients == 3


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (lambda table: [[0, 1], [1, 2]], "gave some of the 4 rows to more than one client"),
        (lambda table: [[0, 1], []], "left some of its 2 clients without rows"),
        (lambda table: table["label"], "FromFlower(Stub) could not divide the rows: 'label'"),
    ],
)
def test_another_librarys_mistakes_are_named(installed, rule, words):
    with pytest.raises(FedaxError, match=re.escape(words)):
        FromFlower(partitioner=Stub(rule)).divide(numbered([0, 0, 1, 1]))


def test_a_wanted_number_of_partitions_is_checked(installed):
    with pytest.raises(FedaxError, match="left some of its 5 clients without rows"):
        FromFlower(clients=5, partitioner=Stub(by_y)).divide(numbered([0, 0, 1, 1]))


def test_without_the_package_one_sentence_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(FedaxError, match=r"FromFlower\(Stub\) could not divide the rows: import of datasets halted"):
        FromFlower(partitioner=Stub(by_y)).divide(numbered([0, 1]))


def test_the_real_package_where_it_is_installed():
    partitioners = pytest.importorskip("flwr_datasets.partitioner")
    y = np.arange(1000) % 10
    real = partitioners.DirichletPartitioner(num_partitions=5, partition_by="y", alpha=0.5, min_partition_size=3)
    federation = FromFlower(partitioner=real).divide(numbered(y))
    assert federation.clients == 5
    assert np.sort(np.concatenate(blocks(federation))).tolist() == list(range(1000))


# Bad input

ONE = numbered(np.full(20, 3))
TWO = numbered(np.arange(20) % 2)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: Dirichlet(2, 0.5).divide(ONE), "all 20 rows have the label 3, there must be at least 2 labels"),
        (lambda: ByLabel(2, 1).divide(ONE), "all 20 rows have the label 3, there must be at least 2 labels"),
        (lambda: Shards(2).divide(ONE), "all 20 rows have the label 3, there must be at least 2 labels"),
        (lambda: Pathological(2, 1, 1, 2).divide(ONE), "all 20 rows have the label 3"),
        (lambda: Shards(2).divide({"x": np.ones(4)}), "Shards(clients=2, per_client=2) divides rows by their labels"),
        (lambda: Shards(21).divide(TWO), "clients is 21: it must be at most the number of rows, 20"),
        (
            lambda: Shards(11).divide(TWO),
            "clients * per_client is 22: there must be at most as many shards as rows, 20",
        ),
        (lambda: Shards(2, 0), "per_client is 0: it must be an integer of at least 1"),
        (lambda: DirichletSize(21, 1.0).divide(TWO), "clients is 21: it must be at most the number of rows, 20"),
        (lambda: DirichletSize(2, 0), "alpha is 0: it must be a finite number above 0"),
        (lambda: DirichletSize(2, -1.0), "alpha is -1.0: it must be a finite number above 0"),
        (lambda: DirichletSize(2, float("nan")), "alpha is nan: it must be a finite number above 0"),
        (lambda: LabelGroups(2, 3).divide(TWO), "labels is 3: it must divide the data's 2 labels"),
        (lambda: LabelGroups(2, 2, 99).divide(TWO), "2 of them share a label with 49 rows each"),
        (lambda: DirichletLabels(2, 0.5, 11).divide(TWO), "rows is 11: it must be at most 10, for 20 rows"),
        (lambda: DirichletLabels(2, 0), "alpha is 0: it must be a finite number above 0"),
        (lambda: DirichletLabels(21, 1.0).divide(TWO), "clients is 21: it must be at most the number of rows, 20"),
        (lambda: DirichletLabels(2, 1.0).divide({"x": TWO["x"]}), "divides rows by their labels"),
        (
            lambda: DirichletSize(3, 1.0, 7).divide(TWO),
            "min_rows is 7: it must be at most 6, for 20 rows and 3 clients",
        ),
        (lambda: Pathological(2, 2, 1), "min_rows is 1: it must be an integer of at least 2"),
        (lambda: Pathological(2, 2, 9, 8), "max_rows is 8: it must be an integer of at least 9"),
        (lambda: Pathological(2).divide(TWO), "min_rows is 1165: it must be at most 10, for 20 rows and 2 clients"),
        (lambda: Pathological(2, 3, 3, 4).divide(TWO), "labels is 3: the data have 2 labels"),
        (
            lambda: Pathological(2, 1, 6, 9).divide(numbered([0] * 5 + [1] * 15)),
            "min_rows is 6: with 1 labels a client, the rarest of 5 rows, the data do not have that many",
        ),
        (lambda: ByColumn(column="writre").divide({**TWO, "writer": TWO["y"]}), "did you mean 'writer'?"),
        (lambda: ByColumn(column="w").divide(TWO), "unknown column 'w': Allowed: x, y"),
        (
            lambda: ByWriter().divide({**TWO, "writer": np.ones(20)}),
            "column 'writer' has shape (20,) and dtype float64",
        ),
        (lambda: ByWriter().divide({**TWO, "writer": np.ones(3, int)}), "has arrays of different lengths"),
        (lambda: ByColumn(0), "clients is 0: it must be an integer of at least 1"),
        (lambda: ByColumn(min_rows=0), "min_rows is 0: it must be an integer of at least 1"),
        (lambda: FeatureShift(2, rotation=float("inf")), "rotation is inf: it must be a finite number"),
        (lambda: FeatureShift(2, noise=-1), "noise is -1: it must be a finite number of at least 0"),
        (lambda: FeatureShift(2, noise=1.0).divide({"y": np.ones(4)}), "changes the array 'x': the dataset has none"),
        (lambda: FeatureShift(2, rotation=9.0).divide({"x": np.ones((4, 5))}), "'x' has rows of shape (5,)"),
        (lambda: partition("fromflower"), "unknown partition 'fromflower'"),
    ],
)
def test_bad_input_gets_one_sentence(build, sentence):
    with pytest.raises(FedaxError, match=re.escape(sentence)) as error:
        build()
    assert "\n" not in str(error.value)


@pytest.mark.skipif(
    not (Path(os.environ.get("FEDAX_DATA") or os.devnull) / "mnist").is_dir(), reason="FEDAX_DATA has no mnist"
)
def test_pathological_on_the_real_mnist():
    counts = load("mnist", partition=Pathological(20), split=None).label_counts()
    assert ((counts > 0).sum(axis=1) == 2).all()
    assert counts.sum(axis=1).min() >= 1165
    assert counts.sum(axis=1).max() <= 3834
