"""Preparing a table's columns: kinds, missing values, categories, dates; from training rows alone, as sums."""

from __future__ import annotations

import json

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedax.cli import invoke
from fedax.data import IID, from_table, load
from fedax.data.partitions.registry import FeatureShift
from fedax.data.tables.fitting import answer, asker, fit
from fedax.data.tables.kinds import recognise, recognised, remarks
from fedax.data.tables.preparation import Preparation
from fedax.data.tables.table import check
from fedax.errors import FedaxError


def patients(rows=200, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.normal(60, 12, rows).round(1)
    frame = pandas.DataFrame(
        {
            "patient_id": [f"P{i:05d}" for i in rng.permutation(rows)],
            "age": np.where(rng.random(rows) < 0.1, np.nan, age),
            "crp": rng.lognormal(1, 1, rows),
            "blood": rng.choice(["A", "B", "0", None], rows, p=[0.5, 0.3, 0.15, 0.05]),
            "smokes": rng.random(rows) < 0.3,
            "admitted": pandas.date_range("2024-01-01", periods=rows).strftime("%Y-%m-%d"),
            "ward": "north",
            "note": [f"seen on day {i}, came back with cough {i % 7}" for i in range(rows)],
            "hospital": rng.choice(["oslo", "bodo", "bergen"], rows),
            "ill": np.where(rng.random(rows) < 0.3, "yes", "no"),
        }
    )
    return frame


GOOD = {"label": "ill", "client": "hospital"}

# Kinds


def test_kinds_of_columns():
    kinds = {column.name: column.kind for column in recognised(patients())}
    assert kinds == {
        "patient_id": "id",
        "age": "number",
        "crp": "number",
        "blood": "category",
        "smokes": "boolean",
        "admitted": "date",
        "ward": "constant",
        "note": "text",
        "hospital": "category",
        "ill": "boolean",
    }


@pytest.mark.parametrize(
    ("name", "cells", "kind"),
    [
        ("age", ["30", "NA", "41.5", "?"], "number"),
        ("flag", [True, None, False], "boolean"),
        ("flag", ["true", "FALSE", ""], "boolean"),
        ("flag", ["Yes", "no", "-", "YES"], "boolean"),
        ("day", ["01.02.2024", "15.02.2024", "x"], "date"),
        ("day", ["3/25/2024", "3/2/2024"], "date"),
        ("count", list(range(30)), "id"),  # they count the rows
        ("count", [v * 3 for v in range(30)], "number"),
        ("case_id", [5, 900, 17], "id"),
        ("paid", [5, 900, 17], "number"),
        ("empty", [None, None], "constant"),
        ("same", [3.0, 3.0], "constant"),
        ("code", ["a", "b", "a"], "category"),
    ],
)
def test_kinds_of_cells(name, cells, kind):
    assert recognise(name, pandas.Series(cells)).kind == kind


def test_what_is_left_out_is_said(caplog):
    made = from_table(patients(), **GOOD, missing="fill")
    said = " ".join(caplog.messages)
    for word in ("'patient_id' (it tells rows apart)", "'note' (free text)", "'ward' (it does not vary)", "'admitted'"):
        assert word in said
    assert made.info["preparation"].features == ["age", "crp", "blood = 0", "blood = A", "blood = B", "smokes"]
    assert set(made.info["preparation"].left_out) == {"patient_id", "note", "ward", "admitted"}


# As scikit-learn does it, from training rows


def test_as_scikit_learn_on_the_training_rows():
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import StandardScaler

    frame = patients(301)
    made = from_table(frame, **GOOD, features=["age", "crp", "smokes", "blood"], missing="fill")
    train = np.concatenate([made.client(i)["x"] for i in range(made.clients)])
    np.testing.assert_allclose(train[:, :2].mean(0), 0, atol=1e-6)  # so the test rows have no part in it
    np.testing.assert_allclose(train[:, :2].std(0), 1, atol=1e-5)
    assert abs(made.arrays["x"][:, 1].mean()) > 1e-4
    preparation = made.info["preparation"]
    numeric = ["age", "crp"]
    raw = frame[numeric].to_numpy()
    # the training rows' own raw values, found again by their crp
    crp = (train[:, 1].astype(float) * preparation.columns[1]["scale"]) + preparation.columns[1]["mean"]
    rows = np.abs(raw[:, 1][:, None] - crp).argmin(0)
    imputer = SimpleImputer(strategy="median").fit(raw[rows])
    scaler = StandardScaler().fit(imputer.transform(raw[rows]))
    wanted = scaler.transform(imputer.transform(raw))
    np.testing.assert_allclose(preparation.transform(frame)[:, :2], wanted, atol=1e-5)


numbers = st.floats(-1e6, 1e6, allow_nan=False)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.one_of(numbers, st.just(float("nan"))), min_size=1, max_size=9), min_size=1, max_size=5))
def test_medians_means_and_scales_are_those_of_all_rows_together(places):
    whole = np.concatenate([np.asarray(place, float) for place in places])
    column = {"name": "v", "kind": "number", "by": "median", "flag": False}
    found = fit([column], asker({"v": np.asarray(place, float)} for place in places))[0]
    if np.isnan(whole).all():
        assert found["fill"] == 0
        return
    assert found["fill"] == np.nanmedian(whole)
    filled = np.where(np.isnan(whole), found["fill"], whole)
    np.testing.assert_allclose(found["mean"], filled.mean(), rtol=1e-9, atol=1e-9)
    if filled.std() > 1e-6:
        np.testing.assert_allclose(found["scale"], filled.std(), rtol=1e-6)


