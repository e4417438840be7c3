"""Metrics against scikit-learn's, merged over clients, of shared and own models, and what decides by them."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.metrics as reference

import fedax
from fedax import report
from fedax.errors import FedaxError
from fedax.evaluation.metrics import METRICS, Metric, main
from fedax.experiments import parse, prepare, run, sweep
from fedax.experiments.building import options
from fedax.experiments.judging import judge
from fedax.experiments.sweep_table import SweepTable
from fedax.experiments.tuning import tune
from fedax.report.columns import better, text, title
from report_runs import embedded

ROWS = 600


def value(name, z, y, clients=5):
    """A metric's value, from clients of different sizes put together."""
    metric = METRICS[name]
    records = np.asarray(metric.rows(jnp.asarray(z, jnp.float32), jnp.asarray(y)))
    cuts = np.sort(np.random.default_rng(0).choice(np.arange(1, len(y)), clients - 1, replace=False))
    return metric.merged([metric.statistic_of(part) for part in np.split(records, cuts)])


def softmax(z):
    odds = np.exp(z - z.max(1, keepdims=True))
    return odds / odds.sum(1, keepdims=True)


def classes(seed, count, scale=1.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, count, ROWS)
    return (scale * (rng.normal(size=(ROWS, count)) + np.eye(count)[y])).astype(np.float32), y


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [2, 7])
def test_classes_as_scikit_learn(seed, count):
    z, y = classes(seed, count, [0.05, 1.0, 10.0][seed])
    p, guess = softmax(z.astype(np.float64)), z.argmax(1)
    assert value("balanced_accuracy", z, y) == pytest.approx(reference.balanced_accuracy_score(y, guess))
    assert value("macro_f1", z, y) == pytest.approx(reference.f1_score(y, guess, average="macro"))
    assert value("perplexity", z, y) == pytest.approx(
        math.exp(-np.log(p[np.arange(ROWS), y]).mean()), rel=1e-4
    )  # log_loss clips p
    odds = z[:, 1] - z[:, 0]
    auc = reference.roc_auc_score(y, odds) if count == 2 else reference.roc_auc_score(y, p, multi_class="ovr")
    assert value("auc", z, y) == pytest.approx(auc, abs=2e-3)
    one = np.eye(count)[y]
    area = reference.average_precision_score(y, odds) if count == 2 else reference.average_precision_score(one, p)
    narrow = seed == 0  # all scores within some fifty bins
    assert value("average_precision", z, y) == pytest.approx(area, abs=1e-2 if narrow else 2e-3)
    if count == 2:
        assert value("precision", z, y) == pytest.approx(reference.precision_score(y, guess))
        assert value("recall", z, y) == pytest.approx(reference.recall_score(y, guess))
    else:
        assert value("top_5", z, y) == pytest.approx(reference.top_k_accuracy_score(y, z, k=5))


@pytest.mark.parametrize("labels", [(0, 1), (-1, 1)])
def test_one_output_tells_two_classes_apart(labels):
    z, y = classes(0, 2)
    odds, named = (z[:, 1] - z[:, 0])[:, None], np.array(labels)[y]
    for name in ("auc", "precision", "recall", "calibration_error", "perplexity", "macro_f1"):
        assert value(name, odds, named) == pytest.approx(value(name, z, y), rel=1e-4)


@pytest.mark.parametrize("outputs", [1, 3])
def test_numbers_as_scikit_learn(outputs):
    rng = np.random.default_rng(1)
    y = 1000 + rng.normal(size=(ROWS, outputs)).astype(np.float32)
    z = (y + rng.normal(size=y.shape) / 2).astype(np.float32)
    assert value("rmse", z, y) == pytest.approx(math.sqrt(reference.mean_squared_error(y, z)), rel=1e-4)
    assert value("mae", z, y) == pytest.approx(reference.mean_absolute_error(y, z), rel=1e-4)
    assert value("r2", z, y) == pytest.approx(reference.r2_score(y, z), rel=1e-4)


def test_calibration_by_hand():
    z = np.log(np.array([[0.8, 0.2], [0.8, 0.2], [0.3, 0.7]]))
    assert value("calibration_error", z, np.array([0, 1, 1]), 1) == pytest.approx((2 * 0.3 + 0.3) / 3, rel=1e-5)


def test_what_has_no_meaning_is_nan():
    z = np.random.default_rng(0).normal(size=(20, 2))
    assert math.isnan(value("auc", z, np.zeros(20, int)))
    assert math.isnan(value("r2", z[:, :1], np.ones(20)))


def federation():
    rng = np.random.default_rng(0)
    clients = []
    for rows in (30, 50, 20):
        y = rng.integers(0, 2, rows)
        clients.append({"x": (rng.normal(size=(rows, 4)) + y[:, None] / 2).astype(np.float32), "y": y})
    clients[2]["y"][:] = 1  # its auc has no meaning
    return fedax.Federation.from_clients(clients)


