"""The protocol of personal experiments: what is compared, over whom, and that nothing ever learns from a test row."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import fedax
from conftest import LEAST_SQUARES, regression, vector
from fedax.algorithms import ALGORITHMS
from fedax.engine.newcomers import hold_out
from fedax.errors import FedaxError
from fedax.evaluation.protocol import Clients, Moment, describe, helped, interval, over_seeds, table
from fedax.evaluation.signed_rank import signed_rank
from fedax.experiments import parse
from fedax.experiments import run as run_experiment
from fedax.report import groups, protocol, read_all
from fedax.testing import make

OPTIONS = {"rounds": 4, "local_steps": 3, "batch_size": 4, "eval_every": 2}


def federation(seed=0, clients=6, rows=20):
    """Regressions with train, validation and test rows on each client."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(clients):
        x = rng.normal(size=(rows, 6))
        made.append({"x": x, "y": x @ rng.normal(size=6) + 0.1 * rng.normal(size=rows)})
    return fedax.Federation.from_clients(made, split=(0.5, 0.25, 0.25))


def poisoned(given):
    """The same federation with nonsense in every row that is not for training."""
    arrays = {key: array.copy() for key, array in given.arrays.items()}
    for part in (given.validation, given.test):
        for i in range(given.clients):
            for array in arrays.values():
                array[part.of(i)] = 1e3
    return fedax.Federation(arrays, given.train, given.validation, given.test, given.names, dict(given.info))


@pytest.mark.parametrize("name", [n for n, m in ALGORITHMS.items() if m.personalised or n in ("FedAvg", "SCAFFOLD")])
def test_nothing_adapts_on_a_row_that_is_not_for_training(name):
    algorithm = make(ALGORITHMS[name])
    honest = federation()
    results = [
        fedax.simulate(LEAST_SQUARES, data, algorithm, unseen=0.34, **OPTIONS) for data in (honest, poisoned(honest))
    ]
    assert results[0].history[-1]["personal_test_loss" if not algorithm.shared else "test_loss"] != pytest.approx(
        results[1].history[-1]["personal_test_loss" if not algorithm.shared else "test_loss"]
    )
    np.testing.assert_array_equal(vector(results[0].model), vector(results[1].model))
    for i in range(honest.clients):  # newcomers too
        np.testing.assert_array_equal(vector(results[0].personal(i)), vector(results[1].personal(i)))


# -- clients held out --------------------------------------------------------------------------------------


