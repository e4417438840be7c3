"""Synthetic regressions against the distributions that their papers state, and the fMRI slice."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from fedax.data import IID, LASSO, LOW_RANK, LassoClients, haxby, lasso, load, low_rank
from fedax.errors import FedaxError

SMALL = {"dimension": 12, "clients": 5, "rows": 40}
#: one of each law: at a small size the others differ in the number of ones alone
LAWS = [
    (lasso, "thesis-II"),
    (lasso, "pfedfbe-I"),
    (lasso, "pfedfbe-II"),
    (low_rank, "thesis-II"),
    (low_rank, "pfedfbe"),
]


def small(generate, preset, **changes):
    """A preset's law at a small size."""
    presets = LASSO if generate is lasso else LOW_RANK
    ones = min(presets[preset].ones, 6)
    return generate(preset, **{**SMALL, "ones": ones, "dtype": np.float64, **changes})


def truth_of(federation, i):
    """Client i's flat weights, and the intercept."""
    truth = federation.info["truth"]
    shared = truth["weights"].ndim < federation.arrays["x"].ndim
    return np.ravel(truth["weights"] if shared else truth["weights"][i]), truth["intercept"]


def noise_of(federation, i, part="train"):
    """What is left of client i's y after the truth."""
    rows = federation.client(i, part)
    w, x0 = truth_of(federation, i)
    return rows["y"] - rows["x"].reshape(len(rows["y"]), -1) @ w - x0


# The papers' numbers


@pytest.mark.parametrize(
    ("preset", "ones", "clients", "rows"),
    [("I", 512, 64, 128), ("II", 64, 64, 128), ("III", 8, 64, 128), ("IV", 512, 256, 32)],
)
def test_the_thesis_lasso(preset, ones, clients, rows):
    federation = lasso(f"thesis-{preset}", test_rows=1)
    assert federation.clients == clients
    assert federation.train.count.tolist() == [rows] * clients
    assert federation.train.count.sum() == 8192
    assert federation.arrays["x"].shape[1:] == (1024,)
    assert federation.info["truth"]["weights"].tolist() == [1] * ones + [0] * (1024 - ones)
    assert federation.info["truth"]["intercept"] == lasso("thesis-I", clients=1).info["truth"]["intercept"] != 0


@pytest.mark.parametrize(
    ("preset", "rank", "clients", "rows"),
    [("I", 16, 64, 128), ("II", 4, 64, 128), ("III", 1, 64, 128), ("IV", 16, 256, 32)],
)
def test_the_thesis_low_rank(preset, rank, clients, rows):
    federation = low_rank(f"thesis-{preset}", test_rows=1)
    assert federation.train.count.tolist() == [rows] * clients
    assert federation.arrays["x"].shape[1:] == (32, 32)
    expected = np.zeros((32, 32))
    expected[:rank, :rank] = np.eye(rank)
    np.testing.assert_array_equal(federation.info["truth"]["weights"], expected)
    assert federation.info["truth"]["intercept"] != 0


def test_pfedfbe_lasso_one():
    federation = lasso("pfedfbe-I")
    assert federation.train.count.tolist() == [128] * 30
    assert federation.info["truth"]["weights"].tolist() == [1] * 992 + [0] * 32
    assert federation.info["truth"]["intercept"] == 0


def test_pfedfbe_lasso_two_has_two_halves_of_its_own_on_each_client():
    federation = lasso("pfedfbe-II")
    weights = federation.info["truth"]["weights"]
    assert federation.train.count.tolist() == [128] * 30
    assert weights.shape == (30, 1024)
    assert (weights[:, :8] == 1).all()
    assert [sorted(np.unique(row).tolist()) for row in weights[:, 8:]] == [[0, 0.5]] * 30
    assert (weights[:, 8:] > 0).sum(axis=1).tolist() == [2] * 30
    assert len({tuple(np.flatnonzero(row)) for row in weights}) > 25
    assert federation.info["truth"]["intercept"] == 0