def test_a_place_sends_counts_and_sums_alone():
    """What a place says has a size that does not depend on its rows."""
    column = {"name": "v", "kind": "number", "by": "median", "flag": False}
    said: dict[int, list] = {}
    for rows in (10, 1000):
        cells = {"v": np.random.default_rng(0).normal(size=rows)}

        def ask(question, cells=cells, rows=rows):
            answered = answer(question, cells)
            said.setdefault(rows, []).extend(np.shape(value) for value in answered.values())
            return answered

        fit([column], ask)
    assert len(said[10]) == len(said[1000]) == 10
    assert {shape[-1] for shape in said[1000]} <= {2, 3, 256}


# Missing values, categories, dates


def test_missing_values_stop_unless_they_are_filled():
    with pytest.raises(FedaxError, match=r"cells are missing: 'age' in \d+ of 200 rows .*'blood' .*missing = \"fill\""):
        from_table(patients(), **GOOD)
    flagged = from_table(patients(), **GOOD, missing="flag").info["preparation"].features
    assert [name for name in flagged if name.endswith("missing")] == ["age missing", "blood missing"]
    chosen = from_table(patients(), **GOOD, missing={"age": "flag", "*": "fill"}).info["preparation"].features
    assert [name for name in chosen if name.endswith("missing")] == ["age missing"]
    frame = patients()
    filled = from_table(frame, **GOOD, missing="fill", split=None).info["preparation"]
    assert {c["name"]: c["fill"] for c in filled.columns if c["name"] in ("age", "blood")} == {
        "age": frame["age"].median(),
        "blood": "A",
    }


def test_categories_unseen_in_training_go_to_other():
    rng = np.random.default_rng(0)
    town = [f"t{i:02d}" for i in range(60) for _ in range(20)] + ["rare"] * 3
    frame = pandas.DataFrame({"town": town, "v": rng.normal(size=len(town)), "y": rng.integers(0, 2, len(town))})
    made = from_table(frame, label="y", partition=IID(2), split=None).info["preparation"]
    assert made.features[-2:] == ["town = other", "v"]
    assert len(made.columns[0]["values"]) == 50
    new = made.transform(pandas.DataFrame({"town": ["rare", "atlantis", "t00"], "v": [0.0] * 3}))
    assert new[:, made.features.index("town = other")].tolist() == [1, 1, 0]
    assert (new[:, :51].sum(1) == 1).all()


def test_dates_become_days_on_request():
    frame = patients()
    made = from_table(frame, **GOOD, missing="fill", dates=["admitted"], split=None).info["preparation"]
    at = made.features.index("admitted")
    days = made.transform(frame)[:, at]
    np.testing.assert_allclose(days, (np.arange(200) - 99.5) / np.arange(200).std(), rtol=1e-4)
    with pytest.raises(FedaxError, match=r"'31.12.24' at row 1: it must be a date such as 2024-12-31"):
        made.transform(frame.head(2).assign(admitted=["31.12.24", "2024-01-01"]))
    assert "admitted" in from_table(frame, **GOOD, missing="fill", dates="numbers").info["preparation"].features


def test_the_preparation_is_saved_and_read_back():
    frame = patients()
    made = from_table(frame, **GOOD, missing="flag", dates="numbers").info["preparation"]
    again = Preparation.from_json(json.loads(json.dumps(made.as_json())))
    np.testing.assert_array_equal(again.transform(frame), made.transform(frame))
    assert (again.features, again.labels, again.clients) == (made.features, ("no", "yes"), ("bergen", "bodo", "oslo"))


