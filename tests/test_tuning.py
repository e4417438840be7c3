"""Tuning before a comparison: on validation rows, over what is declared, at a cost that is told."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedax
from fedax.algorithms import ALGORITHMS
from fedax.algorithms.hyperparameters import value_of
from fedax.cli import invoke
from fedax.errors import FedaxError
from fedax.experiments import Progress, parse, prepare, tuning
from fedax.experiments.building import options
from fedax.experiments.file_tables import AlgorithmTable
from fedax.experiments.grids import TuneTable, grid_of, with_values
from fedax.experiments.interrupts import Stopped
from fedax.experiments.sweep_table import SweepTable
from fedax.experiments.tuning import tune

TABLE = {
    "rounds": 4,
    "cohort": 2,
    "local_steps": 2,
    "batch_size": 5,
    "seeds": [0, 2],
    "data": {"name": "iris", "partition": {"name": "IID", "clients": 3}, "split": [0.4, 0.3, 0.3]},
    "model": {"name": "logistic"},
    "algorithm": [{"name": "FedAvg", "lr": 0.01}, {"name": "FedProx", "lr": 0.01, "mu": 1.0}],
    "tune": {"lr": [0.001, 0.01, 0.1], "FedProx": {"mu": [0.1, 30.0]}, "metric": "validation_loss"},
}
FILE = """
rounds = 4
cohort = 2
local_steps = 2
batch_size = 5
seeds = [0, 2]
data = { name = "iris", partition = { name = "IID", clients = 3 }, split = [0.4, 0.3, 0.3] }
model.name = "logistic"
[[algorithm]]
name = "FedAvg"
lr = 0.01
[[algorithm]]
name = "SCAFFOLD"
lr = 0.01
[tune]
lr = [0.001, 0.1]
"""


def test_every_method_declares_a_grid_of_values_that_it_takes() -> None:
    for name, cls in ALGORITHMS.items():
        needed = [f for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING]  # type: ignore[arg-type]
        given = {
            f.name: {"name": "FedAvg", "lr": 0.1} if f.name == "base" else 1 if f.name == "steps" else 0.1
            for f in needed
        }
        table = AlgorithmTable(name=name, label=name, **given)
        grid = grid_of(table)
        assert grid, name
        for field, values in grid.items():
            assert len(set(values)) == len(values) > 1
            for value in values:
                assert value_of(with_values(table, {field: value}).build(), field) == value


def test_the_file_has_the_last_word_on_the_values() -> None:
    table, swept = AlgorithmTable(name="FedAvg", label="FedAvg", lr=0.1), SweepTable(server_lr=[1, 2])
    assert grid_of(table) == {"lr": [0.01, 0.03, 0.1, 0.3, 1.0]}
    assert grid_of(table, None, swept) == {"server_lr": [1.0, 2.0]}
    assert grid_of(table, TuneTable(lr=[1, 3]), swept) == {"lr": [1.0, 3.0]}


def test_a_method_is_tuned_by_the_fields_of_its_base() -> None:
    robust = {"name": "Robust", "base": {"name": "FedAvg", "lr": 0.01}}
    table = AlgorithmTable(label="Robust", **robust)
    assert grid_of(table, TuneTable(lr=[1, 3], Robust={"trim": [0.1, 0.2]})) == {"lr": [1.0, 3.0], "trim": [0.1, 0.2]}
    assert grid_of(table, TuneTable(**{"base": {"lr": [1, 3]}})) == {"base.lr": [1.0, 3.0]}
    assert grid_of(table, TuneTable(lr=[1], **{"base.lr": [1, 3]})) == {"base.lr": [1.0, 3.0]}
    swept = parse({**TABLE, "algorithm": [robust], "tune": None, "sweep": {"lr": [0.1, 0.2]}})
    assert swept.sweep is not None
    methods = [method for _, method in swept.sweep.settings(swept.algorithm[0])]
    assert methods == [fedax.Robust(fedax.FedAvg(lr=lr)) for lr in (0.1, 0.2)]
    with pytest.raises(FedaxError, match="field of \\[sweep\\] for Robust 'ratte'"):
        parse({**TABLE, "algorithm": [robust], "tune": None, "sweep": {"ratte": [0.1]}})


def test_the_chosen_setting_is_the_best_of_runs_one_by_one(tmp_path: Path) -> None:
    experiment = parse(TABLE)
    tuned, found = tune(experiment, tmp_path / "out")
    problem, federation = prepare(experiment)
    for table, how in zip(experiment.algorithm, found, strict=True):
        scores = {}
        for lr in (0.001, 0.01, 0.1):
            for mu in (0.1, 30.0) if table.name == "FedProx" else (None,):
                method = dataclasses.replace(table.build(), lr=lr, **({} if mu is None else {"mu": mu}))  # type: ignore[type-var]
                history = fedax.simulate(problem, federation, method, **options(experiment, 1)).history
                scores[lr, mu] = history[-1]["validation_loss"]
        best = min(scores, key=lambda setting: scores[setting])
        assert (how.chosen["lr"], how.chosen.get("mu")) == best
        assert how.score == pytest.approx(scores[best], rel=1e-5)
        assert (how.runs, how.diverged, how.seed, how.metric) == (len(scores), 0, 1, "validation_loss")
        assert ("lr" in how.edge) == (best[0] != 0.01)
    assert [one.chosen for one in found] == [
        {n: t.options[n] for n in f.chosen} for t, f in zip(tuned.algorithm, found, strict=True)
    ]


def test_test_rows_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With test rows that are not numbers any look at them would be seen: the loss on them is NaN."""
    experiment = parse(TABLE)
    _, plain = tune(experiment, tmp_path / "plain")

    def spoiled(experiment: Any) -> Any:
        problem, federation = prepare(experiment)
        rows = federation.part("test")
        arrays = {**federation.arrays, "x": np.array(federation.arrays["x"])}
        for start, count in zip(rows.start, rows.count, strict=True):
            arrays["x"][start : start + count] = np.nan
        return problem, dataclasses.replace(federation, arrays=arrays)

    monkeypatch.setattr(tuning, "prepare", spoiled)
    _, blind = tune(experiment, tmp_path / "blind")
    assert blind == plain


