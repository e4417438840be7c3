"""examples/patients: from a table of twelve hospitals to predictions, as its README tells it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pandas
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import fedax
from fedax.experiments import read
from fedax.experiments.building import config_of, prepare

EXAMPLE = Path(__file__).parent.parent / "examples" / "patients"


def module(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def patients(tmp_path_factory):
    folder = tmp_path_factory.mktemp("patients")
    module("make").write(folder)
    return folder


def test_the_table_is_as_promised(patients):
    frame = pandas.read_csv(patients / "patients.csv")
    assert len(frame) == 20_000
    assert frame["hospital"].nunique() == 12
    assert 0.06 < (frame["readmitted"] == "yes").mean() < 0.08
    assert frame["albumin"].isna().mean() > 0.25
    new = pandas.read_csv(patients / "new.csv")
    assert "readmitted" not in new
    assert len(new) == len(pandas.read_csv(patients / "truth.csv"))


def test_the_sparse_model_ranks_as_scikit_learns_on_pooled_rows(patients, monkeypatch):
    monkeypatch.chdir(patients)
    asked = read(EXAMPLE / "sparse.toml")
    problem, federation = prepare(asked)
    options = vars(config_of(asked, 0)) | {"eval_every": asked.rounds}
    result = fedax.simulate(problem, federation, asked.algorithm[0].build(), **options)
    new, truth = pandas.read_csv("new.csv"), pandas.read_csv("truth.csv")["readmitted"] == "yes"
    found = roc_auc_score(truth, result.predict_proba(new)[:, 1])
    rows = [federation.client(i) for i in range(federation.clients)]
    x, y = (np.concatenate([row[key] for row in rows]) for key in ("x", "y"))
    l1 = LogisticRegression(C=1 / (0.002 * len(x)), solver="saga", l1_ratio=1, max_iter=2000, random_state=0).fit(x, y)
    pooled = roc_auc_score(truth, l1.predict_proba(federation.info["preparation"].transform(new))[:, 1])
    assert abs(found - pooled) < 0.005
    table = result.coefficients()
    names = set(table["feature"][~table["zero"]])
    assert {"age", "stay_days", "earlier_stays", "crp", "creatinine", "haemoglobin", "diabetes"} <= names
    assert table["zero"].sum() > 10
    per_year = table.set_index("feature")["coefficient"]["age"]  # the truth is 0.03 for each year
    assert 0.02 < per_year < 0.04


def test_the_whole_story_in_small(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # the story changes the directory, and this changes it back
    module("story").main(tmp_path / "story", 1500)
    said = capsys.readouterr().out
    assert "AUC on new patients: sparse model 0." in said
    assert "Majority class" in said
    story = tmp_path / "story"
    assert list(pandas.read_csv(story / "predictions.csv"))[:2] == ["patient_id", "prediction"]
    assert (story / "model" / "predict.py").is_file()
    page = (story / "runs" / "personal" / "report.html").read_text()
    for words in (
        "What was learnt",
        "How good the models are",
        "AUC client by client",
        "Calibration",
        "Majority class",
    ):
        assert words in page
