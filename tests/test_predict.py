"""From a run on a table to predictions: in Python, from the command line, from an exported folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest

import fedax
from fedax.cli import invoke
from fedax.errors import FedaxError

COLUMNS = {"label": "ill", "client": "hospital", "missing": "fill"}


def table(rows=240, seed=0):
    rng = np.random.default_rng(seed)
    age, crp = rng.normal(60, 10, rows), rng.lognormal(1, 1, rows)
    blood = rng.choice(["A", "B", "0"], rows)
    risk = (age - 60) / 10 + (blood == "A") - 0.5
    return pandas.DataFrame(
        {
            "case_id": np.arange(rows) + 1000,
            "age": np.where(rng.random(rows) < 0.1, np.nan, age),
            "crp": crp,
            "blood": blood,
            "hospital": rng.choice(["bodo", "oslo"], rows),
            "ill": np.where(rng.random(rows) < 1 / (1 + np.exp(-2 * risk)), "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def federation():
    return fedax.data.from_table(table(), **COLUMNS)


def simulate(federation, method, loss="logistic", outputs=1, model="logistic", **options):
    problem = fedax.Problem(fedax.models.model(model, outputs=outputs, **options), loss=loss)
    return fedax.simulate(problem, federation, method, rounds=4, local_steps=3), problem


@pytest.fixture(scope="module")
def shared(federation):
    return simulate(federation, fedax.FedAvg(lr=1.0))


@pytest.mark.parametrize(
    ("loss", "outputs", "model", "options"),
    [("logistic", 1, "logistic", {}), ("cross_entropy", 2, "mlp", {"hidden": (5,)})],
)
def test_predictions_are_the_models_own(federation, loss, outputs, model, options):
    result, problem = simulate(federation, fedax.FedAvg(lr=0.5), loss, outputs, model, **options)
    new = table(40, seed=1)
    x = federation.info["preparation"].transform(new)
    z = np.asarray(problem.outputs(result.model, {"x": x}))
    wanted = 1 / (1 + np.exp(-(z[:, 0] if outputs == 1 else z[:, 1] - z[:, 0])))
    proba = result.predict_proba(new)
    np.testing.assert_allclose(proba[:, 1], wanted, rtol=1e-4)
    np.testing.assert_allclose(proba.sum(1), 1, rtol=1e-6)
    assert result.predict(new).tolist() == np.where(wanted > 0.5, "yes", "no").tolist()


def test_a_saved_run_predicts_the_same(shared, tmp_path):
    result, _ = shared
    new = table(20, seed=1).drop(columns=["ill"])
    again = fedax.load(result.save(tmp_path / "run"))
    np.testing.assert_allclose(again.predict_proba(new), result.predict_proba(new), rtol=1e-6)
    assert again.predict({"age": 90, "crp": 1.0, "blood": "A"}).tolist() == ["yes"]  # one row
    assert again.predict({"age": None, "crp": 1.0, "blood": "unheard of"}).shape == (1,)


@pytest.mark.parametrize("mix", ["parameters", "outputs"])
def test_a_clients_own_model(federation, mix, tmp_path):
    result, problem = simulate(federation, fedax.APFL(lr=1.0, alpha=0.6, mix=mix))
    new = table(20, seed=1)
    x = federation.info["preparation"].transform(new)
    z = np.asarray(problem.outputs(result.personal(1), {"x": x}))[:, 0]
    again = fedax.load(result.save(tmp_path / "run"))
    for made in (result, again):
        np.testing.assert_allclose(made.predict_proba(new, client="oslo")[:, 1], 1 / (1 + np.exp(-z)), rtol=1e-4)
    by_row = result.predict_proba(new, client=new["hospital"])
    wanted = {name: result.predict_proba(new, client=name) for name in ("bodo", "oslo")}
    expected = [wanted[name][i] for i, name in enumerate(new["hospital"])]
    np.testing.assert_allclose(by_row, expected, rtol=1e-6)
    assert not np.allclose(by_row, result.predict_proba(new))


def test_regressions_predict_numbers():
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"v": rng.normal(3, 2, 80)}).assign(y=lambda f: 5 * f["v"] + 1)
    made = fedax.data.from_table(frame, label="y", partition=fedax.data.IID(2))
    result, _ = simulate(made, fedax.FedAvg(lr=0.5), "squared", 1, "linear")
    result = fedax.simulate(
        fedax.Problem(fedax.models.model("linear", outputs=1), loss="squared"),
        made,
        fedax.FedAvg(lr=0.5),
        rounds=40,
        local_steps=2,
    )
    np.testing.assert_allclose(result.predict({"v": [0.0, 10.0]}), [1, 51], rtol=1e-3)
    with pytest.raises(FedaxError, match="'y' is a number: predict gives it"):
        result.predict_proba({"v": 1.0})


def test_bad_input_gets_one_sentence(shared, federation):
    result, _ = shared
    new = table(3, seed=1)
    for client, sentence in (("osl", "unknown client 'osl': did you mean 'oslo'"), (["oslo"], "1 names for 3 rows")):
        with pytest.raises(FedaxError, match=sentence):
            result.predict(new, client=client)
    with pytest.raises(FedaxError, match="columns 'crp', 'blood' are missing from the table"):
        result.predict({"age": 3})
    with pytest.raises(FedaxError, match="column 'age' has 'old' at row 1: it must be a number"):
        result.predict(new.assign(age="old"))
    with pytest.raises(FedaxError, match=r"2 problems: \(1\) column 'age' has 'old'.*\(2\) unknown client 'osl'"):
        result.predict(new.assign(age="old"), client="osl")
    with pytest.raises(FedaxError, match="column 'crp' has infinity at row 1"):
        result.predict(new.assign(crp=np.inf))
    with pytest.raises(FedaxError, match="the table has no rows"):
        result.predict(new.head(0))
    with pytest.raises(FedaxError, match="table is a list"):
        result.predict([1])
    local, _ = simulate(federation, fedax.LocalOnly(lr=0.5))
    with pytest.raises(FedaxError, match="there is no shared model: client must say"):
        local.predict(new)
    assert local.predict(new, client="oslo").shape == (3,)
    with pytest.raises(FedaxError, match="unknown client '7'"):
        local.predict(new, client=7)


def test_what_a_prediction_stands_on_is_said(shared, caplog):
    result, _ = shared
    result.predict(table(3, seed=1).assign(blood=["A", "AB", "a"]), client="oslo")
    assert "column 'blood' has values that the training rows did not have, in 2 of 3 rows: 'AB', 'a'" in caplog.text
    assert "no models of their own: the shared model predicts" in caplog.text


def test_a_run_without_a_table_cannot_predict(tmp_path, capsys):
    clients = [{"x": np.float32([[1.0], [2.0]]), "y": np.int32([0, 1])}]
    result, _ = simulate(fedax.Federation.from_clients(clients), fedax.FedAvg(lr=0.5))
    with pytest.raises(FedaxError, match="prediction needs a run on a table"):
        result.predict({"x": 1})
    result.save(tmp_path / "run")
    (tmp_path / "new.csv").write_text("x\n1\n")
    assert invoke(["predict", str(tmp_path / "run"), str(tmp_path / "new.csv")]) == 2
    assert "prediction needs a run on a table" in capsys.readouterr().err


def test_a_damaged_run_is_one_sentence(shared, tmp_path, capsys):
    run = shared[0].save(tmp_path / "run")
    table(5).to_csv(tmp_path / "new.csv", index=False)
    about = json.loads((run / "preparation.json").read_text())
    fewer = json.dumps({**about, "columns": about["columns"][:1]})
    damage = {
        "model.safetensors": (b"", b"\x02" + bytes(7) + b"[]"),
        "preparation.json": (b"[]", b"{}", fewer.encode()),
    }
    for name, contents in damage.items():
        whole = (run / name).read_bytes()
        for content in contents:
            (run / name).write_bytes(content)
            assert invoke(["predict", str(run), str(tmp_path / "new.csv")]) == 2
            said = capsys.readouterr().err
            assert said.startswith("error: ")
            assert said.count("\n") == 1
        (run / name).write_bytes(whole)
    (run / "coefficients.csv").write_text("feature,coefficient\nage,1,2,3\nx\n")
    with (run / "metrics.jsonl").open("a") as log:
        log.write("5\n{}\n")
    assert invoke(["report", str(run)]) == 0
    assert "The coefficients cannot be read." in (run / "report.html").read_text()
    assert len(fedax.load(run).history) == len(shared[0].history)


def test_the_command_line_and_an_export_predict_the_same(federation, tmp_path, capsys):
    result, _ = simulate(federation, fedax.APFL(lr=1.0, alpha=0.6))
    result.save(tmp_path / "run")
    new = table(12, seed=1).drop(columns=["ill"])
    new.to_csv(tmp_path / "new.csv", index=False)
    run, file, out = (str(tmp_path / name) for name in ("run", "new.csv", "predictions.csv"))
    assert invoke(["predict", run, file, "--out", out]) == 0
    found = pandas.read_csv(out)
    assert list(found) == ["case_id", "prediction", "probability_no", "probability_yes"]
    np.testing.assert_allclose(found["probability_yes"], result.predict_proba(new)[:, 1], rtol=1e-4)
    assert invoke(["predict", run, file, "--own", "--out", out]) == 0
    own = result.predict_proba(new, client=new["hospital"])[:, 1]
    np.testing.assert_allclose(pandas.read_csv(out)["probability_yes"], own, rtol=1e-4)
    capsys.readouterr()
    assert invoke(["predict", run, file, "--own", "--client", "oslo"]) == 2
    assert "give one of them" in capsys.readouterr().err
    before = Path(file).read_bytes()
    assert invoke(["predict", run, file, "--out", file]) == 2
    assert "that is the table itself" in capsys.readouterr().err
    assert Path(file).read_bytes() == before
    assert invoke(["export", run, "--model", str(tmp_path / "exported")]) == 0
    # in a Python that finds neither Fedax nor JAX
    run_it = (
        "import os, runpy, sys; sys.modules['fedax'] = sys.modules['jax'] = None; sys.argv = sys.argv[1:]; "
        "sys.path.insert(0, os.path.dirname(sys.argv[0])); runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    program = str(tmp_path / "exported" / "predict.py")
    for client in ([], ["oslo"]):
        command = [sys.executable, "-c", run_it, program, file, out, *client]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        wanted = result.predict_proba(new, client=client[0] if client else None)[:, 1]
        np.testing.assert_allclose(pandas.read_csv(out)["probability_yes"], wanted, rtol=1e-4)
        assert pandas.read_csv(out)["case_id"].tolist() == new["case_id"].tolist()
    (tmp_path / "new.csv").write_text("age\nold\n")
    done = subprocess.run([sys.executable, program, file + "x", out], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[:7]) == (2, "error: ")
    done = subprocess.run([sys.executable, program, file, out], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "are missing from the table" in done.stderr


# Weights


def test_weights_count_as_rows_do(federation):
    """Rows of weight 2 train as rows that are there twice; and balanced classes predict the rarer one more often."""
    frame = table(60).dropna()
    twice = pandas.concat([frame, frame[frame["ill"] == "yes"]])
    weighted = frame.assign(w=np.where(frame["ill"] == "yes", 2.0, 1.0))
    options = {"label": "ill", "features": ["crp", "age"], "partition": fedax.data.IID(1), "split": None}
    made = fedax.data.from_table(weighted, weights="w", **options)
    again = fedax.data.from_table(twice, **options)
    columns = made.info["preparation"].columns
    again = fedax.Federation(
        {**again.arrays, "x": _prepared(columns, twice, again)}, again.train, again.validation, again.test
    )
    a, b = (simulate(one, fedax.FedAvg(lr=0.5))[0].model for one in (made, again))
    np.testing.assert_allclose(a["params"]["Dense_0"]["kernel"], b["params"]["Dense_0"]["kernel"], rtol=1e-4)


def _prepared(columns, frame, federation):
    """The rows of a federation of one client, in its order, prepared by other columns."""
    from fedax.data.tables.applying import encode, parse

    x = encode(columns, parse(columns, frame)[0])
    own = federation.info["preparation"].transform(frame)
    order = np.lexsort(federation.arrays["x"].T), np.lexsort(own.T)
    made = np.zeros_like(x)
    made[order[0]] = x[order[1]]
    return made


def test_balanced_classes_find_more_of_the_rarer_one():
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"v": rng.normal(size=600)})
    frame["ill"] = np.where(rng.random(600) < 1 / (1 + np.exp(3 - 1.5 * frame["v"])), "yes", "no")
    found = {}
    for weights in (None, "balanced"):
        made = fedax.data.from_table(frame, label="ill", partition=fedax.data.IID(2), weights=weights)
        problem = fedax.Problem(fedax.models.model("logistic", outputs=1), loss="logistic")
        result = fedax.simulate(problem, made, fedax.FedAvg(lr=1.0), rounds=20, local_steps=2)
        found[weights] = (result.predict(frame) == "yes").mean()
    assert found["balanced"] > 2 * found[None]