def test_a_site_makes_its_own_arrays_by_a_shared_preparation():
    """As a client over a network does: the preparation comes as JSON, the rows never leave."""
    frame = patients()
    made = from_table(frame, **GOOD, missing="fill", split=None)
    sent = Preparation.from_json(json.loads(json.dumps(made.info["preparation"].as_json())))
    for i, name in enumerate(made.names):
        own = sent.arrays(frame[frame["hospital"] == name])
        np.testing.assert_allclose(np.sort(own["x"], axis=0), np.sort(made.client(i)["x"], axis=0), rtol=1e-6)
        assert own["y"].sum() == made.client(i)["y"].sum()
    with pytest.raises(FedaxError, match=r"the label 'ill' has 'perhaps' at row 1: it must be one of no, yes \(3 of 3"):
        sent.arrays(frame.head(3).assign(ill="perhaps"))


def test_a_partition_that_changes_features_still_does():
    frame = patients()[["crp", "age", "ill"]].dropna()
    plain = from_table(frame, label="ill", partition=IID(2), split=None)
    noisy = from_table(frame, label="ill", partition=FeatureShift(2, noise=1.0), split=None)
    assert plain.arrays["x"].shape == noisy.arrays["x"].shape
    assert np.abs(noisy.client(1)["x"]).std() > np.abs(noisy.client(0)["x"]).std()


# Labels


def test_missing_numbers_never_make_classes_of_a_regression(tmp_path, caplog):
    rng = np.random.default_rng(0)
    for gap in ("NA", "nan", ""):
        price = [f"{v:.2f}" for v in rng.normal(size=40)]
        price[7] = gap
        frame = pandas.DataFrame({"v": rng.normal(size=40), "price": price})
        frame.to_csv(tmp_path / "prices.csv", index=False)
        table = {"path": str(tmp_path / "prices.csv"), "label": "price", "partition": IID(2)}
        with pytest.raises(FedaxError, match=r"the label 'price' is missing in 1 of 40 rows \(first row 8\)"):
            load("csv", **table)
        made = load("csv", **table, missing="fill")
        assert made.info["classes"] is None
        assert made.rows == 39
        assert "1 rows without the label 'price' are left out" in caplog.text


def test_whole_numbers_with_gaps_ask_for_the_task():
    frame = pandas.DataFrame({"v": np.arange(60) * 0.5, "days": np.arange(60) % 30})
    with pytest.raises(FedaxError, match='more than 20 different whole numbers: task = "regression"'):
        from_table(frame, label="days", partition=IID(2))
    assert from_table(frame, label="days", partition=IID(2), task="regression").info["classes"] is None
    assert from_table(frame, label="days", partition=IID(2), task="classification").info["classes"] == 30
    gaps = frame.assign(days=np.where(np.arange(60) == 3, np.nan, np.arange(60) % 2))
    assert from_table(gaps, label="days", partition=IID(2), missing="fill").info["classes"] == 2
    # without the row, pandas still has 0.0 and 1.0
    assert from_table(gaps.dropna(), label="days", partition=IID(2)).info["classes"] == 2


@pytest.mark.parametrize(
    ("label", "outcome"),
    [
        (["NA", "yes", "no"] * 20, ("no", "yes")),  # a class called NA would be a slip
        (["NA", "True", "False"] * 20, (False, True)),
        (["none", "mild", "severe"] * 20, ("mild", "none", "severe")),
        (["high", *map(str, range(59))], "the label 'y' has 'high' at row 1: it must be a number"),
        ([f"case {i}" for i in range(60)], "the label 'y' has 60 values in 60 rows: classes must repeat"),
        ([np.inf] + [0.0, 1.0] * 29 + [0.0], "the label 'y' has infinity at row 1"),
        (["NA"] * 60, "the label 'y' is missing in all 60 rows"),
    ],
)
def test_words_and_slips_among_labels(label, outcome):
    frame = pandas.DataFrame({"v": np.arange(60) * 0.5, "y": label})
    table = {"label": "y", "partition": IID(2), "missing": "fill"}
    if isinstance(outcome, str):
        with pytest.raises(FedaxError, match=outcome):
            from_table(frame, **table)
    else:
        assert from_table(frame, **table).info["preparation"].labels == outcome


# Bad input: all at once, one sentence each