@given(st.integers(2, 200), st.floats(0.01, 0.99), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_held_out_clients_are_a_part_of_all(clients, share, seed):
    try:
        seen, unseen = hold_out(clients, share, seed)
    except FedaxError:
        assert round(share * clients) >= clients
        return
    assert sorted([*seen, *unseen]) == list(range(clients))
    assert len(unseen) == max(1, round(share * clients))


def test_held_out_clients_leave_no_trace_in_training():
    """Training with clients held out is training on the others alone."""
    whole = federation()
    seen, unseen = hold_out(whole.clients, 0.34, 5)
    a = fedax.simulate(LEAST_SQUARES, whole, fedax.APFL(lr=0.05), unseen=0.34, seed=5, **OPTIONS)
    b = fedax.simulate(LEAST_SQUARES, whole.subset(seen), fedax.APFL(lr=0.05), seed=5, **OPTIONS)
    np.testing.assert_array_equal(vector(a.model), vector(b.model))
    for place, client in enumerate(seen):
        np.testing.assert_array_equal(vector(a.personal(int(client))), vector(b.personal(place)))
    assert a.by_client.unseen.tolist() == [i in unseen for i in range(whole.clients)]
    assert (a.by_client.joined[unseen] == 0).all()


def test_a_newcomer_of_local_training_is_sgd_from_the_start(x64):
    """With all rows in each step, joining is gradient descent, which numpy can follow."""
    whole = federation()
    options = {**OPTIONS, "batch_size": None, "join_steps": 7}
    result = fedax.simulate(LEAST_SQUARES, whole, fedax.LocalOnly(lr=0.05), unseen=0.17, **options)
    (late,) = np.flatnonzero(result.by_client.unseen)
    rows, w = whole.client(int(late)), np.zeros(6)
    for _ in range(7):
        w = w - 0.05 * rows["x"].T @ (rows["x"] @ w - rows["y"]) / len(rows["y"])
    np.testing.assert_allclose(vector(result.personal(int(late))), w, rtol=1e-10)


def test_a_newcomer_of_apfl_follows_equation_7(x64):
    whole = federation()
    options = {**OPTIONS, "batch_size": None, "join_steps": 5}
    result = fedax.simulate(LEAST_SQUARES, whole, fedax.APFL(lr=0.05, alpha=0.3), unseen=0.17, **options)
    (late,) = np.flatnonzero(result.by_client.unseen)
    rows, shared = whole.client(int(late)), vector(result.model)
    v = shared
    for _ in range(5):
        mixed = 0.3 * v + 0.7 * shared
        v = v - 0.05 * 0.3 * rows["x"].T @ (rows["x"] @ mixed - rows["y"]) / len(rows["y"])
    np.testing.assert_allclose(vector(result.personal(int(late))), 0.3 * v + 0.7 * shared, rtol=1e-10)


def test_schedules_begin_again_for_newcomers_who_ask_for_it(x64):
    whole, ends = federation(), []
    options = {**OPTIONS, "batch_size": None, "join_steps": 5, "unseen": 0.17}
    falling = fedax.schedules.Exponential(0.05, 0.5)
    for lr, restarts in ((falling, True), (falling, False), (0.05, False), (0.05 * 0.5**4, False)):
        result = fedax.simulate(LEAST_SQUARES, whole, fedax.LocalOnly(lr=lr), join_restarts=restarts, **options)
        (late,) = np.flatnonzero(result.by_client.unseen)
        ends.append(vector(result.personal(int(late))))
    np.testing.assert_allclose(ends[0], ends[2], rtol=1e-12)  # of LocalOnly's newcomers, whom nobody else's rates move
    np.testing.assert_allclose(ends[1], ends[3], rtol=1e-12)


def test_before_averaging_a_model_of_apfl_mixes_with_its_clients_own_w(x64):
    whole, lr, a = federation(), 0.05, 0.3
    options = {**OPTIONS, "batch_size": None, "before_averaging": True}
    result = fedax.simulate(LEAST_SQUARES, whole, fedax.APFL(lr=lr, alpha=a), **options)
    losses = result.by_client.moments["last"].get("before", "test", "loss")
    for i in range(whole.clients):
        rows, test, w = whole.client(i), whole.client(i, "test"), vector(result.model)
        v = (vector(result.personal(i)) - (1 - a) * w) / a
        gradient = lambda z, rows=rows: rows["x"].T @ (rows["x"] @ z - rows["y"]) / len(rows["y"])  # noqa: E731
        for _ in range(3):
            w, v = w - lr * gradient(w), v - lr * a * gradient(a * v + (1 - a) * w)
        mixed = a * v + (1 - a) * w
        assert losses[i] == pytest.approx(np.mean((test["x"] @ mixed - test["y"]) ** 2) / 2, rel=1e-9)


def test_the_localised_model_is_the_shared_one_after_k_steps(x64):
    whole = federation()
    result = fedax.simulate(
        LEAST_SQUARES, whole, fedax.FedAvg(lr=0.05), protocol=True, **{**OPTIONS, "batch_size": None}
    )
    losses = result.by_client.moments["last"].get("localised", "test", "loss")
    for i in range(whole.clients):
        rows, w = whole.client(i), vector(result.model)
        for _ in range(3):
            w = w - 0.05 * rows["x"].T @ (rows["x"] @ w - rows["y"]) / len(rows["y"])
        test = whole.client(i, "test")
        assert losses[i] == pytest.approx(np.mean((test["x"] @ w - test["y"]) ** 2) / 2, rel=1e-9)


@pytest.mark.parametrize("share", [-0.1, 1.0, "half", True])
def test_a_wrong_share_of_unseen_clients(share):
    with pytest.raises(FedaxError, match=r"unseen must be a number in \[0, 1\)"):
        fedax.simulate(LEAST_SQUARES, regression(), fedax.FedAvg(lr=0.1), unseen=share, rounds=1)


def test_unseen_clients_that_leave_none_to_train():
    with pytest.raises(FedaxError, match=r"unseen=0\.9 leaves no client to train: the federation has 2"):
        fedax.simulate(LEAST_SQUARES, federation(clients=2), fedax.FedAvg(lr=0.1), unseen=0.9, rounds=1)


# -- moments -----------------------------------------------------------------------------------------------


def test_the_chosen_round_has_the_best_validation_loss_of_the_history():
    """Rates this high make the loss wander, so that the best round is rarely the last."""
    rounds = set()
    for seed in range(4):
        result = fedax.simulate(
            LEAST_SQUARES, federation(seed), fedax.APFL(lr=0.3, alpha=0.9), rounds=12, batch_size=2, seed=seed
        )
        losses = [row["personal_validation_loss"] for row in result.history]
        chosen = result.by_client.moments["chosen"]
        assert chosen.round == result.history[int(np.argmin(losses))]["round"]
        test = [row["personal_test_loss"] for row in result.history]
        values, rows = chosen.get("personal", "test", "loss"), result.by_client.rows["test"]
        assert np.average(values, weights=rows) == pytest.approx(test[int(np.argmin(losses))], rel=1e-5)
        rounds.add(chosen.round)
    assert rounds != {12}


def test_joined_says_who_took_part_first_when():
    result = fedax.simulate(LEAST_SQUARES, federation(), fedax.APFL(lr=0.05), cohort=2, **OPTIONS)
    engine = fedax.engine.Simulation(
        LEAST_SQUARES, federation(), fedax.APFL(lr=0.05), cohort=2, **OPTIONS
    ).prepared.engine
    cohorts = engine.draws.cohorts(0, 4)
    for i, first in enumerate(result.by_client.joined.tolist()):
        took = [r + 1 for r in range(4) if i in cohorts[r]]
        assert first == (took[0] if took else 0)


def test_clients_survive_a_save(tmp_path):
    result = fedax.simulate(LEAST_SQUARES, federation(), fedax.APFL(lr=0.05), unseen=0.34, **OPTIONS)
    again = fedax.load(result.save(tmp_path / "run")).by_client
    assert again.as_json() == result.by_client.as_json()
    np.testing.assert_array_equal(again.unseen, result.by_client.unseen)


# -- statistics --------------------------------------------------------------------------------------------

values = st.lists(st.floats(0, 1), min_size=1, max_size=60)


@given(values, st.booleans())
@settings(max_examples=50, deadline=None)
def test_the_worst_and_best_tenth(numbers, higher):
    found = describe(np.array(numbers), np.ones(len(numbers)), higher=higher)
    tenth = max(1, round(len(numbers) / 10))
    ordered = sorted(numbers, reverse=not higher)
    assert found["worst"] == pytest.approx(np.mean(ordered[:tenth]))
    assert found["best"] == pytest.approx(np.mean(ordered[-tenth:]))
    assert found["mean"] == pytest.approx(np.mean(numbers)) == pytest.approx(found["weighted"])


def test_shares_helped_and_harmed_and_the_paired_test():
    rng = np.random.default_rng(0)
    own, other = rng.uniform(size=40), rng.uniform(size=40)
    own[:5] = other[:5]
    found, loss = helped(own, other), helped(own, other, higher=False)
    assert found["helped"] == np.mean(own > other) == loss["harmed"]
    assert found["helped"] + found["harmed"] == pytest.approx(35 / 40)
    assert found["p"] == pytest.approx(stats.wilcoxon(own, other, method="approx").pvalue)
    assert helped(own, own)["p"] == 1.0
    assert helped(other + 0.5, other)["p"] < 1e-6


def test_the_interval_over_seeds_is_students():
    sample = [0.91, 0.93, 0.96, 0.90]
    mean, half = interval(sample)
    low, high = stats.t.interval(0.95, 3, loc=np.mean(sample), scale=stats.sem(sample))
    assert (mean - half, mean + half) == (pytest.approx(low), pytest.approx(high))
    assert np.isnan(interval([0.5])[1])


def test_the_table_tells_groups_apart():
    def values(*numbers):
        return {"test": {"accuracy": np.array(numbers)}}

    moment = Moment(5, {"shared": values(0.2, 0.4, 0.6, 0.8), "personal": values(0.3, 0.4, 0.5, 1.0)})
    clients = Clients(
        tuple("abcd"),
        {"test": np.array([1, 1, 2, 4])},
        np.array([1, 6, 5, 0]),
        np.array([False, False, False, True]),
        {"last": moment},
    )
    lines = {(line["group"], line["model"]): line for line in table(clients)}
    assert lines["all", "shared"]["mean"] == pytest.approx(0.4)
    assert lines["all", "shared"]["weighted"] == pytest.approx((0.2 + 0.4 + 2 * 0.6) / 4)
    assert lines["joined", "personal"]["mean"] == pytest.approx(0.4)  # a and c: b came in a later round
    assert lines["unseen", "personal"]["mean"] == 1.0
    assert (lines["all", "personal"]["helped_shared"], lines["all", "personal"]["harmed_shared"]) == (1 / 3, 1 / 3)
    alone = Moment(9, {"personal": values(0.0, 1.0, 1.0, 1.0)})
    both = clients.with_local(Clients(tuple("abcd"), clients.rows, clients.joined, clients.unseen, {"last": alone}))
    line = next(line for line in table(both) if (line["group"], line["model"]) == ("all", "personal"))
    assert (line["helped_local"], line["harmed_local"]) == (1 / 3, 2 / 3)
    merged = over_seeds([table(both), table(clients)])
    assert next(m for m in merged if m["model"] == "local")["seeds"] == 1


# -- experiments -------------------------------------------------------------------------------------------


def experiment(**changes):
    return parse(
        {
            "rounds": 3,
            "batch_size": 5,
            "data": {"name": "iris", "partition": {"name": "IID", "clients": 6}},
            "model": {"name": "logistic"},
            "algorithm": [{"name": "APFL", "lr": 0.2}, {"name": "FedAvg", "lr": 0.1}],
            "seeds": [0, 1],
            **changes,
        }
    )


def test_every_personal_experiment_has_its_four_models(tmp_path):
    outcome = run_experiment(experiment(unseen=0.34), tmp_path / "out")
    metric, lines = protocol(groups(read_all([r.folder for r in outcome.runs])))
    assert metric == "accuracy"
    models = {(line["algorithm"], line["group"], line["model"]) for line in lines}
    for group in ("all", "joined", "unseen"):
        assert {m for a, g, m in models if (a, g) == ("APFL", group)} == {"shared", "localised", "personal", "local"}
        assert {m for a, g, m in models if (a, g) == ("FedAvg", group)} == {"shared", "localised", "local"}
        assert {m for a, g, m in models if (a, g) == ("Local only", group)} == {"personal"}
    assert {line["moment"] for line in lines} == {"last", "chosen"}
    assert all(line["seeds"] == 2 and "mean_ci" in line for line in lines)


def test_a_shared_experiment_has_no_yardstick(tmp_path):
    outcome = run_experiment(experiment(algorithm={"name": "FedAvg", "lr": 0.1}), tmp_path / "out")
    assert [r.label for r in outcome.runs] == ["FedAvg", "FedAvg"]
    assert protocol(groups(read_all([r.folder for r in outcome.runs])))[1] == []


def test_the_shared_model_alone_may_be_evaluated(tmp_path):
    table = {"algorithm": {"name": "APFL", "lr": 0.2}, "seeds": [0]}
    both = run_experiment(experiment(**table), tmp_path / "both")
    shared = run_experiment(experiment(**table, personal=False), tmp_path / "shared")
    assert [r.label for r in both.runs] == ["APFL", "Local only"]
    assert [r.label for r in shared.runs] == ["APFL"]
    rows = [json.loads(line) for line in (shared.folder / "metrics.jsonl").read_text().splitlines()]
    full = [json.loads(line) for line in (both.runs[0].folder / "metrics.jsonl").read_text().splitlines()]
    assert not any(key.startswith("personal_") for row in rows for key in row)
    assert len(rows) == len(full)
    for row, other in zip(rows, full, strict=True):
        assert {**other, **row, "seconds": 0} == {**other, "seconds": 0}  # what is left is the same to the bit
    ours, theirs = fedax.load(shared.folder).personal(1), fedax.load(both.runs[0].folder).personal(1)
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)  # and clients' models are kept all the same