def test_common_places_are_one_truth_for_all_clients():
    common = lasso("pfedfbe-II", places="common", noise=0.0, rows=20)
    weights = common.info["truth"]["weights"]
    assert weights.shape == (1024,)
    assert (np.count_nonzero(weights == 1), np.count_nonzero(weights == 0.5)) == (8, 2)
    for client in (0, 29):  # without noise every client's rows obey that truth
        rows = common.client(client)
        np.testing.assert_allclose(rows["x"] @ weights, rows["y"], atol=1e-4)
    own = lasso("pfedfbe-II", noise=0.0, rows=20)
    np.testing.assert_array_equal(own.client(3)["x"], common.client(3)["x"])  # nothing else is drawn otherwise


def test_pfedfbe_matrices_have_a_fifth_singular_value_of_their_own():
    federation = low_rank("pfedfbe")
    weights = federation.info["truth"]["weights"]
    assert federation.train.count.tolist() == [128] * 30
    assert weights.shape == (30, 32, 32)
    np.testing.assert_allclose(np.linalg.svd(weights, compute_uv=False)[:, :6], [[1, 1, 1, 1, 0.25, 0]] * 30)
    diagonal = np.diagonal(weights, axis1=1, axis2=2)
    assert (weights.sum(axis=(1, 2)) == diagonal.sum(axis=1)).all()
    assert (diagonal[:, :4] == 1).all()
    assert len(set(np.argmax(diagonal == 0.25, axis=1).tolist())) > 10
    assert federation.info["truth"]["intercept"] == 0


def test_own_places_are_uniform_over_all_places_after_the_ones():
    weights = lasso("pfedfbe-II", dimension=18, clients=2000, rows=1, test_rows=0).info["truth"]["weights"]
    count = (weights[:, 8:] == 0.5).sum(axis=0)
    assert count.sum() == 4000
    # Each of ten places is chosen with probability 1/5: 400 +- 18.
    assert abs(count - 400).max() < 4 * np.sqrt(2000 * 0.2 * 0.8)


# The distributions


@pytest.mark.parametrize(("generate", "preset"), LAWS)
def test_means_rows_and_noise_are_standard_normal(generate, preset):
    federation = small(generate, preset, clients=100, rows=60)
    x = federation.arrays["x"].reshape(federation.rows, -1)
    x = np.stack([x[federation.train.of(i)] for i in range(100)])
    features = x.shape[-1]
    mean = x.mean(axis=1)
    delta = x - mean[:, None]
    tolerance = 5 / np.sqrt(100 * features)
    assert abs(mean.mean()) < tolerance
    # The mean over a client's rows has the variance of mu plus that of delta's mean.
    assert mean.var() == pytest.approx(1 + 1 / 60, abs=1.5 * tolerance)
    assert delta.var(ddof=0) == pytest.approx(59 / 60, abs=0.02)
    kurtosis = np.mean(delta**4) / np.mean(delta**2) ** 2
    assert kurtosis == pytest.approx(3, abs=0.1)
    between = np.corrcoef(delta.reshape(-1, features), rowvar=False) - np.eye(features)
    assert abs(between).max() < 6 / np.sqrt(6000)
    noise = np.concatenate([noise_of(federation, i) for i in range(100)])
    assert abs(noise.mean()) < 5 / np.sqrt(6000)
    assert noise.std() == pytest.approx(1, abs=0.05)
    assert abs(np.corrcoef(noise, delta.reshape(-1, features), rowvar=False)[0, 1:]).max() < 6 / np.sqrt(6000)


def test_the_intercept_is_standard_normal_over_seeds():
    drawn = [lasso("thesis-III", seed=s, **SMALL, test_rows=0).info["truth"]["intercept"] for s in range(400)]
    assert abs(np.mean(drawn)) < 0.2
    assert np.std(drawn) == pytest.approx(1, abs=0.15)


def test_spread_scales_the_means_alone():
    far, near, alike = (small(lasso, "thesis-II", clients=3, spread=spread) for spread in (1.0, 0.25, 0.0))
    for i in range(3):
        one, other, none = (np.asarray(drawn.client(i)["x"], np.float64) for drawn in (far, near, alike))
        mean = one - none
        np.testing.assert_allclose(mean, np.broadcast_to(mean[0], mean.shape), atol=1e-5)
        np.testing.assert_allclose(other, none + 0.25 * mean, atol=1e-5)
        assert np.std(mean[0]) > 0.5