def test_slips_that_hide_a_column_are_named():
    """Neither a year typed twice nor a cell of another scale may make all other cells of its column the same."""
    frame = patients().assign(sodium=np.where(np.arange(200) == 3, 1e10, 140.0 + np.arange(200) % 7))
    with pytest.raises(FedaxError, match=r"column 'sodium' has the absurd value 1e\+10 at row 4"):
        from_table(frame, **GOOD, missing="fill")
    made = from_table(patients(), **GOOD, missing="fill").info["preparation"]
    with pytest.raises(FedaxError, match=r"column 'age' has the absurd value 1e\+17 at row 1"):
        made.transform(patients(1).assign(age=1e17))  # one row: what is usual is known from training
    codes = frame.assign(sodium=140.0, ward_number=np.where(np.arange(200) == 1, np.inf, np.arange(200) % 3))
    with pytest.raises(FedaxError, match="column 'ward_number' has infinity at row 2"):
        from_table(codes, **GOOD, missing="fill", categorical=["ward_number"])
    mixed = frame.assign(sodium=140.0, seen=["2024-01-01", "02.01.2024"] * 100)
    with pytest.raises(FedaxError, match=r"column 'seen' has '02.01.2024' at row 2: it must be a date"):
        from_table(mixed, **GOOD, missing="fill", dates=["seen"])


def test_what_looks_missing_among_words_is_said(caplog):
    frame = patients().assign(unit=["A", "?", "B", "C"] * 50, smokes=["true", "NA", "false", ""] * 50)
    made = from_table(frame, **GOOD, missing="fill").info["preparation"]
    assert "column 'unit' has '?' in 50 cells: among words only an empty cell is missing" in caplog.text
    assert "smokes" in made.features  # true, false and missing cells


def test_all_problems_of_a_file_are_told_at_once(tmp_path):
    frame = patients().astype({"age": object, "crp": object})
    frame.loc[3, "age"], frame.loc[5, "crp"] = "old", 1e160
    frame.loc[9, "hospital"], frame.loc[11, "ill"] = None, None
    frame.to_csv(tmp_path / "patients.csv", index=False)
    with pytest.raises(FedaxError) as raised:
        load("csv", path=str(tmp_path / "patients.csv"), **GOOD)
    said = str(raised.value)
    assert "has 5 problems: (1)" in said
    assert "\n" not in said
    for sentence in (
        "column 'age' has 'old' at row 4: it must be a number, as the others are (1 of 200 cells are none)",
        "column 'crp' has the absurd value 1e+160 at row 6",
        "the client column 'hospital' is empty in 1 of 200 rows (first row 10)",
        "the label 'ill' is missing in 1 of 200 rows (first row 12)",
        "cells are missing: 'age' in ",
    ):
        assert sentence in said


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"missing": "median"}, "missing is 'median': it must be 'error', 'fill', 'flag'"),
        ({"missing": {"age": "mean"}}, "missing.age: unknown way to fill 'mean'"),
        ({"missing": {"agee": "fill"}}, "unknown column of the table 'agee': did you mean 'age'"),
        ({"drop": ["ill"]}, "drop names 'ill', which is needed"),
        ({"drop": ["wards"]}, "did you mean 'ward'"),
        ({"dates": ["age"]}, "dates names 'age', which is a column of kind number"),
        ({"features": ["note"]}, "features names 'note', which is text: name it in categorical"),
        ({"weights": "wheight"}, "unknown column of the table 'wheight'"),
        ({"weights": "balance"}, "the weights in column 'balance' are below 0 in 200 of 200 rows"),
        ({"task": "regression"}, "task is 'regression': the label 'ill' has words such as"),
        ({"task": "ranking"}, "unknown task 'ranking'"),
        ({"features": ["ward"]}, "no column is left to learn from"),
    ],
)
def test_bad_choices_get_one_sentence(columns, sentence):
    frame = patients().assign(balance=-1.0) if "balance" in columns.values() else patients()
    with pytest.raises(FedaxError) as raised:
        from_table(frame, **{**GOOD, "missing": "fill", **columns})
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_all_labels_missing_and_one_class_alone(caplog):
    with pytest.raises(FedaxError, match="the label 'ill' is missing in all 200 rows"):
        from_table(patients().assign(ill=None), **GOOD, missing="fill")
    frame = patients()
    frame.loc[frame["hospital"] == "bodo", "ill"] = "no"
    from_table(frame, **GOOD, missing="fill")
    assert "1 of 3 clients have rows of one class alone: bodo" in caplog.text


