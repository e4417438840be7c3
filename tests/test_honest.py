"""Honest evaluation: what a model must beat, where accuracy misleads, and what a linear model has learnt."""

from __future__ import annotations

import json

import numpy as np
import pandas
import pytest

import fedax
from fedax.cli import invoke
from fedax.cli.results import show_protocol
from fedax.errors import FedaxError
from fedax.evaluation.constant import constant_predictor
from fedax.experiments import parse


def federation(seed=0, **options):
    rng = np.random.default_rng(seed)
    frame = pandas.DataFrame({"age": rng.normal(60, 10, 400), "blood": rng.choice(["A", "B"], 400)})
    risk = 0.2 * (frame["age"] - 60) + (frame["blood"] == "A") - 3
    frame["ill"] = np.where(rng.random(400) < 1 / (1 + np.exp(-risk)), "yes", "no")
    frame["hospital"] = np.arange(400) % 4
    return fedax.data.from_table(frame, label="ill", client="hospital", **options)


def problem(**options):
    return fedax.Problem(fedax.models.model("logistic", outputs=1), loss="logistic", **options)


def test_the_constant_predictor_knows_the_shares_alone():
    made = federation()
    found = constant_predictor(problem(metrics=["auc", "average_precision"]), made, ["test"], personal=True)
    y = np.concatenate([made.client(i, "test")["y"] for i in range(4)])
    train = np.concatenate([made.client(i)["y"] for i in range(4)])
    values = found["values"]
    assert found["name"] == "Majority class"
    assert values["test_accuracy"] == pytest.approx(1 - y.mean())
    assert values["test_auc"] == 0.5
    assert values["test_average_precision"] == pytest.approx(y.mean())
    p = (train.sum() + 1) / (len(train) + 2)
    assert values["test_loss"] == pytest.approx(-np.mean(np.where(y, np.log(p), np.log(1 - p))), rel=1e-5)
    assert "personal_test_auc" in values


def test_of_numbers_it_is_the_mean():
    clients = [{"x": np.zeros((3, 1)), "y": np.array([1.0, 2.0, 6.0])}]
    squared = fedax.Problem(fedax.models.model("linear", outputs=1), loss="squared", metrics=["r2", "rmse"])
    values = constant_predictor(squared, fedax.Federation.from_clients(clients), ["train"])["values"]
    assert values["train_r2"] == pytest.approx(0, abs=1e-6)
    assert values["train_rmse"] == pytest.approx(np.std([1, 2, 6]))


EXPERIMENT = """rounds = 3
data = {{ name = "csv", path = "{path}", label = "ill", client = "hospital" }}
model = {{ name = "logistic", outputs = 1 }}
problem = {{ loss = "logistic", metrics = {metrics} }}
algorithm = {{ name = "FedAvg", lr = 0.5 }}
"""


@pytest.mark.parametrize("metrics", ["[]", '["auc"]'])
def test_it_stands_beside_every_method_and_accuracy_alone_is_warned_of(tmp_path, capsys, metrics):
    rng = np.random.default_rng(0)
    rare = np.where(np.arange(200) % 12 == 0, "yes", "no")
    table = {"age": rng.normal(60, 9, 200), "hospital": np.arange(200) % 5 % 3, "ill": rare}
    pandas.DataFrame(table).to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "e.toml").write_text(EXPERIMENT.format(path=tmp_path / "t.csv", metrics=metrics))
    assert invoke(["run", str(tmp_path / "e.toml"), "--out", str(tmp_path / "run"), "--quiet"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Majority class" in said
    assert "Majority class</th>" in page
    warned = "92% of the rows are of one class"
    assert (warned in said) == (warned in page) == (metrics == "[]")
    assert "AUC client by client" in page
    kept = json.loads((tmp_path / "run" / "assessment.json").read_text())["quality"]
    assert np.sum(kept["shared"]["confusion"]) == kept["rows"]
    assert len(kept["shared"]["calibration"]) == 10


def test_auc_client_by_client_needs_both_classes(tmp_path):
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"v": rng.normal(size=300), "who": np.repeat(["a", "b", "c"], 100)})
    frame["y"] = np.where((frame["v"] + rng.normal(size=300) > 0) & (frame["who"] != "c"), "yes", "no")
    made = fedax.data.from_table(frame, label="y", client="who")
    result = fedax.simulate(problem(), made, fedax.FedAvg(lr=0.5), rounds=3)
    result.save(tmp_path / "run")
    kept = json.loads((tmp_path / "run" / "assessment.json").read_text())["quality"]["shared"]
    assert kept["auc_by_client"]["c"] is None
    assert kept["auc_by_client"]["a"] > 0.6
    page = (tmp_path / "run" / "report.html").read_text()
    assert "over 2 of 3 clients; the others have rows of one class alone" in page


