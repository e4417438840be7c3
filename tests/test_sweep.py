"""A sweep is the same as its runs one by one."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fedax
from conftest import LEAST_SQUARES, regression, vector
from fedax import experiments
from fedax.engine.sweeps import Settings
from fedax.models import model
from fedax.regularizers import L1, GroupLasso, L1Ball

OPTIONS = {"rounds": 5, "cohort": 3, "local_steps": 3, "batch_size": 4, "eval_every": 2}


@pytest.mark.parametrize("method", [fedax.SCAFFOLD(lr=0.1), fedax.APFL(lr=0.1, adaptive=True)], ids=repr)
def test_a_sweep_is_its_runs_one_by_one(method):
    settings = fedax.grid(method, {"lr": [0.01, 0.05, 0.1]})
    together = fedax.sweep(LEAST_SQUARES, regression(), settings, **OPTIONS)
    for algorithm, found in zip(settings, together, strict=True):
        alone = fedax.simulate(LEAST_SQUARES, regression(), algorithm, **OPTIONS)
        np.testing.assert_allclose(vector(found.model), vector(alone.model), rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(found.personal(2), alone.personal(2), rtol=1e-5, atol=1e-7)
        assert [row["round"] for row in found.history] == [0, 2, 4, 5]
        for mine, theirs in zip(found.history, alone.history, strict=True):
            assert mine["gradients"] == theirs["gradients"]
            assert mine["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-4)


def test_settings_side_by_side_come_back_as_often_as_a_run_does(monkeypatch):
    """For progress and Ctrl-C; how many rounds they do at a time changes no bit."""
    options = {**OPTIONS, "rounds": 12, "eval_every": 6}
    settings = fedax.grid(fedax.SCAFFOLD(lr=0.1), {"lr": [0.01, 0.1]})
    quick = fedax.sweep(LEAST_SQUARES, regression(), settings, **options)
    told = []
    monkeypatch.setattr("fedax.engine.lanes.pace", lambda rounds, seconds, most: 3)
    slow = fedax.sweep(LEAST_SQUARES, regression(), settings, **options, on_progress=told.append)
    assert told == [2 * rounds for rounds in (1, 4, 6, 9, 12)]  # of both settings
    for one, other in zip(quick, slow, strict=True):
        np.testing.assert_array_equal(vector(one.model), vector(other.model))
        assert [{**row, "seconds": 0} for row in one.history] == [{**row, "seconds": 0} for row in other.history]


@pytest.mark.parametrize(
    ("method", "psi"),
    [
        (fedax.FedDualAvg(lr=0.1), L1Ball(2.0, on="kernel")),
        (fedax.FedMiD(lr=0.1), GroupLasso(0.01, on="kernel")),
        (fedax.SCAFFOLD(lr=0.1), None),
        (fedax.APFL(lr=0.1, adaptive=True), None),
    ],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("clients", [{"local_steps": 3}, {"local_epochs": 2, "executor": "looped", "mode": "batched"}])
def test_kernels_carried_by_columns_are_the_same_kernels(method, psi, clients):
    """In lanes a kernel with fewer outputs than inputs goes through the steps turned; groups are still of its rows."""
    federation = fedax.data.load("digits", partition=fedax.data.Dirichlet(clients=6, alpha=0.5))
    problem = fedax.Problem(model("logistic", outputs=10), loss="cross_entropy", regularizer=psi)
    options = {"rounds": 3, "cohort": 3, "batch_size": 8, "eval_every": 3}
    settings = fedax.grid(method, {"lr": [0.02, 0.1]})
    together = fedax.sweep(problem, federation, settings, **options, **clients)
    clients = {name: value for name, value in clients.items() if name != "mode"}
    for algorithm, found in zip(settings, together, strict=True):
        alone = fedax.simulate(problem, federation, algorithm, **options, **clients)
        np.testing.assert_allclose(vector(found.model), vector(alone.model), rtol=1e-4, atol=1e-6)


def test_how_settings_are_run_is_a_matter_of_size():
    """Batched as clients are; in sequence where clients are looped over, or two settings' states exceed the budget."""

    def mode(**options):
        return Settings(LEAST_SQUARES, regression(), settings, **OPTIONS, **options)

    settings = fedax.grid(fedax.SCAFFOLD(lr=0.1), {"lr": np.linspace(0.01, 0.02, 70).tolist()})
    assert [len(block) for block in mode().blocks] == [64, 6]
    assert mode(executor="looped").mode == "sequence"
    two = (
        2 * 6 * 6 * 4 * mode().first.prepared.executor.devices
    )  # bytes of two settings' states: 6 clients, 6 floats each
    assert mode(state_budget=two).blocks[:2] == [range(2), range(2, 4)]
    assert mode(state_budget=two - 1).mode == "sequence"
    assert mode(executor="looped", mode="batched").mode == "batched"
    with pytest.raises(fedax.FedaxError, match="unknown mode 'batch': did you mean 'batched'"):
        mode(mode="batch")