def test_bad_tables_at_prediction():
    made = from_table(patients(), **GOOD, missing="fill").info["preparation"]
    new = patients(5, seed=1)
    assert made.transform(new.drop(columns=["ill", "hospital", "note"])).shape == (5, 6)
    with pytest.raises(FedaxError, match="the table has no rows"):
        made.transform(new.head(0))
    broken = new.drop(columns=["crp"]).assign(age=["young", *new["age"][1:]], smokes="perhaps")
    with pytest.raises(FedaxError) as raised:
        made.transform(broken)
    for sentence in (
        "column 'crp' is missing from the table",
        "column 'age' has 'young' at row 1: it must be a number",
    ):
        assert sentence in str(raised.value)
    assert "column 'smokes' has 'perhaps' at row 1: it must be true or false" in str(raised.value)
    frame = patients()
    words = from_table(frame[frame["blood"] != "0"], **GOOD, missing="fill").info["preparation"]
    with pytest.raises(FedaxError, match="column 'blood' has '3' at row 1: it must be a word, as in training"):
        words.transform(new.assign(blood=3))
    strict = from_table(patients().dropna(), **GOOD).info["preparation"]
    with pytest.raises(FedaxError, match="cells are missing: column 'crp' in 4 of 4 rows"):
        strict.transform(new.dropna(subset=["blood", "age"]).assign(crp=np.nan).head(5))


# Weights


def test_weights_are_one_on_average_over_training_rows():
    frame = patients()
    balanced = from_table(frame, **GOOD, missing="fill", weights="balanced")
    y, w = (np.concatenate([balanced.client(i)[key] for i in range(3)]) for key in ("y", "weight"))
    np.testing.assert_allclose(w[y == 0].sum(), w[y == 1].sum(), rtol=1e-5)
    np.testing.assert_allclose(w.mean(), 1, rtol=1e-5)
    given = from_table(frame.assign(w=np.arange(200)), **GOOD, missing="fill", weights="w", split=None)
    assert "w" not in given.info["preparation"].features
    np.testing.assert_allclose(np.sort(given.arrays["weight"]), np.arange(200) / 99.5, rtol=1e-5)


def test_other_separators_are_named(tmp_path):
    patients(20).to_csv(tmp_path / "patients.csv", index=False, sep=";")
    with pytest.raises(FedaxError, match=r"has semicolons between its columns: .* sep=';', decimal=','"):
        load("csv", path=str(tmp_path / "patients.csv"), **GOOD)
    patients(20).assign(note="sjøsyk").to_csv(tmp_path / "latin.csv", index=False, encoding="latin-1")
    with pytest.raises(FedaxError, match=r"latin\.csv is not in UTF-8: save it in that encoding"):
        load("csv", path=str(tmp_path / "latin.csv"), **GOOD)


@pytest.mark.parametrize(
    ("cell", "remark"),
    [
        ("{i}%", "words such as '1%' that look like numbers"),
        ("{i},5", "words such as '1,5' that look like numbers"),
        ("${i},200.00", "look like numbers"),
        ("{i} kg", "look like numbers"),
        ("{i:02}/06/2024", "is read as day/month/year: '01/06/2024' is 2024-06-01"),
        ("06/{j}/2024", None),
        ("{i}+", None),
        ("{i}A", None),
    ],
)
def test_what_looks_like_something_else_is_said(cell, remark):
    column = pandas.Series([cell.format(i=i, j=i + 12) for i in range(1, 13)] * 3)
    found = " ".join(remarks(recognise("dose", column), column))
    assert remark in found if remark else not found


# Many columns


def test_a_wide_table():
    rng = np.random.default_rng(0)
    wide = pandas.DataFrame(rng.integers(0, 9, (2000, 10_000)).astype(np.int8), copy=False)
    wide.columns = [f"c{i}" for i in range(10_000)]
    table = check(wide, "wide", label="c0")
    assert len(table.columns) == 9999


# The command line


def test_data_info_shows_columns_before_a_run(tmp_path, capsys):
    path = tmp_path / "patients.csv"
    frame = patients().astype({"crp": object})
    frame.loc[5, "crp"], frame.loc[7, "blood"] = "high", "?"
    frame.to_csv(path, index=False)
    assert invoke(["data", "info", str(path)]) == 0
    shown = capsys.readouterr().out
    for words in ("200 rows, 10 columns", "patient_id", "left out", "free text", "category", "date"):
        assert words in shown
    assert "column 'crp' has 'high' at row 6" in shown
    assert "column 'blood' has '?' in 1 cells: among words only an empty cell is missing" in shown
    assert 'missing = "fill" fills them in' in shown
    assert invoke(["data", "info", str(tmp_path / "nowhere.csv")]) == 2