@pytest.mark.parametrize("noise", [0.0, 0.1, 3.0])
def test_noise_is_the_standard_deviation(noise):
    federation = small(lasso, "thesis-II", clients=50, noise=noise)
    drawn = np.concatenate([noise_of(federation, i) for i in range(50)])
    assert drawn.std() == pytest.approx(noise, rel=0.07, abs=1e-12)


@pytest.mark.parametrize("generate", [lasso, low_rank])
def test_test_rows_come_from_their_own_client(generate):
    federation = small(generate, "thesis-II", rows=200, test_rows=200)
    means = [[federation.client(i, part)["x"].mean(axis=0).ravel() for i in range(5)] for part in ("train", "test")]
    apart = np.linalg.norm(np.array(means[0])[:, None] - np.array(means[1])[None], axis=-1)
    assert apart.argmin(axis=1).tolist() == [0, 1, 2, 3, 4]
    for i in range(5):
        assert np.std(noise_of(federation, i, "test")) == pytest.approx(1, abs=0.2)
        assert not np.isin(federation.client(i, "test")["y"], federation.client(i)["y"]).any()


# The truth is what the rows tell


@pytest.mark.parametrize(("generate", "preset"), LAWS)
def test_least_squares_on_rows_without_noise_finds_the_truth(generate, preset):
    federation = small(generate, preset, noise=0.0, rows=200)
    shared = federation.info["truth"]["weights"].ndim < federation.arrays["x"].ndim
    groups = [list(range(5))] if shared else [[i] for i in range(5)]
    for members in groups:
        rows = [federation.client(i) for i in members]
        x = np.concatenate([r["x"].reshape(len(r["y"]), -1) for r in rows])
        design = np.column_stack([x, np.ones(len(x))])
        found = np.linalg.lstsq(design, np.concatenate([r["y"] for r in rows]))[0]
        np.testing.assert_allclose(found, np.append(*truth_of(federation, members[0])), atol=1e-9)


def test_pooled_ridge_finds_the_thesis_lasso_in_float32():
    federation = lasso("thesis-II", noise=0.0, test_rows=0)
    x, y = (federation.arrays[key].astype(np.float64) for key in ("x", "y"))
    design = np.column_stack([x, np.ones(len(x))])
    found = np.linalg.solve(design.T @ design + 1e-6 * np.eye(1025), design.T @ y)
    np.testing.assert_allclose(found, np.append(*truth_of(federation, 0)), atol=1e-5)


# What a client's rows depend on


