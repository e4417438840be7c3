"""The estimators: scikit-learn's own checks, its pipelines and searches, and the answers of its own models."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import fedax
from fedax.errors import FedaxError
from fedax.sklearn import FederatedClassifier, FederatedRegressor


@pytest.mark.parametrize("made", [FederatedClassifier, FederatedRegressor])
def test_scikit_learns_own_checks(made):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(made(), on_skip=None, on_fail=None)
    assert [(one["check_name"], str(one["exception"])) for one in found if one["status"] == "failed"] == []
    assert sum(one["status"] == "passed" for one in found) > 50


def rows(seed=0, classes=2):
    x, y = make_classification(300, 6, n_informative=4, n_classes=classes, random_state=seed)
    return x * [1, 10, 0.1, 1, 1, 1] + [0, 100, 0, 0, 0, 5], y, np.random.default_rng(seed).choice(["a", "b", "c"], 300)


def test_linear_regression_is_scikit_learns():
    _, _, clients = rows()
    x = np.random.default_rng(0).normal(size=(300, 6)) * [1, 10, 0.1, 1, 1, 1] + [0, 100, 0, 0, 0, 5]
    target = x @ [1, -0.2, 30, 0, 0, 2] + 4 + 0.1 * np.random.default_rng(1).normal(size=300)
    found = FederatedRegressor(rounds=300, local_steps=1).fit(x, target, clients=clients)
    known = LinearRegression().fit(x, target)
    np.testing.assert_allclose(found.coef_, known.coef_, rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(found.predict(x), known.predict(x), atol=0.05)
    np.testing.assert_allclose(found.intercept_, known.predict(np.zeros((1, 6)))[0], rtol=0.05)
    assert found.score(x, target) > 0.99


def test_logistic_regression_is_scikit_learns_without_federation():
    x, y, _ = rows()
    found = FederatedClassifier(rounds=300, regularizer={"name": "SquaredL2", "strength": 0.05}).fit(x, y)
    scaled = StandardScaler().fit_transform(x)
    known = LogisticRegression(C=1 / (0.05 * 300), tol=1e-8).fit(scaled, y)
    np.testing.assert_allclose(found.predict_proba(x), known.predict_proba(scaled), atol=2e-3)
    np.testing.assert_allclose(found.coef_[0] * x.std(0), known.coef_[0], atol=5e-3)


def test_a_sparse_model_by_dual_averaging():
    x, y, clients = rows()
    l1 = fedax.regularizers.L1(0.03)
    found = FederatedClassifier("FedDualAvg", rounds=100, regularizer=l1).fit(x, y, clients=clients)
    assert 0 < (found.coef_ != 0).sum() < 6
    assert found.score(x, y) > 0.7


def test_personal_models_are_estimators():
    x, y, clients = rows()
    y = np.where(clients == "a", 1 - y, y)  # one client sees it the other way round
    method = fedax.APFL(lr=1.0, alpha=0.9)
    found = FederatedClassifier(method, rounds=60).fit(x, y, clients=clients)
    assert set(found.personal_) == {"a", "b", "c"}
    own = found.personal_["a"]
    mine = clients == "a"
    assert own.score(x[mine], y[mine]) > found.score(x[mine], y[mine]) + 0.2
    assert own.coef_.shape == (1, 6)
    assert FederatedClassifier(rounds=1).fit(x, y).personal_ == {}


def test_more_than_two_classes_and_a_network():
    x, y, clients = rows(classes=3)
    names = np.array(["p", "q", "r"])[y]
    linear = FederatedClassifier(rounds=50).fit(x, names, clients=clients)
    assert linear.coef_.shape == (3, 6)
    mlp = FederatedClassifier(model="mlp", model_options={"hidden": [16]}, lr=0.3, rounds=100)
    assert mlp.fit(x, names, clients=clients).score(x, names) > linear.score(x, names)
    assert not hasattr(mlp, "coef_")


def test_pipelines_cross_validation_with_clients_as_groups_and_grid_search():
    x, y, clients = rows()
    model = FederatedClassifier(rounds=5)
    pipeline = make_pipeline(StandardScaler(), model)
    pipeline.fit(x, y, federatedclassifier__clients=clients)
    assert pipeline.score(x, y) > 0.7
    found = cross_val_score(model, x, y, groups=clients, cv=GroupKFold(3), params={"clients": clients})
    assert len(found) == 3
    assert (found > 0.6).all()
    strengths = [{"name": "L2", "strength": value} for value in (0.01, 100.0)]
    search = GridSearchCV(model, {"regularizer": strengths, "local_steps": [2]}, cv=2).fit(x, y, clients=clients)
    assert search.best_params_["regularizer"]["strength"] == 0.01


def test_weights_and_bad_input():
    x, y, _ = rows()
    rare = np.flatnonzero((y == 0) | (np.arange(300) % 6 == 0))
    plain = FederatedClassifier(rounds=20).fit(x[rare], y[rare]).predict(x).mean()
    balanced = FederatedClassifier(rounds=20, class_weight="balanced").fit(x[rare], y[rare]).predict(x).mean()
    assert balanced > plain
    model = FederatedClassifier(rounds=1)
    for fit, sentence in (
        ({"clients": ["a"]}, r"clients has the shape \(1,\) for 300 rows"),
        ({"clients": [None, *"a" * 299]}, r"clients is missing in 1 of 300 rows \(first row 1\)"),
        ({"sample_weight": np.zeros(300)}, "at least one non-zero"),
        ({"sample_weight": -np.ones(300)}, "[Nn]egative values"),
    ):
        with pytest.raises(ValueError, match=sentence):
            model.fit(x, y, **fit)
    with pytest.raises(FedaxError, match="y has one class alone"):
        model.fit(x, np.zeros(300))
    with pytest.raises(FedaxError, match="unknown algorithm 'FedAvgg'"):
        FederatedClassifier("FedAvgg").fit(x, y)