def linear():
    return (lambda key, x: jnp.ones((x.shape[1], 1)) / 9, lambda w, x: x @ w)


def test_shared_and_own_models_client_by_client():
    made = federation()
    problem = fedax.Problem(linear(), loss="logistic", metrics=["auc", "macro_f1"])
    result = fedax.simulate(problem, made, fedax.Ditto(lr=0.1, lam=0.1), rounds=2, eval_on=["train"])
    x, y = made.arrays["x"], made.arrays["y"]
    odds = np.asarray(x @ np.asarray(result.model))[:, 0]
    last = result.history[-1]
    assert last["train_auc"] == pytest.approx(reference.roc_auc_score(y, odds), abs=2e-3)
    own = np.concatenate(
        [
            np.asarray(x[a:b] @ np.asarray(result.personal(i)))[:, 0]
            for i, (a, b) in enumerate([(0, 30), (30, 80), (80, 100)])
        ]
    )
    assert last["personal_train_auc"] == pytest.approx(reference.roc_auc_score(y, own), abs=2e-3)
    each = [reference.roc_auc_score(y[a:b], odds[a:b]) for a, b in [(0, 30), (30, 80)]]
    assert last["train_auc_mean"] == pytest.approx(np.mean(each), abs=2e-3)
    assert last["train_auc_worst"] == pytest.approx(min(each), abs=2e-3)
    assert last["personal_train_macro_f1"] == pytest.approx(reference.f1_score(y, own > 0, average="macro"))


def test_an_own_metric_is_maximised_where_files_are_read(tmp_path):
    sure = Metric("sure", lambda z, y: abs(z[:, 0]), higher=True, title="sureness")
    problem = fedax.Problem(linear(), loss="logistic", metrics=[sure])
    result = fedax.simulate(problem, federation(), fedax.FedAvg(lr=0.1), rounds=1, eval_on=["train"])
    assert result.history[-1]["train_sure"] > 0
    described = json.loads((result.save(tmp_path / "run") / "experiment.json").read_text())["metrics"]
    assert {"name": "sure", "title": "sureness", "higher": True, "percent": False} in described
    assert (better("train_sure"), title("train_sure")) == ("max", "Training sureness")
    assert judge(SweepTable(lr=[0.1], metric="train_sure"), 1, [list(result.history[-1])]).goal == "max"


OWN = """
from fedax.evaluation.metrics import Metric

sure = Metric("sure", lambda z, y: abs(z).max(axis=1), higher=True, title="sureness")
"""


