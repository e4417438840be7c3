"""Experiment files and the runner: what a file says is what runs."""

from __future__ import annotations

import json
import math
import os
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import fedax
from fedax.data import IID
from fedax.experiments import Progress, Run, parse, prepare, read, run
from fedax.experiments.execute import Outcome
from fedax.experiments.interrupts import Stopped, deferred
from fedax.models import model
from fedax.runs.reading import run_folders

EXAMPLES = sorted((Path(__file__).parents[1] / "experiments").glob("*.toml"))


def flowers(**changes: Any) -> dict[str, Any]:
    return {
        "rounds": 4,
        "local_steps": 2,
        "batch_size": 5,
        "data": {"name": "iris", "partition": {"name": "IID", "clients": 3}},
        "model": {"name": "logistic"},
        "algorithm": [{"name": "FedAvg", "lr": 0.1}],
        **changes,
    }


def test_a_run_of_a_file_is_the_simulation_it_describes(tmp_path: Path) -> None:
    experiment = parse(flowers(cohort=2, weighted=True, sampling="iid", seeds=[3]))
    outcome = run(experiment, tmp_path / "out")
    federation = fedax.data.load("iris", partition=IID(3))
    problem = fedax.Problem(model("logistic", outputs=3), loss="cross_entropy")
    direct = fedax.simulate(
        problem,
        federation,
        fedax.FedAvg(lr=0.1),
        rounds=4,
        cohort=2,
        local_steps=2,
        batch_size=5,
        sampling="iid",
        weighted=True,
        seed=3,
    )
    kept = fedax.load(outcome.folder)
    jax.tree.map(np.testing.assert_array_equal, kept.model, direct.model)
    assert outcome.runs[0].metrics["test_loss"] == direct.history[-1]["test_loss"]


def test_a_run_in_a_comparison_is_the_run_alone(tmp_path: Path) -> None:
    methods = [{"name": "APFL", "lr": 0.2}, {"name": "FedAvg", "lr": 0.1}]
    both = run(parse(flowers(algorithm=methods, seeds=[1, 0])), tmp_path / "both")
    alone = run(parse(flowers()), tmp_path / "alone")
    names = [(r.label, r.seed) for r in both.runs]
    assert names[:4] == [("APFL", 1), ("APFL", 0), ("FedAvg", 1), ("FedAvg", 0)]
    assert names[4:] == [("Local only", 1), ("Local only", 0)]  # the yardstick of personal models
    pair = fedax.load(both.runs[3].folder).model, fedax.load(alone.folder).model
    jax.tree.map(np.testing.assert_array_equal, *pair)


def test_run_folders_keep_the_order_of_the_experiment(tmp_path: Path) -> None:
    experiment = parse(flowers(rounds=1, seeds=[10, 9]))
    outcome = run(experiment, tmp_path / "out")
    assert run_folders(tmp_path / "out") == [r.folder for r in outcome.runs]
    assert run_folders(outcome.runs[0].folder) == [outcome.runs[0].folder]


def test_everything_is_checked_before_anything_runs(tmp_path: Path) -> None:
    started: list[Run] = []

    class Watch(Progress):
        def start(self, run: Run) -> None:
            started.append(run)

    methods = [{"name": "FedAvg", "lr": 0.1}, {"name": "SCAFFOLD", "lr": 0.1}]
    with pytest.raises(fedax.FedaxError, match="cohort=4"):
        run(parse(flowers(algorithm=methods, cohort=4)), tmp_path / "out", progress=Watch())
    with pytest.raises(fedax.FedaxError, match=r"algorithm\.1: SCAFFOLD: lr must be in \(0, inf\), not -1"):
        parse(flowers(algorithm=[methods[0], {"name": "SCAFFOLD", "lr": -1}]))
    assert not started
    assert not (tmp_path / "out").exists()


