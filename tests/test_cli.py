"""The command line, as a user types it."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from rich.console import Console

import fedax
from conftest import QUICK
from fedax.cli import invoke
from fedax.cli.progress import watch
from fedax.experiments import read, run

FLOWERS = """
rounds = 4
cohort = 2
local_steps = 2
batch_size = 5
eval_every = 2

[data]
name = "iris"
partition = { name = "IID", clients = 3 }

[model]
name = "logistic"

[algorithm]
name = "FedAvg"
lr = 0.1
"""
SEVERAL = FLOWERS.replace("[algorithm]", "[[algorithm]]") + '\n[[algorithm]]\nname = "APFL"\nlr = 0.1\n'
DIABETES = """
rounds = 50
data.name = "diabetes"
model.name = "linear"
[[algorithm]]
name = "FedAvg"
label = "too fast"
lr = 1e6
[[algorithm]]
name = "FedAvg"
label = "steady"
lr = 0.01
"""


class Said(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Fedax = Callable[..., Said]


@pytest.fixture
def type_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fedax:
    """Type a command in an empty directory that holds flowers.toml, several.toml and diabetes.toml."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("flowers", FLOWERS), ("several", SEVERAL), ("diabetes", DIABETES)):
        Path(f"{name}.toml").write_text(text)

    def type_(*words: str) -> Said:
        code = invoke(words)
        return Said(code, *capsys.readouterr())

    return type_


#: A shell's environment in which `python -m fedax` is the package under test, installed or not.
SHELL = {**os.environ, "PYTHONPATH": str(Path(fedax.__file__).parents[1])}


def in_shell(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command, env = [sys.executable, "-m", "fedax", *words], SHELL | environment
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False)


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def document(path: Path) -> Any:
    return json.loads(path.read_text())


# Running


def test_run_leaves_a_directory_that_can_be_loaded_and_read(type_: Fedax) -> None:
    said = type_("run", "flowers.toml", "--set", "algorithm.lr=0.05", "--set", "algorithm.name=scaffold", "--seed", "7")
    assert said.code == 0, said.err
    folder = Path("runs/flowers")
    assert str(folder / "report.html") in said.out
    assert "SCAFFOLD" in said.out
    assert (folder / "report.html").stat().st_size > 1000
    assert document(folder / "status.json") == {"status": "finished", "round": 4, "rounds": 4, "message": ""}
    resolved = document(folder / "experiment.json")
    assert resolved["seed"] == 7
    assert resolved["algorithm"] == {
        "name": "SCAFFOLD",
        "label": "SCAFFOLD",
        "lr": 0.05,
        "server_lr": 1.0,
        "option": "II",
    }
    assert resolved["problem"] == {
        "loss": "cross_entropy",
        "regularizer": None,
        "augment": None,
        "gradients": None,
        "metrics": [],
        "trainable": None,
    }
    assert set(resolved["versions"]) == {"fedax", "jax", "numpy", "python"}
    clients = document(folder / "clients.json")
    assert clients["names"] == ["0", "1", "2"]
    assert np.shape(clients["label_counts"]) == (3, 3)
    assert len(clients["values"]["test"]["accuracy"]) == 3
    result = fedax.load(folder)
    assert [row["round"] for row in result.history] == [0, 2, 4]


def test_a_second_run_takes_the_next_free_directory(type_: Fedax) -> None:
    Path("runs/flowers").mkdir(parents=True)
    Path("runs/flowers/kept").touch()
    assert type_("run", "flowers.toml", "--set", "rounds=1").code == 0
    assert Path("runs/flowers-2/report.html").exists()
    assert [p.name for p in Path("runs/flowers").iterdir()] == ["kept"]


def test_compare_runs_every_method_with_every_seed(type_: Fedax) -> None:
    said = type_("compare", "several.toml", "--seeds", "0,3", "--out", "both")
    assert said.code == 0, said.err
    names = [f"{method}-seed{seed}" for method in ("fedavg", "apfl", "local-only") for seed in (0, 3)]
    assert document(Path("both/experiment.json"))["runs"] == names
    for name in names:
        folder = Path("both/runs") / name
        assert document(folder / "status.json")["status"] == "finished"
        assert (folder / "personal.safetensors").exists() == (not name.startswith("fedavg"))
    assert "personal_test" in document(Path("both/runs/apfl-seed0/clients.json"))["values"]
    rows = table(Path("both/summary.csv"))
    assert [row["algorithm"] for row in rows] == ["FedAvg", "APFL", "Local only"]
    assert rows[0]["runs"] == "2"
    accuracy = [fedax.load(f"both/runs/{name}").history[-1]["test_accuracy"] for name in names[:2]]
    assert float(rows[0]["test_accuracy_avg"]) == pytest.approx(np.mean(accuracy))
    assert Path("both/report.html").exists()
    assert "both/report.html" in said.out