def test_regressions_have_residuals(tmp_path):
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"v": rng.normal(size=200)}).assign(y=lambda f: 3 * f["v"] + rng.normal(size=200))
    made = fedax.data.from_table(frame, label="y", partition=fedax.data.IID(2))
    squared = fedax.Problem(fedax.models.model("linear", outputs=1), loss="squared")
    fedax.simulate(squared, made, fedax.FedAvg(lr=0.5), rounds=20).save(tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Residuals against predictions" in page
    assert ">Mean</th>" in page
    kept = json.loads((tmp_path / "run" / "assessment.json").read_text())["quality"]["shared"]
    assert kept["r2"] > 0.8
    assert kept["rmse"] == pytest.approx(1, abs=0.3)


def test_coefficients_are_those_of_the_columns_in_their_units():
    """The model that they say is the model that predicts."""
    made = federation()
    result = fedax.simulate(problem(), made, fedax.FedAvg(lr=1.0), rounds=30, local_steps=5)
    table = result.coefficients().set_index("feature")["coefficient"]
    new = pandas.DataFrame({"age": [40.0, 80.0], "blood": ["A", "B"]})
    z = table["(intercept)"] + table["age"] * new["age"] + [table["blood = A"], table["blood = B"]]
    np.testing.assert_allclose(result.predict_proba(new)[:, 1], 1 / (1 + np.exp(-z)), rtol=1e-4)


def test_coefficients_of_clients_classes_and_other_models(tmp_path):
    made = federation()
    own = fedax.simulate(problem(), made, fedax.APFL(lr=0.5, alpha=0.5), rounds=3)
    assert {"0", "1", "2", "3"} <= set(own.coefficients())
    own.save(tmp_path / "run")
    assert "Clients' own" in (tmp_path / "run" / "report.html").read_text()
    pair = fedax.Problem(fedax.models.model("linear", outputs=2), loss="cross_entropy")
    two = fedax.simulate(pair, made, fedax.FedAvg(lr=0.5), rounds=3)
    kernel = np.asarray(two.model["params"]["Dense_0"]["kernel"])
    np.testing.assert_allclose(two.coefficients()["standardised"][1:], kernel[:, 1] - kernel[:, 0], rtol=1e-5)
    deep = fedax.Problem(fedax.models.model("mlp", outputs=1, hidden=(3,)), loss="logistic")
    with pytest.raises(FedaxError, match="coefficients are of linear models, and this is mlp"):
        fedax.simulate(deep, made, fedax.FedAvg(lr=0.5), rounds=1).coefficients()


def test_the_closing_table_of_a_round_before_anybody_took_part(tmp_path, capsys):
    """Validation rows may choose round 0: then no client has taken part, and there is no table of those who have."""
    from fedax.cli.console import console

    made = federation()
    result = fedax.simulate(problem(), made, fedax.Ditto(lr=1e-9, lam=0.1), rounds=2, cohort=1)
    result.save(tmp_path / "run")
    chosen = json.loads((tmp_path / "run" / "clients.json").read_text())["moments"]["chosen"]
    assert chosen["round"] == 0
    show_protocol(console(), [tmp_path / "run"])
    assert "All clients" in capsys.readouterr().out


def test_auc_chooses_the_round_where_it_is_asked_for(tmp_path):
    result = fedax.simulate(problem(metrics=["auc"]), federation(), fedax.Ditto(lr=0.05, lam=0.1), rounds=3)
    best = max(result.history, key=lambda row: row["personal_validation_auc"])
    assert result.by_client.moments["chosen"].round == best["round"] > 0


def test_what_decides_is_measured():
    table = {"rounds": 1, "data": {"name": "breast_cancer"}, "model": {"name": "logistic"}}
    methods = [{"name": "FedAvg", "lr": 0.1}, {"name": "FedProx", "lr": 0.1, "mu": 0.1}]
    asked = parse({**table, "algorithm": methods, "tune": {"lr": [0.1, 0.2], "metric": "auc"}})
    assert asked.problem.metrics == ["auc"]
    with pytest.raises(FedaxError, match="unknown metric 'aucc': did you mean 'auc'"):
        parse({**table, "algorithm": methods, "tune": {"lr": [0.1, 0.2], "metric": "aucc"}})
    with pytest.raises(FedaxError, match="it must be on validation rows"):
        parse({**table, "algorithm": methods, "tune": {"lr": [0.1, 0.2], "metric": "test_auc"}})