@pytest.mark.parametrize(("generate", "preset"), [(lasso, "thesis-II"), (lasso, "pfedfbe-II"), (low_rank, "pfedfbe")])
@pytest.mark.parametrize("change", [{"clients": 9, "rows": 55}, {"test_rows": 50}])
def test_a_client_does_not_depend_on_how_many_there_are(generate, preset, change):
    dimension = {"dimension": 16, "ones": 4, "seed": 3}
    one = small(generate, preset, **dimension)
    other = small(generate, preset, **dimension, **change)
    for part in ("train", "test"):
        for i in range(5):
            here, there = one.client(i, part), other.client(i, part)
            both = min(len(here["y"]), len(there["y"]))
            for key in ("x", "y"):
                np.testing.assert_allclose(here[key][:both], there[key][:both], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(truth_of(one, 2)[0], truth_of(other, 2)[0])


def test_the_same_seed_gives_the_same_bits_and_another_seed_other_rows():
    one, again, other = (small(lasso, "pfedfbe-II", ones=4, seed=seed).arrays["x"] for seed in (7, 7, 8))
    np.testing.assert_array_equal(one, again)
    assert not np.isin(one, other).any()
    assert len(np.unique(one)) == one.size


def test_the_intercept_is_not_a_number_of_the_first_client():
    federation = small(lasso, "thesis-III", seed=0)
    assert federation.info["truth"]["intercept"] not in federation.arrays["x"][0]


def test_precision_and_info():
    single = small(lasso, "thesis-II", seed=5, dtype="float32")
    double = small(lasso, "thesis-II", seed=5)
    assert single.arrays["x"].dtype == single.arrays["y"].dtype == np.float32
    np.testing.assert_allclose(single.arrays["x"], double.arrays["x"], rtol=1e-6, atol=1e-6)
    info = {key: value for key, value in double.info.items() if key != "truth"}
    sizes = LassoClients(dimension=12, ones=6, clients=5, rows=40)
    assert info == {"dataset": "lasso thesis-II", "partition": repr(sizes), "seed": 5, "classes": None}
    assert low_rank("pfedfbe", clients=1).test.count.tolist() == [32]


# Bad input


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"clients": 0}, "clients is 0: it must be an integer of at least 1"),
        ({"rows": -3}, "rows is -3: it must be an integer of at least 1"),
        ({"dimension": 2.5}, "dimension is 2.5: it must be an integer of at least 1"),
        ({"ones": -1}, "ones is -1: it must be an integer of at least 0"),
        ({"ones": 40, "dimension": 32}, "ones is 40 and own is 0: together they must be at most dimension, 32"),
        ({"ones": 31, "own": 2, "dimension": 32}, "ones is 31 and own is 2: together they must be at most"),
        ({"noise": -0.5}, "noise is -0.5: it must be a finite number of at least 0"),
        ({"spread": -1.0}, "spread is -1.0: it must be a finite number of at least 0"),
        ({"noise": "loud"}, "noise is 'loud': it must be a finite number of at least 0"),
        ({"own_value": np.nan}, "own_value is nan: it must be a finite number"),
        ({"intercept": 2.0}, "intercept is 2.0: it must be True or False"),
        ({"test_rows": -1}, "test_rows is -1: it must be an integer of at least 0"),
        ({"seed": -1}, "seed is -1: it must be an integer of at least 0"),
        ({"dtype": np.int32}, "it must be float32 or float64"),
        ({"dtype": "float31"}, "dtype is 'float31': it must be float32 or float64"),
        ({"client": 3}, "argument 'client': did you mean 'clients'?"),
    ],
)
@pytest.mark.parametrize("generate", [lasso, low_rank])
def test_bad_sizes_are_named(generate, changes, sentence):
    with pytest.raises(FedaxError, match=re.escape(sentence)):
        generate("thesis-II", **changes)


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(FedaxError, match="unknown lasso preset 'thesis-2': did you mean 'thesis-I"):
        lasso("thesis-2")
    with pytest.raises(FedaxError, match="unknown low_rank preset 'pfedfbe-I': did you mean 'pfedfbe'"):
        low_rank("pfedfbe-I")


# The fMRI slice


@pytest.fixture
def scans(tmp_path, monkeypatch):
    """Writes a small file in the slice's layout, changed as asked: 4 runs of 6 scans of 5 voxels."""
    monkeypatch.setenv("FEDAX_DATA", str(tmp_path))
    (tmp_path / "haxby").mkdir()

    def write(drop=(), **changes):
        rng = np.random.default_rng(0)
        x = rng.integers(100, 2000, (24, 5)).astype(np.int16)
        x[:6, 4] = 7
        label = np.array(["rest", "face", "house", "cat", "house", "face"] * 4)
        arrays = {"X": x, "label": label, "run": np.repeat(np.arange(4), 6), **changes}
        kept = {key: array for key, array in arrays.items() if key not in drop}
        np.savez(tmp_path / "haxby" / "haxby2001_sub1_slice.npz", **kept)
        return arrays

    return write


def test_runs_are_clients_and_held_out_runs_are_shared(scans):
    arrays = scans()
    federation = haxby(test_runs=[3], validation_runs=[1])
    assert federation.names == ("run 0", "run 2")
    assert federation.info["classes"] == 2
    assert federation.arrays["x"].dtype == np.float32
    assert federation.arrays["y"].dtype == np.int32
    for i, run in enumerate((0, 2)):
        for part, held in (("train", run), ("validation", 1), ("test", 3)):
            rows = federation.client(i, part)
            x = arrays["X"][6 * held : 6 * held + 6].astype(float)
            scaled = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-9)
            np.testing.assert_allclose(rows["x"], scaled[[1, 2, 4, 5]], rtol=1e-5, atol=1e-6)
            assert rows["y"].tolist() == [0, 1, 1, 0]
    assert np.shares_memory(federation.client(0, "test")["x"], federation.client(1, "test")["x"])
    assert (federation.client(0)["x"][:, 4] == 0).all()


