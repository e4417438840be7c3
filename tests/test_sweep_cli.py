"""`fedax sweep`: grids of settings from an experiment file, as a user types it."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from rich.console import Console

import fedax
from fedax.cli import invoke
from fedax.cli.progress import Lines, Live, watch
from fedax.experiments import Progress, Run, parse, read, sweep
from fedax.experiments.judging import Judge

SPARSE = """
rounds = 6
cohort = 4
local_epochs = 1
batch_size = 8
eval_every = 2

[data]
name = "lasso"
preset = "thesis-III"
dimension = 32
clients = 6
rows = 24
test_rows = 4

[model]
name = "linear"

[problem]
loss = "mse"
regularizer = { name = "L1", strength = 0.3, on = "kernel" }

[[algorithm]]
name = "FedMiD"
lr = 0.01

[[algorithm]]
name = "FedDualAvg"
lr = 0.01

[sweep]
lr = [0.001, 0.01, 1000]
server_lr = [0.3, 1]
metric = "f1"
over = 3
target = 0.4
"""
NO_SWEEP = SPARSE.split("[sweep]")[0]


class Said(NamedTuple):
    code: int
    out: str
    err: str


Fedax = Callable[..., Said]


@pytest.fixture
def type_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fedax:
    """Type a command in a directory that holds sparse.toml and plain.toml, which has no [sweep]."""
    monkeypatch.chdir(tmp_path)
    Path("sparse.toml").write_text(SPARSE)
    Path("plain.toml").write_text(NO_SWEEP)

    def type_(*words: str) -> Said:
        code = invoke(words)
        return Said(code, *capsys.readouterr())

    return type_


def small(**changes: Any) -> dict[str, Any]:
    import tomllib

    table = tomllib.loads(SPARSE)
    table["sweep"] |= changes.pop("sweep", {})
    return table | changes


def lines(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_sweep_leaves_tables_runs_and_a_report(type_: Fedax) -> None:
    said = type_("sweep", "sparse.toml")
    assert (said.code, said.err) == (0, "")
    assert "Support F1" in said.out
    assert "mean over the last 3 rounds" in said.out
    assert "2 of 6" in said.out
    folder = Path("runs/sparse")
    rows = lines(folder / "sweep.csv")
    assert [(row["algorithm"], row["lr"], row["server_lr"]) for row in rows] == [
        (method, lr, rate)
        for method in ("FedMiD", "FedDualAvg")
        for lr in ("0.001", "0.01", "1000.0")
        for rate in ("0.3", "1.0")
    ]
    for row in rows:
        assert bool(row["diverged"]) == (row["score"] == "") == (row["lr"] == "1000.0")
    about = json.loads((folder / "experiment.json").read_text())
    assert about["runs"] == ["fedmid-seed0", "feddualavg-seed0"]
    assert about["sweep"] == {
        "metric": "f1",
        "goal": "max",
        "over": 3,
        "target": 0.4,
        "mode": "auto",
        "lr": [0.001, 0.01, 1000.0],
        "server_lr": [0.3, 1.0],
    }
    for name in ("FedMiD", "FedDualAvg"):
        own = [row for row in rows if row["algorithm"] == name and row["score"]]
        best = max(own, key=lambda row: float(row["score"]))
        run = folder / "runs" / f"{name.lower()}-seed0"
        chosen = json.loads((run / "experiment.json").read_text())
        assert "sweep" not in chosen
        assert float(best["score"]) == max(float(row["score"]) for row in own)
        picked = {key: chosen["algorithm"][key] for key in ("lr", "server_lr")}
        (scored,) = [r for r in own if picked == {k: float(r[k]) for k in picked}]
        assert scored["score"] == best["score"]
        kept = fedax.load(run)
        assert [row["round"] for row in kept.history] == [0, 2, 4, 6]
        assert np.mean([row["f1"] for row in kept.history[2:]]) == pytest.approx(float(best["score"]))
        assert str(kept.history[-1]["density"]) == scored["density"]
        clients = json.loads((run / "clients.json").read_text())
        assert len(clients["values"]["test"]["loss"]) == 6
        reached = [row["round"] for row in kept.history if row["f1"] >= 0.4]
        assert scored["rounds_to_target"] == (str(reached[0]) if reached else "")
    histories = [json.loads(line) for line in (folder / "histories.jsonl").read_text().splitlines()]
    whole = [row for row in histories if row["lr"] == 0.01 and row["algorithm"] == "FedMiD" and row["server_lr"] == 1]
    assert [row["round"] for row in whole] == [0, 2, 4, 6]
    assert "Sweep" in (folder / "report.html").read_text()
    assert type_("report", str(folder)).code == 0


def test_the_best_of_a_sweep_is_the_run_alone(tmp_path: Path) -> None:
    swept = sweep(parse(small(algorithm={"name": "FedDualAvg", "lr": 1.0})), tmp_path / "swept")
    (best,) = swept.methods
    assert best.setting is not None
    alone = fedax.experiments.run(parse(small(algorithm={"name": "FedDualAvg", **best.setting})), tmp_path / "alone")
    one, other = fedax.load(best.folders[0]), fedax.load(alone.folder)
    for key in ("test_loss", "recovery_error", "prox_gradient"):
        assert one.history[-1][key] == pytest.approx(other.history[-1][key], rel=1e-4)
    assert json.loads((best.folders[0] / "experiment.json").read_text()) == json.loads(
        (alone.folder / "experiment.json").read_text()
    )
    shared = [json.loads((f / "clients.json").read_text())["values"]["test"] for f in (best.folders[0], alone.folder)]
    np.testing.assert_allclose(shared[0]["loss"], shared[1]["loss"], rtol=1e-4)


def test_seeds_are_judged_together(tmp_path: Path) -> None:
    table = small(seeds=[0, 3], sweep={"metric": "test_objective", "goal": "min", "target": None, "over": None})
    table["sweep"] = {k: v for k, v in table["sweep"].items() if v is not None}
    swept = sweep(parse(table).only(["feddualavg"]), tmp_path / "out")
    (best,) = swept.methods
    assert [path.name for path in best.folders] == ["feddualavg-seed0", "feddualavg-seed3"]
    means: dict[tuple[str, str], list[float]] = {}
    for row in lines(tmp_path / "out/sweep.csv"):
        means.setdefault((row["lr"], row["server_lr"]), []).append(float(row["score"] or math.inf))
    assert best.setting is not None
    lowest = min(means, key=lambda at: np.mean(means[at]))
    assert tuple(map(str, best.setting.values())) == lowest
    assert best.reached == (None, None)


def test_ties_go_to_the_setting_that_reached_the_target_first() -> None:
    judge = Judge("f1", "max", rounds=10, target=1.0)
    late, early = judge.order([1.0], [9]), judge.order([1.0], [4])
    assert early < late < judge.order([0.9], [1])
    assert judge.score([{"round": 9, "f1": 1.0}]) != judge.score([{"round": 9, "f1": 1.0}])  # NaN: it did not finish


@pytest.mark.parametrize(
    ("columns", "metric", "goal"),
    [
        (["round", "test_loss", "test_accuracy"], "test_accuracy", "max"),
        (["round", "test_loss", "test_objective", "density"], "test_objective", "min"),
        (["round", "personal_test_loss", "train_loss"], "personal_test_loss", "min"),
    ],
)
def test_what_decides_by_default(columns: list[str], metric: str, goal: str) -> None:
    from fedax.experiments.judging import judge
    from fedax.experiments.sweep_table import SweepTable

    decides = judge(SweepTable(lr=[0.1]), 5, [columns])
    assert (decides.metric, decides.goal) == (metric, goal)


class Press(Progress):
    """Press Ctrl-C in the middle of one run's grid."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.current = ""
        self.pressed = 0

    def start(self, run: Run) -> None:
        self.current = run.label

    def advance(self, rounds: int) -> None:
        if self.current == self.label and not self.pressed:
            self.pressed += 1
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_keeps_the_grids_that_are_done(tmp_path: Path) -> None:
    swept = sweep(parse(small()), tmp_path / "out", progress=Press("FedDualAvg"))
    assert swept.interrupted
    assert [best.label for best in swept.methods] == ["FedMiD"]
    assert {row["algorithm"] for row in lines(tmp_path / "out/sweep.csv")} == {"FedMiD"}
    assert fedax.load(tmp_path / "out/runs/fedmid-seed0").info["rounds"] == 6
    early = sweep(parse(small()), tmp_path / "early", progress=Press("FedMiD"))
    assert (early.methods, early.interrupted) == ([], True)