def test_a_run_that_diverges_is_not_chosen_and_all_of_them_is_an_error(tmp_path: Path) -> None:
    regression = {
        **TABLE,
        "data": {"name": "diabetes", "split": [0.4, 0.3, 0.3]},
        "model": {"name": "linear"},
        "rounds": 40,
    }
    regression["algorithm"] = [{"name": "FedAvg", "lr": 0.01}]
    _, (found,) = tune(parse({**regression, "tune": {"lr": [0.01, 1e8]}}), tmp_path / "some")
    assert (found.chosen, found.diverged, found.runs) == ({"lr": 0.01}, 1, 2)
    with pytest.raises(FedaxError, match="every setting of FedAvg diverged"):
        tune(parse({**regression, "tune": {"lr": [1e8, 1e9]}}), tmp_path / "all")


def test_an_edge_that_is_the_end_of_what_is_allowed_is_no_warning(tmp_path: Path) -> None:
    """At the end of a hundred steps of a convex problem more of a fresh gradient is better than next to none."""
    only = {**TABLE, "algorithm": [{"name": "FedCM", "lr": 0.01, "alpha": 0.5}], "rounds": 50}
    _, (found,) = tune(parse({**only, "tune": {"alpha": [1e-6, 1.0], "metric": "validation_loss"}}), tmp_path / "out")
    assert (found.chosen, found.edge) == ({"alpha": 1.0}, ())


class Stop(Progress):
    """Presses Ctrl-C, as it were, when the second method begins."""

    def start(self, run: Any) -> None:
        if run.label == "FedProx":
            raise Stopped


def test_tuning_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, experiment = tmp_path / "out", parse(TABLE)
    with pytest.raises(Stopped):
        tune(experiment, out, progress=Stop())
    ran = []
    before = tuning.Settings.run

    def counted(self: Any, block: range, **how: Any) -> None:
        ran.append(type(self.algorithms[0]).__name__)
        before(self, block, **how)

    monkeypatch.setattr(tuning.Settings, "run", counted)
    _, found = tune(experiment, out)
    assert ran == ["FedProx"]
    assert found == tune(experiment, tmp_path / "anew")[1]
    with pytest.raises(FedaxError, match=r"another experiment: .*lr was \[0.001, 0.01, 0.1\]"):
        tune(parse({**TABLE, "tune": {**TABLE["tune"], "lr": [0.1, 0.2]}}), out)  # type: ignore[dict-item]