def test_something_must_be_evaluated():
    with pytest.raises(FedaxError, match=r"personal is false: LocalOnly\(lr=0.1\) has no shared model"):
        experiment(algorithm={"name": "LocalOnly", "lr": 0.1}, personal=False)


def test_a_local_run_of_ones_own_is_the_yardstick(tmp_path):
    methods = [{"name": "APFL", "lr": 0.2}, {"name": "LocalOnly", "lr": 0.05, "label": "Mine"}]
    outcome = run_experiment(experiment(algorithm=methods, seeds=[0]), tmp_path / "out")
    assert [r.label for r in outcome.runs] == ["APFL", "Mine"]


def test_a_client_too_small_for_the_split_is_named(caplog):
    clients = [{"y": np.zeros(20, int)}, {"y": np.zeros(2, int)}, {"y": np.zeros(1, int)}]
    fedax.Federation.from_clients(clients, split=(0.7, 0.1, 0.2), names=["north", "south", "west"])
    (line,) = caplog.messages
    assert line.startswith("client 'south' has too few rows for the split (0.7, 0.1, 0.2): it gets ")
    assert "for test; 1 more clients likewise" in line
    caplog.clear()
    fedax.Federation.from_clients(clients[:1], split=(0.7, 0.1, 0.2))
    assert not caplog.messages


@pytest.mark.parametrize(
    ("count", "steps"), [(1, 0), (5, 0), (12, 0), (25, 0), (26, 0), (80, 0), (8, 3), (40, 5)], ids=str
)
def test_the_signed_rank_test_is_scipys(count, steps):
    for seed in range(10):
        gain = np.random.default_rng(seed).normal(0.3, 1, count)
        if steps:  # with ties, and zeros
            gain = np.round(gain * steps) / steps
            gain[0] = 1
        exact = count <= 25 and not steps
        expected = stats.wilcoxon(gain, method="exact" if exact else "approx").pvalue
        assert signed_rank(gain) == pytest.approx(expected, rel=1e-12)
    assert signed_rank(np.zeros(3)) == 1.0