def test_labels_are_made_distinct() -> None:
    method = {"name": "fedavg", "lr": 0.1}
    labels = ["a b", "A-B"]
    tables = [method, method, method, *({**method, "label": label} for label in labels)]
    made = [table.label for table in parse(flowers(algorithm=tables)).algorithm]
    assert made == ["FedAvg", "FedAvg 2", "FedAvg 3", "a b", "A-B 2"]


def test_whole_numbers_are_rates_too() -> None:
    (table,) = parse(flowers(algorithm={"name": "APFL", "lr": 1, "alpha": 0})).algorithm
    made = table.build()
    assert [type(leaf) for leaf in jax.tree.leaves(made)] == [float, float, float]


def test_schedules_are_read() -> None:
    rate = {"kind": "exponential", "initial": 0.1, "decay": 0.9, "per": "step"}
    (table,) = parse(flowers(algorithm={"name": "FedAvg", "lr": rate})).algorithm
    made: Any = table.build()
    assert made.lr(round=1, step=2, steps=3) == pytest.approx(0.1 * 0.9**5)
    assert table.resolved()["lr"] == rate


@pytest.mark.parametrize(
    ("data", "loss", "name", "outputs"),
    [
        ("digits", None, "cross_entropy", 10),
        ("diabetes", None, "squared", 1),
        ("breast_cancer", "logistic", "logistic", 1),
        ("diabetes", "mse", "mse", 1),
        ("breast_cancer", None, "cross_entropy", 2),
    ],
)
def test_loss_and_outputs_follow_from_the_data(data: str, loss: str | None, name: str, outputs: int) -> None:
    problem = {} if loss is None else {"problem": {"loss": loss}}
    made, _ = prepare(parse(flowers(data={"name": data}, **problem)))
    assert (made.name, made.model.outputs) == (name, outputs)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_can_be_run(path: Path) -> None:
    experiment = read(path)
    if experiment.data.name == "haxby" and not os.environ.get("FEDAX_DATA"):
        pytest.skip("needs FEDAX_DATA")
    if experiment.data.options.get("preset"):
        experiment = read(path, [("data.clients", "12"), ("data.rows", "10")])
    problem, federation = prepare(experiment)
    for table in experiment.algorithm:
        fedax.Simulation(problem, federation, table.build(), rounds=1, cohort=experiment.cohort)
        if experiment.sweep is not None:
            assert len(experiment.sweep.settings(table)) == math.prod(map(len, experiment.sweep.values.values()))


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ('"x"', "x"),
        ("plain words", "plain words"),
    ],
)
def test_settings_are_toml_values_or_text(tmp_path: Path, text: str, value: Any) -> None:
    path = tmp_path / "one.toml"
    path.write_text("rounds = 1")
    from fedax.experiments.reading import override

    table: dict[str, Any] = {}
    override(table, "algorithm.x", text)
    assert table == {"algorithm": {"x": value}}


def test_a_file_without_a_name_takes_that_of_the_file(tmp_path: Path) -> None:
    text = 'rounds = 1\ndata.name = "iris"\nmodel.name = "logistic"\nalgorithm = {name = "FedAvg", lr = 0.1}\n'
    (tmp_path / "flowers.toml").write_text(text)
    assert read(tmp_path / "flowers.toml").name == "flowers"
    assert read(tmp_path / "flowers.toml", [("algorithm.0.lr", "1")]).algorithm[0].options == {"lr": 1}