def test_other_categories_in_their_order(scans):
    scans()
    federation = haxby(("house", "cat", "face"), test_runs=())
    assert federation.client(3)["y"].tolist() == [2, 0, 1, 0, 2]
    assert federation.test.count.tolist() == [0] * 4


def test_the_slice_by_name_can_be_divided_in_any_way(scans):
    scans()
    federation = load("haxby", partition=IID(3), split=None)
    assert federation.rows == 16
    assert federation.info["classes"] == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"classes": ("face", "hous")}, "unknown category 'hous': did you mean 'house'?"),
        ({"classes": ("face",)}, "classes is ('face',): it must be two or more different categories"),
        ({"classes": ("face", "face")}, "it must be two or more different categories of cat, face, house, rest"),
        ({"classes": "face"}, "classes is 'face': it must be two or more"),
        ({"test_runs": [4]}, "test_runs is [4]: it must be a sequence of the runs 0, 1, 2, 3"),
        ({"test_runs": 3}, "test_runs is 3: it must be a sequence of the runs 0, 1, 2, 3"),
        ({"test_runs": [1], "validation_runs": [1]}, "run 1 is in validation_runs and again in test_runs"),
        ({"test_runs": [0, 1, 2, 3]}, "validation_runs and test_runs hold out all 4 runs: one must be left"),
    ],
)
def test_bad_choices_of_scans_are_named(scans, arguments, sentence):
    scans()
    with pytest.raises(FedaxError, match=re.escape(sentence)):
        haxby(**{"test_runs": [3], **arguments})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"drop": ("label",)}, "has the arrays ['X', 'run']: it must have X, label and run"),
        ({"run": np.zeros(23, np.int64)}, "run int64[23]: X must be numbers [scans, voxels]"),
        ({"X": np.zeros((24, 2, 2))}, "has X float64[24, 2, 2]"),
        ({"label": np.zeros(24, np.int64)}, "label int64[24]"),
        ({"X": np.full((24, 5), np.nan)}, "has NaN or infinity in X"),
        ({"label": np.array([{}] * 24, object)}, "is not an npz file of plain arrays"),
    ],
)
def test_wrong_content_is_named(scans, changes, sentence):
    scans(**changes)
    with pytest.raises(FedaxError, match=re.escape(sentence)):
        haxby(test_runs=[3])


def test_a_missing_or_damaged_file_is_named(scans, tmp_path, monkeypatch):
    with pytest.raises(FedaxError, match=r"haxby2001_sub1_slice.npz is missing"):
        haxby()
    scans()
    path = tmp_path / "haxby" / "haxby2001_sub1_slice.npz"
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"not an archive", whole[:80] + b"\0" * 40 + whole[120:]):
        path.write_bytes(damaged)
        with pytest.raises(FedaxError, match="is not an npz file of plain arrays"):
            haxby()
    monkeypatch.delenv("FEDAX_DATA")
    monkeypatch.setenv("FEDAX_CACHE", str(tmp_path))
    path.write_bytes(whole)
    assert haxby(test_runs=[3]).clients == 3


@pytest.mark.skipif(
    not (Path(os.environ.get("FEDAX_DATA") or os.devnull) / "haxby").is_dir(), reason="FEDAX_DATA has no haxby"
)
def test_the_real_slice():
    federation = haxby()
    assert federation.clients == 10
    assert federation.arrays["x"].shape == (216, 530)
    assert federation.train.count.tolist() == [18] * 10
    assert federation.test.count.tolist() == [36] * 10
    for i in range(10):
        assert np.bincount(federation.client(i)["y"]).tolist() == [9, 9]
    train = {key: array[:180] for key, array in federation.arrays.items()}
    test = federation.client(0, "test")
    apart = train["x"][train["y"] == 1].mean(axis=0) - train["x"][train["y"] == 0].mean(axis=0)
    middle = train["x"].mean(axis=0)
    assert np.mean(((test["x"] - middle) @ apart > 0) == test["y"]) > 0.85