def test_run_with_several_seeds_is_a_comparison_whose_reports_can_be_written_again(type_: Fedax) -> None:
    assert type_("run", "flowers.toml", "--set", "seeds=[1, 2]", "--set", "rounds=1", "--out", "seeds").code == 0
    assert sorted(p.name for p in Path("seeds/runs").iterdir()) == ["fedavg-seed1", "fedavg-seed2"]
    written = [Path("seeds") / name for name in ("summary.csv", "report.html")]
    for path in written:
        path.unlink()
    said = type_("report", "seeds")
    assert (said.code, said.out) == (0, "seeds/report.html\n")
    assert all(path.exists() for path in written)


def test_report_reads_a_log_that_a_crash_cut_short(type_: Fedax) -> None:
    assert type_("run", "flowers.toml", "--out", "cut").code == 0
    log = Path("cut/metrics.jsonl")
    log.write_text(log.read_text()[:-20])
    assert type_("report", "cut").code == 0


def test_progress_bars_show_rounds_and_metrics(type_: Fedax, tmp_path: Path) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=140)
    with watch(screen, quiet=False) as progress:
        run(
            read("flowers.toml", [("algorithm.name", "APFL"), ("seeds", "[0, 1]")]),
            tmp_path / "out",
            progress=progress,
        )  # and training alone, the yardstick of personal models
    shown = screen.file.getvalue()  # type: ignore[attr-defined]
    for words in ("all runs", "16/16", "APFL, seed 0", "Local only, seed 1", "4/4", "personal accuracy"):
        assert words in shown


def test_the_lines_of_a_run_are_told_its_rounds(type_: Fedax, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedax.cli.progress.A_MINUTE", 0.0)
    said = type_("run", "flowers.toml", "--set", "rounds=8", "--out", "out")
    assert said.code == 0
    assert re.search(r"FedAvg, seed 0: 75 %, accuracy .*, about 1 minute left\n", said.out)


# What there is


def test_help_loads_neither_jax_nor_the_data_libraries() -> None:
    code = """
import sys, fedax.cli
fedax.cli.invoke(["--help"])
print(sorted({"jax", "numpy", "pydantic"} & set(sys.modules)))
"""
    shown = subprocess.run([sys.executable, "-c", code], env=SHELL, capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "[]"
    assert "fedax demo" in shown


@pytest.mark.parametrize("words", [(), ("--help",), ("run", "--help"), ("compare", "-h"), ("report", "--help")])
def test_help_teaches_by_example(type_: Fedax, words: tuple[str, ...]) -> None:
    said = type_(*words)
    assert said.code == 0
    assert "fedax " + (words[0] if words and words[0] != "--help" else "demo") in said.out
    assert said.err == ""


def test_version(type_: Fedax) -> None:
    assert type_("--version") == (0, f"fedax {fedax.__version__}\n", "")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("algorithms", ["SCAFFOLD", "2 d, 2 d", "server_lr", "personal", "Karimireddy"]),
        ("datasets", ["digits", "handwritten", "lasso", "thesis-IV", "test_rows = 32", "haxby"]),
        ("models", ["mlp", "hidden = [200, 200]"]),
        ("partitions", ["Dirichlet", "min_rows = 1"]),
        ("regularizers", ["GroupLasso", "strength, axis = 0", "constraint", "NuclearBall"]),
    ],
)
def test_list(type_: Fedax, kind: str, words: list[str]) -> None:
    everything, some = type_("list"), type_("list", kind)
    assert everything.code == some.code == 0
    for word in words:
        assert word in some.out
        assert word in everything.out


# Bad input: one line, nothing written


def set_(*settings: str) -> tuple[str, ...]:
    return ("run", "flowers.toml", *(word for setting in settings for word in ("--set", setting)))