def test_an_own_metrics_direction_is_known_in_a_fresh_process(tmp_path):
    """Neither the metric nor its file is there any more: the run's directory says which way is better."""
    own = tmp_path / "own.py"
    own.write_text(OWN)
    table = {**experiment(metrics=[f"{own}:sure"]), "algorithm": [{"name": "FedAvg", "lr": r} for r in (0.01, 0.1)]}
    for i, one in enumerate(table["algorithm"]):
        one["label"] = f"the {i + 1}."
    run(parse(table), tmp_path / "out")
    own.unlink()
    command = [sys.executable, "-m", "fedax", "report", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = tmp_path / "out" / "report.html"
    about = re.search(r'\{"title":\s*"Test sureness"[^}]*\}', json.dumps(embedded(page)))
    assert about is not None
    assert json.loads(about[0])["better"] == "max"
    logs = [path.read_text().splitlines() for path in tmp_path.glob("out/runs/*/metrics.jsonl")]
    surest = max(json.loads(lines[-1])["test_sure"] for lines in logs)
    assert f"<strong>{text('test_sure', surest)}</strong>" in page.read_text()


def lr_by_auc(problem, made, rates, part, **options):
    """The rate of the highest auc, run by run."""
    found = {
        lr: fedax.simulate(problem, made, fedax.FedAvg(lr=lr), **options).history[-1][f"{part}_auc"] for lr in rates
    }
    return max(found, key=found.get), found


BREAST = {
    "rounds": 3,
    "local_steps": 4,
    "batch_size": 8,
    "data": {"name": "breast_cancer", "partition": {"name": "IID", "clients": 3}, "split": [0.5, 0.25, 0.25]},
    "model": {"name": "logistic"},
    "problem": {"metrics": ["auc"]},
    "algorithm": {"name": "FedAvg", "lr": 0.01},
}
RATES = [1e-4, 0.01, 300.0]


def test_a_sweep_judged_by_auc_chooses_the_highest(tmp_path):
    asked = parse({**BREAST, "sweep": {"lr": RATES, "metric": "test_auc"}})
    (chosen,) = sweep(asked, tmp_path / "out").methods
    best, found = lr_by_auc(*prepare(asked), RATES, "test", **options(asked, 0))
    assert len(set(found.values())) > 1
    assert chosen.setting == {"lr": best}
    assert chosen.scores == pytest.approx((found[best],), abs=1e-6)


def test_tuning_by_auc_chooses_the_highest(tmp_path):
    asked = parse({**BREAST, "seeds": [0, 1], "tune": {"lr": RATES, "metric": "validation_auc"}})
    _, (how,) = tune(asked, tmp_path / "out")
    best, found = lr_by_auc(*prepare(asked), RATES, "validation", **options(asked, how.seed))
    assert len(set(found.values())) > 1
    assert how.chosen == {"lr": best}
    assert how.score == pytest.approx(found[best], abs=1e-6)


def test_what_was_asked_for_is_what_is_shown(tmp_path):
    made = fedax.Federation.from_clients(
        [{"x": np.random.default_rng(i).normal(size=(9, 2)).astype(np.float32), "y": np.arange(9.0)} for i in range(3)]
    )
    problem = fedax.Problem(linear(), loss="squared", metrics=["r2", "mae"])
    result = fedax.simulate(problem, made, fedax.Ditto(lr=0.01, lam=0.1), rounds=1, eval_on=["train"])
    assert "'train_r2': " in repr(result)
    assert "'train_r2_mean'" not in repr(result)
    result.save(tmp_path / "runs" / "one")
    (row,) = report.table([tmp_path / "runs" / "one"])
    assert "train_r2_worst" in row
    assert "train_loss_worst" not in row
    assert main(["loss", "objective", "r2", "mae"]) == "r2"


@pytest.mark.parametrize(
    ("name", "goal"), [("auc", "max"), ("rmse", "min"), ("r2", "max"), ("calibration_error", "min")]
)
def test_the_metric_says_what_is_better(name, goal):
    assert better(f"personal_test_{name}_worst") == better(f"test_{name}") == goal
    assert better(f"test_{name}_std") == "min"
    assert judge(SweepTable(lr=[0.1], metric=f"test_{name}"), 1, [[f"test_{name}"]]).goal == goal


def test_shares_are_shown_in_per_cent():
    assert (text("test_recall", 0.5), text("test_auc", 0.5)) == ("50.00", "0.5")


def experiment(**problem):
    return {
        "rounds": 1,
        "data": {"name": "digits"},
        "model": {"name": "linear"},
        "problem": problem,
        "algorithm": {"name": "FedAvg", "lr": 0.1},
    }


def test_an_experiment_file_names_metrics():
    problem, _ = prepare(parse(experiment(metrics=["auc", "top_5"])))
    assert list(problem.metrics) == ["loss", "accuracy", "auc", "top_5"]
    with pytest.raises(FedaxError, match="ac"):
        parse(experiment(metrics=["acu"]))
    with pytest.raises(FedaxError, match="'precision': it needs a model of 2 classes, not 10"):
        prepare(parse(experiment(metrics=["precision"])))


@pytest.mark.parametrize("measured", [[], ["own_metric:sure"]])
@pytest.mark.parametrize("by", ["own_metric:sure", "certainty"])
def test_an_own_metric_decides_by_its_name(tmp_path, monkeypatch, measured, by):
    source = (
        "from fedax.evaluation.metrics import Metric\nsure = Metric('certainty', lambda z, y: z[:, 0], higher=True)\n"
    )
    (tmp_path / "own_metric.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    asked = {
        "patience": 2,
        "stop_by": by,
        "tune": {"lr": [0.1, 0.2], "metric": by},
        "sweep": {"lr": [0.1], "metric": by},
    }
    if not measured and by == "certainty":
        with pytest.raises(FedaxError, match="unknown metric 'certainty'"):
            parse({**experiment(), **asked})
        return
    read = parse({**experiment(metrics=measured), **asked})
    assert read.problem.metrics == ["own_metric:sure"]
    assert (read.stop_by, read.tune.bare, read.sweep.bare) == ("certainty",) * 3


@pytest.mark.parametrize(
    ("metrics", "sentence"),
    [
        (["rmse"], "'rmse': it needs a loss of numbers, squared or mse, not logistic"),
        ("auc", "must be a list"),
        (["auc", "auc"], "twice"),
        ([lambda z, y: z], "say which way is better"),
        ([3], "must be a name or a Metric"),
        ([Metric("objective", abs, higher=True)], "that name is taken"),
    ],
)
def test_bad_metrics_give_one_sentence(metrics, sentence):
    with pytest.raises(FedaxError, match=sentence):
        fedax.Problem(linear(), loss="logistic", metrics=metrics)


def test_a_metric_of_another_shape_is_refused():
    problem = fedax.Problem(linear(), loss="logistic", metrics=[Metric("one", lambda z, y: z.sum(), higher=True)])
    with pytest.raises(FedaxError, match="must give one number a row"):
        fedax.simulate(problem, federation(), fedax.FedAvg(lr=0.1), rounds=1)
