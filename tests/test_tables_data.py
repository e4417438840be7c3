"""A user's own rows: CSV, Parquet, NumPy archives, LibSVM text, Hugging Face datasets; and what bad ones are told."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedax.cli import invoke
from fedax.data import IID, from_table, load
from fedax.errors import FedaxError
from fedax.experiments import parse
from fedax.experiments.building import prepare

PATIENTS = """hospital,age,smokes,blood,ill
oslo,30,true,A,no
bodo,50,false,B,yes
oslo,40,true,0,yes
oslo,60,true,A,no
bodo,20,true,B,no
NA,40,false,A,yes
"""


@pytest.fixture
def patients(tmp_path):
    path = tmp_path / "patients.csv"
    path.write_text(PATIENTS)
    return path


def by_name(federation, part="train"):
    return {name: federation.client(i, part) for i, name in enumerate(federation.names)}


def check_patients(federation):
    """Against the table above, worked out by hand: mean age 40, its variance 1000/6; 4 of 6 smoke."""
    assert federation.names == ("NA", "bodo", "oslo")
    assert federation.info["classes"] == 2
    assert federation.info["labels"] == ["no", "yes"]
    rows = by_name(federation)
    age = (np.array([30, 40, 60]) - 40) / np.sqrt(1000 / 6)
    smokes = np.full(3, (1 - 2 / 3) / np.sqrt(2 / 9))
    blood = [[0, 1, 0], [1, 0, 0], [0, 1, 0]]  # 0, A, B in sorted order
    np.testing.assert_allclose(rows["oslo"]["x"], np.column_stack([age, smokes, blood]), rtol=1e-6)
    assert rows["oslo"]["y"].tolist() == [0, 1, 0]
    assert rows["bodo"]["y"].tolist() == [1, 0]
    assert rows["NA"]["y"].tolist() == [1]
    assert (federation.arrays["x"].dtype, federation.arrays["y"].dtype) == (np.float32, np.int32)


def test_a_csv_file_divided_by_its_client_column(patients):
    columns = {"label": "ill", "client": "hospital", "categorical": ["blood"], "split": None}
    check_patients(load("csv", path=str(patients), **columns))
    check_patients(load("csv", path=patients.as_posix(), features=["age", "smokes", "blood"], **columns))


def test_parquet_and_a_table_in_memory_give_the_same(patients, tmp_path):
    pytest.importorskip("pyarrow")
    frame = pandas.read_csv(patients, keep_default_na=False)
    frame.to_parquet(tmp_path / "patients.parquet")
    columns = {"label": "ill", "client": "hospital", "categorical": ["blood"], "split": None}
    check_patients(load("parquet", path=str(tmp_path / "patients.parquet"), **columns))
    check_patients(from_table(frame, **columns))


def test_without_a_client_column_a_partition_divides(patients):
    federation = load("csv", path=str(patients), label="ill", features=["age"], partition=IID(2), split=None)
    assert federation.train.count.tolist() == [3, 3]
    assert federation.names == ("0", "1")


def test_decimal_labels_are_a_regression_and_stay_as_they_are(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_text("size,rooms,price\n10,1,100.5\n20,1,250\n30,1,300\n")
    federation = load("csv", path=str(path), label="price", partition=IID(1), split=None)
    assert federation.info["classes"] is None
    assert sorted(federation.arrays["y"].tolist()) == [100.5, 250, 300]
    assert federation.info["preparation"].features == ["size"]  # rooms is constant


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(-9, 9), st.sampled_from("abc"), st.sampled_from(["p", "q", "r"])), min_size=4))
def test_every_row_goes_to_the_client_it_names(rows):
    frame = pandas.DataFrame(rows, columns=["value", "label", "who"])
    if frame["label"].nunique() < 2:
        return
    federation = from_table(
        frame.assign(row=np.arange(len(rows))), label="label", client="who", features=["row"], split=None
    )
    numbers = np.arange(len(rows))
    scaled = ((numbers - numbers.mean()) / numbers.std()).astype(np.float32)
    labels = sorted(set(frame["label"]))
    for name, arrays in by_name(federation).items():
        mine = np.flatnonzero(frame["who"] == name)
        np.testing.assert_allclose(arrays["x"][:, 0], scaled[mine], atol=1e-6)
        assert [labels[code] for code in arrays["y"]] == frame["label"][mine].tolist()


GOOD = {"label": "ill", "client": "hospital", "categorical": ["blood"]}


@pytest.mark.parametrize(
    ("change", "columns", "sentence"),
    [
        (("ill", "sick"), {}, "unknown column of {path} 'ill'"),
        (None, {"label": "il"}, "did you mean 'ill'"),
        (None, {"client": "hospitals"}, "did you mean 'hospital'"),
        (None, {"features": ["age", "weight"]}, "unknown column of {path} 'weight'"),
        (None, {"categorical": ["hospital"]}, "categorical names 'hospital': it must be one of the features"),
        (None, {"features": "age"}, "features is 'age': it must be a list of columns"),
        (None, {"features": [], "categorical": None}, "features is []: there must be at least 1"),
        (
            None,
            {"features": ["ill"], "categorical": None},
            "features is ['ill']: there must be at least 1, none of them the label",
        ),
        (None, {"client": "ill"}, "label, client and weights are 'ill', 'ill': each must be a column of its own"),
        (None, {"label": 3}, "label is 3: it must be text"),
        (("oslo,40", "oslo,"), {}, "{path}: cells are missing: 'age' in 1 of 6 rows (first row 3)"),
        (("0,yes", ",yes"), {}, "{path}: cells are missing: 'blood' in 1 of 6 rows (first row 3)"),
        (("0,yes", "0,"), {}, "{path}: the label 'ill' is missing in 1 of 6 rows (first row 3)"),
        (("oslo,40", ",40"), {}, "{path}: the client column 'hospital' is empty in 1 of 6 rows (first row 3)"),
        (("oslo,40", "oslo,forty"), {}, "column 'age' has 'forty' at row 3: it must be a number"),
        (("oslo,40", "oslo,NaN"), {}, "cells are missing: 'age' in 1 of 6 rows (first row 3)"),
        (("oslo,40", "oslo,inf"), {}, "column 'age' has infinity at row 3"),
        (("yes", "no"), {}, "the label 'ill' is 'no' in all 6 rows: there must be at least two values"),
        (("oslo,40", " oslo,40"), {}, "the client column has ' oslo' and 'oslo': spaces alone tell them apart"),
        (("age,smokes", "age,age"), {}, "{path} has two columns named 'age'"),
        (("oslo,40", "oslo,40,1,2"), {}, "{path} is not a CSV file"),
        ((PATIENTS, ""), {}, "{path} is not a CSV file"),
        ((PATIENTS.split("\n", 1)[1], ""), {}, "{path} has no rows"),
        (None, {"partition": IID(2)}, "partition is IID(clients=2): the client column divides the rows"),
        (None, {"colour": 1}, "unknown option of csv 'colour'"),
        (None, {"path": "nowhere.csv"}, "nowhere.csv is missing: path must name a file that exists"),
        (None, {"path": ""}, "path is '': it must be the name of a file"),
        (None, {"test": "official"}, "csv has no test set of its own"),
    ],
)
def test_bad_tables_get_one_sentence(patients, change, columns, sentence):
    if change:
        patients.write_text(PATIENTS.replace(*change))
    with pytest.raises(FedaxError) as raised:
        load("csv", **{"path": str(patients), **GOOD, **columns})
    assert sentence.format(path=patients) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_column_of_names_is_no_category():
    frame = pandas.DataFrame({"name": [f"person {i}" for i in range(1001)], "y": np.arange(1001) % 2})
    with pytest.raises(FedaxError, match="categorical names 'name', which has 1001 values: at most 1000"):
        from_table(frame, label="y", categorical=["name"])
    with pytest.raises(FedaxError, match="table is a list: it must be a pandas table or a Hugging Face dataset"):
        from_table([1], label="y")


@pytest.mark.parametrize("damage", [lambda raw: raw[: len(raw) // 2], lambda raw: b"", lambda raw: b"PAR1 no"])
def test_a_damaged_parquet_file_is_named(tmp_path, damage):
    pytest.importorskip("pyarrow")
    path = tmp_path / "rows.parquet"
    pandas.DataFrame({"a": [1.0, 2.0], "y": [0, 1]}).to_parquet(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FedaxError, match=r"rows.parquet is not a Parquet file: ") as raised:
        load("parquet", path=str(path), label="y")
    assert "\n" not in str(raised.value)


# NumPy archives


def test_an_archive_is_read_as_it_is(tmp_path):
    path = tmp_path / "rows.npz"
    x = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3), np.uint8)
    np.savez(path, x=x, digit=np.array([7, 9, 7, 9, 7, 7]), who=np.array(["b", "a", "b", "a", "a", "b"]))
    federation = load("numpy", path=str(path), label="digit", client="who", split=None)
    assert federation.names == ("a", "b")
    assert federation.info["labels"] == [7, 9]
    np.testing.assert_array_equal(by_name(federation)["a"]["x"], x[[1, 3, 4]])
    assert by_name(federation)["b"]["y"].tolist() == [0, 0, 0]
    assert federation.arrays["x"].dtype == np.uint8
    assert set(federation.arrays) == {"x", "y"}
    plain = load("numpy", path=str(path), label="digit", partition=IID(2), split=None)
    assert plain.train.count.tolist() == [3, 3]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"y": np.zeros(5, int)}, "all must have the same number of rows"),
        ({"x": np.float64(3)}, "all must have the same number of rows"),
        ({"x": np.full((4, 2), np.nan)}, "has NaN or infinity in x"),
        ({"y": np.array([{}] * 4)}, "is not an npz file of plain arrays"),
        ({"y": np.zeros(4, int)}, "the label is 0 in all 4 rows"),
        ({"x": np.array([["a"]] * 4)}, "it must be numeric or bool"),
        ({"client": np.zeros((4, 2), int)}, "it must be one integer or string a row"),
    ],
)
def test_bad_archives_get_one_sentence(tmp_path, changes, sentence):
    path = tmp_path / "rows.npz"
    np.savez(path, **{"x": np.ones((4, 2)), "y": np.arange(4) % 2, "client": np.arange(4), **changes})
    with pytest.raises(FedaxError, match=sentence):
        load("numpy", path=str(path), client="client")


def test_missing_arrays_and_damaged_archives_are_named(tmp_path):
    path = tmp_path / "rows.npz"
    np.savez(path, images=np.ones((4, 2)), y=np.arange(4) % 2)
    with pytest.raises(FedaxError, match=r"unknown array of .*rows.npz 'x'"):
        load("numpy", path=str(path))
    whole = path.read_bytes()
    np.save(tmp_path / "rows.npy", np.ones(3))
    for damaged in (whole[:-30], b"", b"text", whole[:60] + bytes(60) + whole[120:]):
        path.write_bytes(damaged)
        with pytest.raises(FedaxError, match=r"rows.npz is not an npz file of plain arrays"):
            load("numpy", path=str(path), features="images")
    with pytest.raises(FedaxError, match=r"rows.npy is not an npz file of plain arrays"):
        load("numpy", path=str(tmp_path / "rows.npy"))


# LibSVM text


@pytest.mark.parametrize("zipped", [False, True])
def test_any_libsvm_file(tmp_path, zipped):
    path = tmp_path / "rows"
    text = b"3 1:0.5 4:-2\n-1 2:1e3\n7 1:1 # a remark\n3 3:1\n"
    path.write_bytes(gzip.compress(text) if zipped else text)
    federation = load("libsvm", path=str(path), features=5, partition=IID(1), split=None)
    order = np.argsort(federation.arrays["x"] @ [1, 1e-4, 1e-2, 1, 1])
    np.testing.assert_array_equal(
        federation.arrays["x"][order], [[0.5, 0, 0, -2, 0], [0, 0, 1, 0, 0], [0, 1000, 0, 0, 0], [1, 0, 0, 0, 0]]
    )
    assert federation.arrays["y"][order].tolist() == [1, 1, 0, 2]
    assert federation.info["labels"] == [-1, 3, 7]
    assert load("libsvm", path=str(path), partition=IID(1)).arrays["x"].shape == (4, 4)
    with pytest.raises(FedaxError, match="is not LibSVM text with 3 features"):
        load("libsvm", path=str(path), features=3)
    with pytest.raises(FedaxError, match="features is 0: it must be an integer of at least 1"):
        load("libsvm", path=str(path), features=0)


def test_decimal_libsvm_labels_are_a_regression(tmp_path):
    (tmp_path / "rows").write_text("0.5 1:1\n2 1:3\n")
    federation = load("libsvm", path=str(tmp_path / "rows"), partition=IID(1), split=None)
    assert federation.info["classes"] is None
    assert sorted(federation.arrays["y"].tolist()) == [0.5, 2]
    (tmp_path / "rows").write_text("1 1:nan\n2 1:3\n")
    with pytest.raises(FedaxError, match="rows has NaN or infinity"):
        load("libsvm", path=str(tmp_path / "rows"))


# Hugging Face


def test_hugging_face_datasets(patients, tmp_path):
    hub, arrow = pytest.importorskip("datasets"), pytest.importorskip("pyarrow")
    columns = {"label": "ill", "client": "hospital", "categorical": ["blood"], "split": None}
    rows = pandas.read_csv(patients, keep_default_na=False).to_dict("list")
    stored = hub.Dataset(arrow.table(rows), fingerprint="patients")
    check_patients(from_table(stored, **columns))
    stored.save_to_disk(tmp_path / "saved")
    check_patients(load("huggingface", path=str(tmp_path / "saved"), **columns))
    with pytest.raises(FedaxError, match="is not a saved Hugging Face dataset"):
        load("huggingface", path=str(tmp_path), label="label")


def test_hugging_face_arrays_stay_as_they_are():
    hub, arrow = pytest.importorskip("datasets"), pytest.importorskip("pyarrow")
    x = np.arange(4 * 3, dtype=np.uint8).reshape(4, 3)
    features = hub.Features({"pixels": hub.Sequence(hub.Value("uint8")), "label": hub.Value("int64")})
    table = arrow.table({"pixels": x.tolist(), "label": [4, 5, 5, 4]}, schema=features.arrow_schema)
    pictures = hub.Dataset(table, info=hub.DatasetInfo(features=features), fingerprint="pictures")
    federation = from_table(pictures, label="label", partition=IID(1), split=None)
    order = np.argsort(federation.arrays["x"][:, 0])
    np.testing.assert_array_equal(federation.arrays["x"][order], x)
    assert federation.arrays["x"].dtype == np.uint8
    assert federation.arrays["y"][order].tolist() == [0, 1, 1, 0]
    with pytest.raises(FedaxError, match="pixels holds arrays, so it must be the only one"):
        from_table(pictures, label="label", features=["pixels", "label"])


def test_without_the_package_it_is_named(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(FedaxError, match=r"pip install 'fedax\[huggingface\]'"):
        load("huggingface", path=str(tmp_path), label="label")


# Experiments


def experiment(**data):
    return {"rounds": 1, "data": data, "model": {"name": "logistic"}, "algorithm": {"name": "FedAvg", "lr": 0.1}}


def test_an_experiment_on_a_table(patients, tmp_path, capsys):
    table = {"name": "csv", "path": str(patients), **GOOD, "split": [1.0, 0.0, 0.0]}
    made = parse(experiment(**table))
    assert made.data.partition is None
    problem, federation = prepare(made)
    check_patients(federation)
    assert problem.model.outputs == 2
    path = tmp_path / "experiment.toml"
    path.write_text(
        f"""rounds = 2