def test_ctrl_c_on_the_command_line_is_one_line(type_: Fedax, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []

    def press(self: Any, rounds: int) -> None:
        told.append(rounds)
        if len(told) == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("fedax.cli.progress.Lines.advance", press, raising=False)
    said = type_("sweep", "sparse.toml", "--out", "out")
    assert said.code == 130
    assert said.err.splitlines()[-1].startswith("error: interrupted")
    assert said.err.endswith("`fedax resume out` goes on\n")
    assert sorted(path.name for path in Path("out").iterdir()) == ["experiment.json", "settings"]


def found(folder: str) -> dict[str, Any]:
    """All that a sweep leaves but for times: its tables, and the bytes of the models it kept."""
    table = [{k: v for k, v in row.items() if k != "seconds"} for row in lines(Path(folder, "sweep.csv"))]
    rows = [json.loads(line) for line in Path(folder, "histories.jsonl").read_text().splitlines()]
    models = {path.parent.name: path.read_bytes() for path in Path(folder).glob("runs/*/model.safetensors")}
    return {"table": table, "rows": [{**row, "seconds": 0} for row in rows], "models": models}


@pytest.mark.parametrize("mode", ["batched", "sequence"])
def test_a_sweep_goes_on_after_ctrl_c(type_: Fedax, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Interrupted in its second method: the first is kept, and what was under way goes on, to the same bits."""
    how = ("sweep", "sparse.toml", "--set", f"sweep.mode={mode}", "--out")
    assert type_(*how, "never").code == 0
    with monkeypatch.context() as patch:
        begun: list[Run | None] = []

        def start(self: Any, run: Run) -> None:
            begun.append(run)

        def advance(self: Any, rounds: int) -> None:
            if len(begun) == 2 and rounds >= 15:
                begun.append(None)
                signal.raise_signal(signal.SIGINT)

        patch.setattr(Lines, "start", start, raising=False)
        patch.setattr(Lines, "advance", advance, raising=False)
        assert type_(*how, "out").code == 130
    (checkpoint,) = Path("out/settings").rglob("*.ckpt")
    before = Path("out/runs/fedmid-seed0/model.safetensors").stat().st_mtime_ns
    said = type_("resume", "out")
    assert (said.code, said.err) == (0, "")
    assert "FedMiD, seed 0" not in said.out
    assert "FedDualAvg, seed 0: 6 of 6 settings, best f1 " in said.out
    assert found("out") == found("never")
    assert Path("out/runs/fedmid-seed0/model.safetensors").stat().st_mtime_ns == before
    assert not checkpoint.exists()
    said = type_("resume", "out")
    assert said.code == 0
    assert "out has come to its end" in said.out
    assert found("out") == found("never")
    table = json.loads(Path("out/experiment.json").read_text())
    Path("out/experiment.json").write_text(json.dumps({**table, "batch_size": 9}))
    said = type_("resume", "out")
    assert said.code == 2
    assert said.err.startswith("error: the run cannot go on under another experiment: schedule was ")
    assert said.err.count("\n") == 1


def test_a_killed_sweep_goes_on_to_the_same_bits(type_: Fedax) -> None:
    how = ("sweep", "sparse.toml", "--method", "FedDualAvg", "--set", "rounds=600", "--set", "eval_every=200", "--out")
    assert type_(*how, "never").code == 0
    command = [sys.executable, "-m", "fedax", *how, "killed", "--set", "checkpoint_every=0"]
    shell = {**os.environ, "PYTHONPATH": str(Path(fedax.__file__).parents[1])}
    process = subprocess.Popen(command, env=shell, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(Path("killed").rglob("settings-0-5.ckpt")):
        time.sleep(0.01)
    time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the sweep ended before it could be killed"
    assert not Path("killed/sweep.csv").exists()
    assert type_("resume", "killed").code == 0
    assert found("killed") == found("never")


def test_a_method_that_always_diverges_is_said_so_and_the_others_are_kept(type_: Fedax) -> None:
    said = type_("sweep", "sparse.toml", "--set", "sweep.lr=[1e8]", "--method", "FedMiD", "--out", "out")
    assert said.code == 1
    assert said.err == "error: every setting of FedMiD diverged: smaller values usually help\n"
    assert len(lines(Path("out/sweep.csv"))) == 2


def test_progress_adds_up_the_rounds_of_all_settings(tmp_path: Path) -> None:
    with watch(Console(force_terminal=True, width=120, file=io.StringIO()), False) as progress:
        assert isinstance(progress, Live)
        sweep(parse(small()), tmp_path / "out", progress=progress)
        totals = [(task.completed, task.total) for task in progress.bars.tasks]
    assert totals == [(2 * 6 * 6, 2 * 6 * 6), (36, 36), (36, 36)]


def test_run_and_compare_ignore_the_sweep(type_: Fedax) -> None:
    said = type_("compare", "sparse.toml", "--out", "both")
    assert said.code == 0, said.err
    assert "Density" in said.out
    assert "sweep" not in json.loads(Path("both/experiment.json").read_text())


def set_(*settings: str) -> tuple[str, ...]:
    return ("sweep", "sparse.toml", *(word for setting in settings for word in ("--set", setting)))


BAD = {
    "no table": (("sweep", "plain.toml"), ["plain.toml", "no [sweep] table"]),
    "no list": (("sweep", "plain.toml", "--set", "sweep.metric=f1"), ["[sweep]", "lr = ["]),
    "out of range": (set_("sweep.lr=[0.1, -1]"), ["sweep.lr", "FedMiD", "(0, inf)", "-1"]),
    "not a number": (set_("sweep.lr=[0.1, nan]"), ["sweep.lr", "nan"]),
    "words": (set_("sweep.lr=[0.1, 'x']"), ["sweep.lr", "'x'", "numbers"]),
    "one number": (set_("sweep.lr=0.1"), ["sweep.lr", "0.1", "list"]),
    "empty": (set_("sweep.lr=[]"), ["sweep.lr", "one or more numbers"]),
    "twice": (set_("sweep.lr=[1, 1.0]"), ["sweep.lr", "twice"]),
    "unknown field": (set_("sweep.server_rl=[1]"), ["[sweep]", "server_rl", "did you mean 'server_lr'"]),
    "mistyped metric field": (set_("sweep.metrc=f1"), ["[sweep]", "metrc", "did you mean 'metric'"]),
    "a flag": (set_("sweep.client_prox=[1, 0]"), ["sweep.client_prox", "FedMiD", "number"]),
    "unknown metric": (set_("sweep.metric=fl"), ["sweep.metric", "'fl'", "did you mean 'f1'"]),
    "unknown goal": (set_("sweep.goal=maximum"), ["sweep.goal", "maximum", "did you mean 'max'"]),
    "over too many": (set_("sweep.over=7"), ["sweep.over", "7", "rounds, 6"]),
    "over none": (set_("sweep.over=0"), ["sweep.over", "0"]),
    "debug": (set_("executor=debug"), ["executor", "debug", "side by side"]),
    "unknown method": (("sweep", "sparse.toml", "--method", "FedMit"), ["FedMit", "did you mean 'FedMiD'"]),
    # generated data and regularizers
    "partition": (set_("data.partition={name='IID', clients=3}"), ["data", "partition", "lasso", "left out"]),
    "part of a partition": (set_("data.partition.clients=3"), ["data", "partition", "lasso", "left out"]),
    "mistyped seed": (set_("data.sed=3"), ["data", "sed", "did you mean 'seed'"]),
    "split": (set_("data.split=[1.0, 0.0, 0.0]"), ["data", "split", "lasso", "left out"]),
    "preset": (set_("data.preset=thesis-V"), ["data", "thesis-V", "did you mean 'thesis-IV'"]),
    "dimension": (set_("data.dimension=0"), ["data", "dimension", "0"]),
    "too many ones": (set_("data.ones=33"), ["data", "ones is 33", "32"]),
    "test rows": (set_("data.test_rows=many"), ["test_rows", "'many'"]),
    "data option": (set_("data.dimensions=3"), ["data", "lasso", "did you mean 'dimension'"]),
    "haxby classes": (set_("data={name='haxby', classes=3}"), ["data", "classes", "3", "list"]),
    "haxby seed": (set_("data={name='haxby', seed=3}"), ["data", "seed", "left out"]),
    "no preset": (set_("data={name='low_rank'}"), ["data", "low_rank needs preset", "thesis-I"]),
    "regularizer": (set_("problem.regularizer.name=L7"), ["problem.regularizer", "L7", "did you mean"]),
    "strength": (set_("problem.regularizer.strength=-1"), ["problem.regularizer", "strength", "-1"]),
    "regularizer field": (set_("problem.regularizer.strenth=1"), ["problem.regularizer", "did you mean 'strength'"]),
    "regularizer in words": (set_("problem.regularizer=L1"), ["problem.regularizer", "'L1'", "table"]),
    "no such leaves": (set_("problem.regularizer.on=kernal"), ["L1", "kernal", "kernel"]),
    "nuclear norm of a vector": (
        set_("problem.regularizer.name=Nuclear", "problem.regularizer.on=bias"),
        ["Nuclear", "bias"],
    ),
    "zero below": (set_("zero_below=-1"), ["zero_below", "-1"]),
    "eval on": (set_("eval_on=['tset']"), ["eval_on", "tset", "did you mean 'test'"]),
    "eval on nothing": (set_("eval_on=['validation']"), ["eval_on", "validation"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(type_: Fedax, case: str) -> None:
    words, expected = BAD[case]
    said = type_(*words)
    assert said.code == 2
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    for fragment in expected:
        assert fragment in said.err
    assert sorted(path.name for path in Path().iterdir()) == ["plain.toml", "sparse.toml"]


def test_out_that_holds_something_is_refused(type_: Fedax) -> None:
    Path("taken").mkdir()
    Path("taken/kept").touch()
    said = type_("sweep", "sparse.toml", "--out", "taken")
    assert said.code == 2
    assert "already holds" in said.err


def test_help_teaches_by_example(type_: Fedax) -> None:
    said = type_("sweep", "--help")
    assert said.code == 0
    assert "fedax sweep experiment.toml" in said.out
    assert "server_lr = [0.3, 1.0, 3.0]" in said.out


def test_the_file_of_a_sweep_can_be_read_with_a_whole_table(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(SPARSE.replace('regularizer = { name = "L1", strength = 0.3, on = "kernel" }', "") + PSI)
    made = read(path).problem.regularizer
    assert made is not None
    assert made.build() == fedax.regularizers.GroupLasso(0.5, axis=1)


PSI = """
[problem.regularizer]
name = "grouplasso"
strength = 0.5
axis = 1
"""