BAD = {
    "unknown method": (set_("algorithm.name=FedAvgg"), ["algorithm", "FedAvgg", "did you mean 'FedAvg'"]),
    "unknown dataset": (set_("data.name=digts"), ["data.name", "digts", "did you mean 'digits'"]),
    "unknown model": (set_("model.name=mpl"), ["model", "mpl", "did you mean 'mlp'"]),
    "unknown partition": (set_("data.partition.name=ByLabels"), ["data.partition", "did you mean 'ByLabel'"]),
    "unknown field": (set_("rouns=3"), ["rouns", "did you mean 'rounds'"]),
    "field of another table": (set_("lr=3"), ["lr", "did you mean 'algorithm.lr'"]),
    "field of a missing table": (set_("metrics=3"), ["metrics", "did you mean 'problem.metrics'"]),
    "unknown data field": (set_("data.sed=3"), ["[data]", "sed", "did you mean 'seed'"]),
    "unknown hyper-parameter": (set_("algorithm.server_rl=1"), ["FedAvg", "did you mean 'server_lr'"]),
    "unknown option": (set_("model.name=mlp", "model.hiden=[3]"), ["mlp", "did you mean 'hidden'"]),
    "unknown argument": (set_("data.partition.client=3"), ["IID", "did you mean 'clients'"]),
    "unknown sampling": (set_("sampling=epoch"), ["sampling", "did you mean 'epochs'"]),
    "unknown executor": (set_("executor=batch"), ["executor", "did you mean 'batched'"]),
    "unknown loss": (set_("problem.loss=logistc"), ["problem.loss", "did you mean 'logistic'"]),
    "unknown schedule": (
        set_('algorithm.lr={kind="exponentiel", initial=1}'),
        ["algorithm", "did you mean 'exponential'"],
    ),
    "schedule without kind": (set_("algorithm.lr={initial=1}"), ["lr", "kind", "exponential"]),
    "schedule in words": (
        set_('algorithm.lr={kind="exponential", initial=1, decay="fast"}'),
        ["lr.decay", "'fast'"],
    ),
    "unknown kind": (("list", "partition"), ["partition", "did you mean 'partitions'"]),
    "unknown command": (("compar", "flowers.toml"), ["compar", "compare"]),
    "cohort too large": (set_("cohort=4"), ["cohort=4", "3 clients"]),
    "no rounds": (set_("rounds=0"), ["rounds", "0", "at least 1"]),
    "rounds in words": (set_("rounds=many"), ["rounds", "'many'", "whole number"]),
    "rounds in parts": (set_("rounds=1.5"), ["rounds", "1.5", "whole number"]),
    "negative rate": (set_("algorithm.lr=-0.1"), ["algorithm", "lr", "(0, inf)", "-0.1"]),
    "rate not a number": (set_("algorithm.lr=nan"), ["algorithm", "lr", "nan"]),
    "list of rates": (set_("algorithm.lr=[0.1, 0.2]"), ["algorithm", "lr", "[0.1, 0.2]"]),
    "zero batch": (set_("batch_size=0"), ["batch_size", "0"]),
    "both kinds of work": (set_("local_epochs=1"), ["local_steps", "local_epochs"]),
    "negative seed": (set_("seeds=[-1]"), ["seeds.0", "-1"]),
    "no seeds": (set_("seeds=[]"), ["seeds", "at least 1"]),
    "a seed twice": (set_("seeds=[1, 1]"), ["seeds", "twice"]),
    "name without letters": (set_("name='/'"), ["name", "'/'"]),
    "too many clients": (set_("data.partition.clients=151"), ["clients", "151", "150"]),
    "no clients": (set_("data.partition.clients=0"), ["data.partition", "clients", "0"]),
    "too many labels": (
        set_("data.partition={name='ByLabel', clients=3, labels=4}"),
        ["labels", "4", "3 labels"],
    ),
    "split beyond 1": (set_("data.split=[0.7, 0.7, 0.2]"), ["split", "sum to 1"]),
    "labels outside the model": (set_("model.outputs=2"), ["label 2", "0 to 1"]),
    "too many classes": (set_("problem.loss=logistic"), ["problem.loss", "two classes", "3"]),
    "no classes": (
        set_("data.name=diabetes", "problem.loss=cross_entropy"),
        ["problem.loss", "diabetes has no classes"],
    ),
    "partition by absent labels": (
        set_("data.name=diabetes", "data.partition.name=ByLabel"),
        ["ByLabel", "labels", "float32"],
    ),
    "setting without value": (("run", "flowers.toml", "--set", "rounds"), ["--set", "FIELD=VALUE"]),
    "setting inside a number": (set_("rounds.x=1"), ["rounds.x", "4"]),
    "setting of an absent table": (("compare", "several.toml", "--set", "algorithm.2.lr=1"), ["2 tables"]),
    "setting in one of several": (
        ("compare", "several.toml", "--set", "algorithm.1.lr=-1"),
        ["algorithm.1", "-1"],
    ),
    "seeds in words": (("compare", "several.toml", "--seeds", "0;1"), ["--seeds", "0;1", "0,1,2"]),
    "several methods to run": (("run", "several.toml"), ["2", "fedax compare"]),
    "no such file": (("run", "flower.toml"), ["flower.toml", "no such file", "did you mean flowers.toml"]),
    "a directory": (("run", "."), [". cannot be read", "directory"]),
    "no file at all": (("run",), ["argument"]),
    "no such run": (("report", "elsewhere"), ["elsewhere", "not a run"]),
    "report of a file": (("report", "flowers.toml"), ["flowers.toml", "not a run"]),
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
    assert sorted(p.name for p in Path().iterdir()) == ["diabetes.toml", "flowers.toml", "several.toml"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"rounds = 3\nrounds = \n", ["bad.toml", "line 2"]),
        (b'rounds = 3\n[data]\nname = "dig', ["bad.toml", "line 3"]),
        (b"rounds = 3\n\xff\xfe", ["bad.toml", "line 2", "UTF-8"]),
        (b"", ["rounds is missing"]),
        (b"rounds = 3", ["data is missing", "[data]"]),
        (b"rounds = 3\ndata = 3", ["data is 3", "table"]),
        (FLOWERS.split("[algorithm]")[0].encode(), ["algorithm is missing"]),
        (FLOWERS.encode().replace(b"lr = 0.1", b""), ["algorithm", "FedAvg needs lr"]),
    ],
)
def test_a_bad_file_is_one_sentence(type_: Fedax, content: bytes, expected: list[str]) -> None:
    Path("bad.toml").write_bytes(content)
    said = type_("run", "bad.toml")
    assert said.code == 2
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    for fragment in expected:
        assert fragment in said.err