eval_on = ["train"]
data = {{ name = "csv", path = "{patients}", label = "ill", client = "hospital", categorical = ["blood"] }}
model.name = "logistic"
algorithm = {{ name = "FedAvg", lr = 0.1 }}
"""
    )
    assert invoke(["run", str(path), "--out", str(tmp_path / "run"), "--quiet"]) == 0
    resolved = json.loads((tmp_path / "run" / "experiment.json").read_text())
    assert resolved["data"]["client"] == "hospital"
    capsys.readouterr()
    assert invoke(["run", str(path), "--out", str(tmp_path / "other"), "--set", "data.label=age2"]) == 2
    assert "unknown column" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"name": "csv", "path": "a.csv"}, "csv needs label"),
        ({"name": "csv", "label": "y"}, "csv needs path"),
        ({"name": "iris", "path": "a.csv"}, "unknown field of [data] 'path'"),
        ({"name": "iris", "test": "official"}, "test must be left out: iris has no test set of its own"),
        (
            {"name": "csv", "path": "a", "label": "y", "client": "c", "partition": {"name": "IID", "clients": 2}},
            "partition must be left out: the client column 'c' divides the rows",
        ),
        ({"name": "lasso", "preset": "thesis-I", "test": "official"}, "test must be left out: lasso comes divided"),
    ],
)
def test_bad_data_tables_are_refused_when_read(data, sentence):
    with pytest.raises(FedaxError) as raised:
        parse(experiment(**data))
    assert sentence in str(raised.value)


def test_defaults_of_the_data_table():
    plain = parse(experiment(name="mnist")).data
    assert (plain.split, plain.test, plain.partition.name) == ([0.7, 0.1, 0.2], None, "IID")
    official = parse(experiment(name="mnist", test="official")).data
    assert (official.split, official.test) == ([1.0, 0.0], "official")
    assert parse(experiment(name="emnist", subset="letters")).data.subset == "letters"
    assert parse(experiment(name="emnist")).data.subset == "balanced"


def test_images_are_scaled_on_their_way_into_the_model(monkeypatch):
    """The wrapped linear model with unit weights gives the sum of (x / 255 - mean) / std."""
    import jax
    import jax.numpy as jnp

    from fedax.models import Normalised, model

    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (4, 5, 5, 3), np.uint8)
    mean, std = (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)
    scaled = Normalised(model("linear", outputs=1, use_bias=False), mean, std)
    params = jax.tree.map(jnp.ones_like, scaled.init(jax.random.key(0), x))
    expected = ((x / 255 - np.array(mean)) / np.array(std)).sum(axis=(1, 2, 3))
    np.testing.assert_allclose(scaled.apply(params, x)[:, 0], expected, rtol=1e-5, atol=1e-4)
    plain = model("linear", outputs=1, use_bias=False)
    assert jax.tree.structure(plain.init(jax.random.key(0), x)) == jax.tree.structure(params)


def test_an_experiment_on_cifar_takes_the_published_scale(tmp_path, monkeypatch):
    from fedax.data import DATASETS
    from fedax.models import Normalised

    rng = np.random.default_rng(0)
    rows = {"x": rng.integers(0, 256, (40, 32, 32, 3), np.uint8), "y": (np.arange(40) % 10).astype(np.int32)}
    from dataclasses import replace

    monkeypatch.setitem(DATASETS, "cifar10", replace(DATASETS["cifar10"], read=lambda: dict(rows), files=()))
    problem, federation = prepare(parse(experiment(name="cifar10", partition={"name": "IID", "clients": 2})))
    assert isinstance(problem.model, Normalised)
    assert problem.model.mean == (0.491, 0.482, 0.447)
    assert problem.model.outputs == federation.info["classes"] == 10