def test_settings_in_sequence_are_settings_side_by_side():
    settings = fedax.grid(fedax.SCAFFOLD(lr=0.1), {"lr": [0.01, 1e6, 0.1]})
    seen = []
    options = {**OPTIONS, "rounds": 30, "eval_every": 10}
    one, other = (
        fedax.sweep(LEAST_SQUARES, regression(), settings, mode=mode, on_progress=seen.append, **options)
        for mode in ("sequence", "batched")
    )
    assert seen == sorted(seen[: seen.index(90) + 1]) + sorted(seen[seen.index(90) + 1 :])
    for mine, theirs in zip(one, other, strict=True):
        assert (mine.info["mode"], theirs.info["mode"]) == ("sequence", "batched")
        assert mine.info.get("diverged") == theirs.info.get("diverged")
        assert [row["round"] for row in mine.history] == [row["round"] for row in theirs.history]
        if "diverged" not in mine.info:
            np.testing.assert_allclose(vector(mine.model), vector(theirs.model), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", [fedax.PFedFBE(lr=0.01, lam=80.0), fedax.Ditto(lr=0.01, lam=1.0)], ids=repr)
def test_clients_own_models_are_measured_in_every_lane(method):
    """The rows of a composite problem, those of personal supports among them, are the single runs'."""
    federation = fedax.data.lasso("pfedfbe-II", dimension=20, clients=4, rows=16, test_rows=4)
    problem = fedax.Problem(model("linear", outputs=1), loss="mse", regularizer=L1(0.1))
    settings = fedax.grid(method, {"lr": [0.001, 0.01]})
    together = fedax.sweep(problem, federation, settings, **OPTIONS)
    supports = set()
    for algorithm, found in zip(settings, together, strict=True):
        alone = fedax.simulate(problem, federation, algorithm, **OPTIONS)
        for mine, theirs in zip(found.history, alone.history, strict=True):
            assert {"personal_density", "personal_f1", "personal_test_loss_worst"} <= set(mine) == set(theirs)
            for name in set(mine) - {"seconds"}:
                assert mine[name] == pytest.approx(theirs[name], rel=1e-3), name
        supports.add(found.history[-1]["personal_recovery_error"])
    assert len(supports) == 2


def test_a_kept_setting_has_its_clients_metrics(tmp_path):
    """clients.json of a sweep's best is that of a run with the same values."""
    table = {
        **{"rounds": 3, "local_steps": 2, "eval_every": 3},
        "data": {"name": "lasso", "preset": "pfedfbe-II", "dimension": 20, "clients": 4, "rows": 16, "test_rows": 4},
        "model": {"name": "linear"},
        "problem": {"loss": "mse", "regularizer": {"name": "L1", "strength": 0.1}},
        "algorithm": [{"name": "Ditto", "lr": 0.01, "lam": 1.0}, {"name": "FedAvg", "lr": 0.01}],
    }
    experiments.sweep(experiments.parse({**table, "sweep": {"lr": [0.01]}}), tmp_path / "sweep")
    experiments.run(experiments.parse(table), tmp_path / "run")
    for name in ("ditto-seed0", "fedavg-seed0"):
        kept, alone = (
            json.loads((tmp_path / kind / "runs" / name / "clients.json").read_text())["values"]
            for kind in ("sweep", "run")
        )
        assert list(kept) == list(alone) == (["test", "personal_test"] if name == "ditto-seed0" else ["test"])
        for part in kept:
            assert kept[part]["loss"] == pytest.approx(alone[part]["loss"], rel=1e-4)


def test_a_setting_that_diverges_stops_alone():
    settings = fedax.grid(fedax.FedAvg(lr=0.1), {"lr": [0.05, 1e6, 0.1]})
    found = fedax.sweep(LEAST_SQUARES, regression(), settings, **OPTIONS | {"rounds": 60, "eval_every": 10})
    assert [("diverged" in r.info) for r in found] == [False, True, False]
    assert found[0].history[-1]["round"] == found[2].history[-1]["round"] == 60
    assert found[1].history[-1]["round"] < 60
    alone = fedax.simulate(LEAST_SQUARES, regression(), settings[2], **OPTIONS | {"rounds": 60, "eval_every": 10})
    np.testing.assert_allclose(found[2].model, alone.model, rtol=1e-4, atol=1e-6)


def test_progress_and_bad_input():
    seen = []
    settings = fedax.grid(fedax.FedAvg(lr=0.1), {"lr": [0.1, 0.2], "server_lr": [0.5, 1.0]})
    fedax.sweep(LEAST_SQUARES, regression(), settings, on_progress=seen.append, **OPTIONS)
    assert seen[-1] == 4 * 5
    with pytest.raises(fedax.FedaxError, match="no field 'rate' to sweep over"):
        fedax.grid(fedax.FedAvg(lr=0.1), {"rate": [1.0]})
    with pytest.raises(fedax.FedaxError, match="differ in numbers alone, not 2 kinds"):
        fedax.sweep(LEAST_SQUARES, regression(), [fedax.SCAFFOLD(0.1), fedax.SCAFFOLD(0.1, option="I")], **OPTIONS)
    with pytest.raises(fedax.FedaxError, match="executor='debug' is for single runs"):
        fedax.sweep(LEAST_SQUARES, regression(), settings, executor="debug", **OPTIONS)