@pytest.mark.parametrize("command", [("run", "flowers.toml"), ("compare", "several.toml"), ("demo",)])
def test_out_that_holds_something_is_refused(type_: Fedax, command: tuple[str, ...]) -> None:
    Path("taken").mkdir()
    Path("taken/metrics.jsonl").write_text('{"round": 0}\n')
    said = type_(*command, "--out", "taken")
    assert said.code == 2
    assert "'taken'" in said.err
    assert "already holds" in said.err
    assert said.err.count("\n") == 1
    assert [p.name for p in Path("taken").iterdir()] == ["metrics.jsonl"]


def test_a_screen_that_is_closed_or_lacks_letters_ends_no_command(tmp_path: Path) -> None:
    closed = subprocess.run(
        ["sh", "-c", f"{shlex.quote(sys.executable)} -m fedax list losses >&-"],
        env=SHELL,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (closed.returncode, closed.stderr) == (0, "")
    poor = in_shell("data", "list", cwd=tmp_path, PYTHONIOENCODING="latin-1")
    assert (poor.returncode, poor.stderr) == (0, "")
    nothing = in_shell("check", "FedAvg", cwd=tmp_path, JAX_PLATFORMS="nonsense")
    assert nothing.returncode == 1
    assert nothing.stderr.startswith("error: JAX_PLATFORMS is 'nonsense': ")
    assert nothing.stderr.count("\n") == 1


def test_debug_shows_the_traceback(type_: Fedax) -> None:
    assert "Traceback" not in type_("run", "flowers.toml", "--set", "cohort=9").err
    said = type_("run", "flowers.toml", "--set", "cohort=9", "--debug")
    assert said.code == 2
    assert "Traceback" in said.err
    assert "make_plan" in said.err


# Runs that do not come to their end


def test_a_diverging_run_keeps_its_last_good_model_and_the_others_go_on(type_: Fedax) -> None:
    said = type_("compare", "diabetes.toml", "--out", "out")
    assert said.code == 1
    status = document(Path("out/runs/too-fast-seed0/status.json"))
    assert status["status"] == "diverged"
    assert re.match(r"error: FedAvg (met NaN or infinity|gave a loss that is NaN or infinite) in round \d+", said.err)
    assert said.err.count("\n") == 1
    assert status["round"] < int(re.findall(r"round (\d+)", said.err)[0])
    assert "too fast, seed 0" in said.err
    kept = fedax.load("out/runs/too-fast-seed0")
    assert all(np.isfinite(leaf).all() for leaf in kept.model["params"]["Dense_0"].values())
    assert kept.info["rounds"] == status["round"]
    assert document(Path("out/runs/steady-seed0/status.json"))["status"] == "finished"
    assert Path("out/report.html").exists()


def test_ctrl_c_before_the_first_run_is_one_line(type_: Fedax, monkeypatch: pytest.MonkeyPatch) -> None:
    def press(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedax.experiments.execute.prepare", press)
    said = type_("run", "flowers.toml")
    assert (said.code, said.err) == (130, "error: interrupted\n")
    assert not Path("runs").exists()


def test_ctrl_c_leaves_a_run_that_can_be_reported(tmp_path: Path) -> None:
    (tmp_path / "flowers.toml").write_text(FLOWERS)
    words = ["run", "flowers.toml", "--set", "rounds=100_000_000", "--set", "eval_every=500", "--out", "out"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedax", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=SHELL,
    )
    with finished(process):
        wait_for_rows(tmp_path / "out/metrics.jsonl", 3)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    status = document(tmp_path / "out/status.json")
    assert status["status"] == "interrupted"
    result = fedax.load(tmp_path / "out")
    assert result.info["rounds"] == status["round"]
    assert status["round"] >= result.history[-1]["round"] >= 1000
    (tmp_path / "out/report.html").unlink()
    assert invoke(["report", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out/report.html").exists()


@contextmanager
def finished(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill a process that a failing test leaves behind."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def wait_for_rows(log: Path, rows: int) -> None:
    deadline = time.monotonic() + 90
    while not log.exists() or log.read_text().count("\n") < rows:
        assert time.monotonic() < deadline, "the run wrote no metrics"
        time.sleep(0.1)


# The demo


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    here = tmp_path_factory.mktemp("demo")
    return here, in_shell("demo", cwd=here, XLA_FLAGS=os.environ["XLA_FLAGS"].removesuffix(QUICK))  # as users have it


def test_the_demo_ends_with_a_table_and_the_path_of_the_report(
    demo: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    here, said = demo
    assert said.returncode == 0, said.stderr
    assert said.stderr == ""
    assert said.stdout.splitlines()[-1] == "Report: runs/demo/report.html"
    for name in ("FedAvg", "SCAFFOLD", "APFL", "LocalOnly"):
        assert name in said.stdout
    assert (here / "runs/demo/report.html").exists()


def test_the_demo_shows_what_the_methods_are_for(demo: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    here, _ = demo
    rows = {row["algorithm"]: row for row in table(here / "runs/demo/summary.csv")}
    shared = {name: float(rows[name]["test_accuracy_avg"]) for name in ("FedAvg", "SCAFFOLD")}
    assert rows["LocalOnly"]["test_accuracy_avg"] == ""  # it has no shared model
    worst = {name: float(rows[name]["personal_test_accuracy_worst_avg"]) for name in ("APFL", "LocalOnly")}
    assert shared["SCAFFOLD"] > shared["FedAvg"] + 0.02 > 0.8
    assert worst["APFL"] > worst["LocalOnly"]
    counts = np.array(document(here / "runs/demo/runs/fedavg-seed0/clients.json")["label_counts"])
    assert counts.shape == (20, 10)
    assert ((counts > 0).sum(axis=1) == 2).all()


def test_check_reads_like_a_table_and_fails_for_a_broken_method(type_: Fedax) -> None:
    said = type_("check", "FedAvg", "--set", "lr=0.1")
    assert said.code == 0, said.err
    assert "FedAvg(lr=0.1, server_lr=1.0)" in said.out
    assert "purity" in said.out
    Path("mine.py").write_text(BROKEN)
    said = type_("check", "mine:Mine")
    assert said.code == 1
    assert "failed" in said.out
    said = type_("check", "mine:Main")
    assert (said.code, said.out) == (2, "")
    assert "did you mean 'Mine'" in said.err
    assert type_("check", "FedAvg", "--set", "lr").code == 2


BROKEN = """
from fedax.algorithms.base import Algorithm, algorithm, rate
from fedax.algorithms.claims import Reduction

@algorithm
class Mine(Algorithm):
    lr: float = rate()
    claims = (Reduction("FedAvg"),)
    def step(self, x_i, oracle, x, client, ctx):
        return x_i - 2 * self.lr * oracle.grad(x_i)
    def finish(self, x_i, oracle, x, client, ctx):
        return x_i - x, client
    def update(self, x, delta, ctx):
        return x + delta
"""


def test_a_shell_completes_commands(monkeypatch, capsys):
    for name, value in {"_FEDAX_COMPLETE": "complete_bash", "COMP_WORDS": "fedax rep", "COMP_CWORD": "1"}.items():
        monkeypatch.setenv(name, value)
    assert invoke([]) == 0
    assert capsys.readouterr().out.split() == ["reproduce", "report"]