class StopAfter(Progress):
    """Press Ctrl-C once a run has done some rounds."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.told = 0

    def advance(self, rounds: int) -> None:
        import signal

        if rounds >= self.rounds and not self.told:
            signal.raise_signal(signal.SIGINT)

    def stopping(self) -> None:
        self.told += 1


def test_ctrl_c_ends_the_run_after_its_round_and_begins_no_other(tmp_path: Path) -> None:
    progress = StopAfter(2)
    outcome = run(parse(flowers(rounds=500, seeds=[0, 1])), tmp_path / "out", progress=progress)
    assert progress.told == 1
    assert outcome.interrupted
    assert [r.status for r in outcome.runs] == ["interrupted"]
    kept = fedax.load(outcome.runs[0].folder)
    assert 2 <= kept.info["rounds"] == outcome.runs[0].round < 500
    assert run_folders(tmp_path / "out") == [outcome.runs[0].folder]


def test_a_second_ctrl_c_does_not_wait() -> None:
    with deferred(lambda: None) as interrupt:
        interrupt.check()
        interrupt.handle()
        with pytest.raises(Stopped):
            interrupt.check()
        with pytest.raises(KeyboardInterrupt):
            interrupt.handle()


def test_an_experiment_runs_outside_the_main_thread(tmp_path: Path) -> None:
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(run(parse(flowers(rounds=1)), tmp_path / "out")))
    thread.start()
    thread.join()
    assert [r.status for r in outcomes[0].runs] == ["finished"]


def test_generated_data_come_divided_with_every_size_written_out() -> None:
    table = {"name": "low_rank", "preset": "thesis-II", "dimension": 6, "clients": 3, "rows": 5, "seed": 4}
    experiment = parse(flowers(data=table, model={"name": "trace"}))
    _, federation = prepare(experiment)
    direct = fedax.data.low_rank("thesis-II", dimension=6, clients=3, rows=5, seed=4)
    np.testing.assert_array_equal(federation.arrays["x"], direct.arrays["x"])
    resolved = experiment.model_dump()["data"]
    assert {**resolved, **table} == resolved
    assert (resolved["ones"], resolved["test_rows"], resolved["partition"]) == (4, 32, None)


def test_a_composite_problem_is_what_the_file_says(tmp_path: Path) -> None:
    table = flowers(
        data={"name": "lasso", "preset": "thesis-III", "dimension": 16, "clients": 4, "rows": 6, "test_rows": 3},
        model={"name": "linear"},
        problem={"loss": "mse", "regularizer": {"name": "l1", "strength": 1, "on": "kernel"}},
        zero_below=0.5,
        eval_on=["train", "test"],
        algorithm={"name": "FedDualAvg", "lr": 0.01},
    )
    outcome = run(parse(table), tmp_path / "out")
    row = outcome.runs[0].metrics
    assert {"train_loss", "test_loss", "train_objective", "f1"} <= set(row)
    kernel = np.asarray(fedax.load(outcome.folder).model["params"]["Dense_0"]["kernel"])
    assert row["density"] == np.mean(np.abs(kernel) > 0.5) < np.mean(np.abs(kernel) > 0.01)
    assert row["test_objective"] == pytest.approx(row["test_loss"] + np.abs(kernel).sum(), rel=1e-5)
    resolved = json.loads((outcome.folder / "experiment.json").read_text())
    psi = {"name": "L1", "on": "kernel", "strength": 1}
    assert resolved["problem"] == {
        "loss": "mse",
        "regularizer": psi,
        "augment": None,
        "gradients": None,
        "metrics": [],
        "trainable": None,
    }


def test_a_bound_that_is_infinite_is_written_as_a_word(tmp_path: Path) -> None:
    psi = {"name": "Box", "low": -1, "high": float("inf")}
    outcome = run(parse(flowers(problem={"regularizer": psi}, algorithm={"name": "FedMiD", "lr": 0.1})), tmp_path / "o")
    resolved = json.loads((outcome.folder / "experiment.json").read_text())
    assert resolved["problem"]["regularizer"]["high"] == "inf"


def test_a_report_that_cannot_be_written_does_not_hide_why_a_run_failed(tmp_path: Path) -> None:
    """A full disk: the run's own message says which file did not fit, and with which command it goes on."""
    out = run(parse(flowers(rounds=1)), tmp_path / "out").folder
    (out / "report.html").unlink()
    (out / "report.html").mkdir()
    with pytest.raises(fedax.FedaxError, match=r"report\.html cannot be written"):
        Outcome(out, [Run("FedAvg", 0, out, "finished")], False, 1).report()
    assert Outcome(out, [Run("FedAvg", 0, out, "failed")], False, 1).report() is None