def test_optuna_searches_the_ranges_and_goes_on(tmp_path: Path) -> None:
    only = parse({**TABLE, "algorithm": [{"name": "FedProx", "lr": 0.01, "mu": 1.0}]})
    _, (found,) = tune(only, tmp_path / "two", trials=2)
    assert (found.how, found.runs) == ("searched", 2)
    assert found.tried == {"lr": [0.001, 0.1], "mu": [0.1, 30.0]}
    log = tmp_path / "two" / "tuning" / "fedprox.jsonl"
    first = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    (tmp_path / "two" / "tuning.json").unlink()
    _, (more,) = tune(only, tmp_path / "two", trials=4)
    trials = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    assert trials[:2] == first
    assert more.runs == len({trial["setting"]["lr"] for trial in trials}) == 4, "no setting is asked for twice"
    for trial in trials:
        assert 0.001 <= trial["setting"]["lr"] <= 0.1
        assert 0.1 <= trial["setting"]["mu"] <= 30
    assert more.chosen == min(trials, key=lambda trial: trial["score"])["setting"]
    import optuna

    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(log.with_suffix(".optuna")))
    )
    study = optuna.load_study(study_name="tuning", storage=storage)
    assert [trial.value for trial in study.trials] == [trial["score"] for trial in trials]
    assert [one.chosen for one in tune(only, tmp_path / "again", trials=2)[1]] == [found.chosen], "seeded"


def test_the_command_tunes_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file.toml").write_text(FILE)
    assert invoke(["compare", "file.toml", "--tune", "--budget", "floats", "--out", "fair"]) == 0, (
        capsys.readouterr().err
    )
    said = capsys.readouterr().out
    assert "test rows were not looked at" in said
    assert "of 2 runs over lr 0.001, 0.1. lr is at the edge of what was tried." in said
    for method in json.loads(Path("fair/tuning.json").read_text()):
        resolved = json.loads(Path(f"fair/runs/{method['label'].lower()}-seed2/experiment.json").read_text())
        assert resolved["algorithm"]["lr"] == method["chosen"]["lr"]
        assert method["seed"] == 1
    assert resolved["algorithm"]["rounds"] == 2, "SCAFFOLD was tuned with the rounds that it is compared with"
    trial = json.loads(Path("fair/tuning/scaffold.jsonl").read_text().splitlines()[1])
    plain = json.loads(Path("fair/tuning/fedavg.jsonl").read_text().splitlines()[1])
    sent = [one["last"]["floats_up"] + one["last"]["floats_down"] for one in (trial, plain)]
    assert sent[0] == sent[1]
    assert "test rows were not looked at" in Path("fair/report.html").read_text()


def test_ctrl_c_while_tuning_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pressed(*on: Any, **how: Any) -> None:
        raise Stopped

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tuning.Settings, "run", pressed)
    Path("file.toml").write_text(FILE)
    assert invoke(["compare", "file.toml", "--tune"]) == 130
    (line,) = capsys.readouterr().err.splitlines()
    assert "interrupted while tuning; the same command with --out runs/file goes on" in line
    assert Path("runs/file/tuning/fedavg.jsonl").exists()


BAD = {
    "unknown way": (["--tune", "otuna"], ["otuna", "did you mean 'optuna'"]),
    "trials of a grid": (["--tune", "--trials", "3"], ["--trials", "optuna"]),
    "trials alone": (["--trials", "3"], ["--trials", "--tune optuna"]),
    "a reported seed": (["--tune", "--set", "tune.seed=2"], ["tune.seed", "2"]),
    "unknown field": (["--tune", "--set", "tune.rl=[1]"], ["[tune]", "rl", "did you mean 'lr'"]),
    "a bad value": (["--tune", "--set", "tune.lr=[-1, 1]"], ["tune.lr", "-1"]),
    "not a list": (["--tune", "--set", "tune.lr=3"], ["tune.lr", "3", "list"]),
    "test rows": (["--tune", "--set", "tune.metric=test_loss"], ["tune.metric", "validation"]),
    "unknown metric": (["--tune", "--set", "tune.metric=validation_lost"], ["did you mean 'validation_loss'"]),
    "no validation rows": (["--tune", "--set", "data.split=[0.7, 0.0, 0.3]"], ["validation rows", "data.split"]),
    "no such package": (["--tune", "optuna"], ["pip install 'fedax[tune]'"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "optuna", None)
    Path("file.toml").write_text(FILE)
    options, words = BAD[case]
    assert invoke(["compare", "file.toml", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert all(word in line for word in words), line
    assert not Path("runs").exists()


def test_one_run_alone_is_not_tuned(tmp_path: Path) -> None:
    with pytest.raises(FedaxError, match="several methods or several seeds"):
        tune(parse({**TABLE, "algorithm": [{"name": "FedAvg", "lr": 0.1}], "seeds": [0], "tune": {}}), tmp_path / "out")
