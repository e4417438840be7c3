"""Results for other programs and for papers: files, tables, figures, and a model with its card."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from scipy.stats import ttest_1samp

import fedax
from fedax.cli import invoke
from fedax.experiments import parse, run
from fedax.report import groups, read_all
from fedax.report.figures import OKABE_ITO, draw

ACCURACY = {"FedAvg": (0.80, 0.82, 0.84), "Mine_2 & more": (0.90, 0.90, 0.93)}


def make(folder: Path, label: str, seed: int, accuracy: float, **experiment: Any) -> Path:
    """A run's directory as a run leaves it."""
    folder.mkdir(parents=True)
    asked = {"name": "x", "rounds": 10, "seed": seed, "algorithm": {"name": "FedAvg", "label": label, "lr": 0.1}}
    asked |= {"data": {"name": "digits"}, "model": {"name": "mlp"}}
    rows = [
        {
            "round": r,
            "test_accuracy": accuracy * (r + 1) / 11,
            "test_accuracy_worst": 0.1,
            "test_loss": 2 - accuracy * r / 10,
            "gradients": 100 * r,
            "floats_up": 7 * r,
            "floats_down": 7 * r,
        }
        for r in (0, 5, 10)
    ]
    clients = {"names": ["a", "b"], "values": {"test": {"accuracy": [accuracy - 0.1, accuracy], "loss": [1.0, 2.0]}}}
    documents = {"experiment": asked | experiment, "clients": clients, "status": {"status": "finished", "round": 10}}
    for name, content in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for i, (label, values) in enumerate(ACCURACY.items()):
        for seed, accuracy in enumerate(values):
            make(tmp_path / "both" / "runs" / f"{i}-seed{seed}", label, seed, accuracy)
    return Path("both")


def interval(values: tuple[float, ...]) -> float:
    """The half-width of the 95 % interval, by the interval of a t-test."""
    low, high = ttest_1samp(values, 0).confidence_interval(0.95)
    return float(high - low) / 2


def test_metrics_by_round_as_csv_and_parquet(compared: Path) -> None:
    import pyarrow.parquet

    assert invoke(["export", str(compared), "--to", "deep/m.csv"]) == 0
    assert invoke(["export", str(compared), "--to", "m.parquet"]) == 0
    with open("deep/m.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 2 * 3 * 3
    assert {line["algorithm"] for line in lines} == set(ACCURACY)
    logs = [
        json.loads(row)
        for path in sorted(compared.glob("runs/*/metrics.jsonl"))
        for row in path.read_text().splitlines()
    ]
    assert [float(line["test_accuracy"]) for line in lines] == [row["test_accuracy"] for row in logs]
    table = pyarrow.parquet.read_table("m.parquet").to_pylist()
    assert [{key: str(value) for key, value in row.items()} for row in table] == lines


def test_the_table_has_the_interval_of_a_t_test(compared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["export", str(compared), "--table", "--to", "t.csv"]) == 0
    with open("t.csv", newline="") as file:
        lines = {line["algorithm"]: line for line in csv.DictReader(file)}
    for label, values in ACCURACY.items():
        assert float(lines[label]["test_accuracy"]) == pytest.approx(np.mean(values))
        assert float(lines[label]["test_accuracy_ci"]) == pytest.approx(interval(values))
        assert lines[label]["seeds"] == "0 1 2"
    assert invoke(["report", str(compared)]) == 0
    half = f"± {100 * interval(ACCURACY['FedAvg']):.2f}"
    assert f"82.00 <small>{half}</small>" in (compared / "report.html").read_text().replace("strong>", "b>")


def test_a_latex_table_is_aligned_and_shows_the_best(compared: Path) -> None:
    assert invoke(["export", str(compared), "--to", "t.tex"]) == 0
    text = Path("t.tex").read_text()
    (layout,) = re.findall(r"\\begin\{tabular\}\{(.*)\}\n", text)
    columns = len(re.sub(r"@\{.*?\}", "", layout))
    assert re.findall(r"\\(\w+rule)", text) == ["toprule", "midrule", "bottomrule"]
    lines = [line.removesuffix(r" \\") for line in text.splitlines() if line.endswith(r"\\")]
    for line in lines:
        spans = [int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d)\}", line)]
        assert len(re.findall(r"(?<!\\)&", line)) + 1 + sum(spans) == columns
    first, second = (re.split(r" (?<!\\)& ", line) for line in lines[1:])
    assert first[:3] == ["FedAvg", "82.00", f"{100 * interval(ACCURACY['FedAvg']):.2f}"]
    assert second[:2] == [r"Mine\_2 \& more", r"\textbf{91.00}"]
    assert r"\textbf" not in " ".join(first)
    assert len({len(cell.split(".")[1]) for cell in (first[5], re.sub(r"[^0-9.]", "", second[5]))}) == 1
    assert "Accuracy, \\%" in lines[0]
    assert "Held equal: 10 rounds." in text


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    make(tmp_path / "one", "FedAvg", 0, 0.5)
    assert invoke(["export", str(tmp_path / "one"), "--to", str(tmp_path / "t.tex")]) == 0
    text = (tmp_path / "t.tex").read_text()
    assert "pm" not in text
    assert "FedAvg & 50.00 & 10.00 & 1.500 &" in text


def test_figures_are_sized_for_a_column_with_their_fonts_inside(compared: Path) -> None:
    assert invoke(["figures", str(compared), "--out", "figs"]) == 0
    names = {path.name for path in Path("figs").iterdir()}
    assert {
        f"test-accuracy-{axis}.{kind}" for axis in ("round", "gradients", "floats") for kind in ("pdf", "png")
    } <= names
    assert "clients.pdf" in names
    content = Path("figs/test-accuracy-floats.pdf").read_bytes()
    assert b"/FontFile2" in content, "TrueType, embedded"
    assert b"/Type3" not in content
    (box,) = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", content)
    assert float(box[0]) == pytest.approx(3.3 * 72)
    width = int.from_bytes(Path("figs/clients.png").read_bytes()[16:20], "big")
    assert width == pytest.approx(3.3 * 300, abs=1)
    assert invoke(["figures", str(compared), "--out", "wide", "--wide"]) == 0
    assert int.from_bytes(Path("wide/clients.png").read_bytes()[16:20], "big") > 2 * width
    assert Path("wide/test-loss-round.pdf").stat().st_size > 1000


def test_a_curve_is_the_mean_over_seeds_in_a_band(compared: Path) -> None:
    found = groups(read_all(sorted(compared.glob("runs/*"))))
    axes = draw(found)["test-accuracy-gradients"].axes[0]
    for place, (line, band, values) in enumerate(zip(axes.lines, axes.collections, ACCURACY.values(), strict=True)):
        assert line.get_color() == OKABE_ITO[place]
        np.testing.assert_allclose(line.get_xdata(), [0, 500, 1000])
        np.testing.assert_allclose(line.get_ydata()[-1], 100 * np.mean(values))
        ends = band.get_paths()[0].vertices
        at_end = ends[ends[:, 0] == 1000][:, 1]
        assert (at_end.min(), at_end.max()) == pytest.approx((100 * min(values), 100 * max(values)))
    clients = draw(found)["clients"].axes[0].lines[0]
    np.testing.assert_allclose(clients.get_ydata(), [72, 82])


def test_a_sweep_has_a_heat_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "grid" / "runs" / "fedavg-seed0", "FedAvg", 0, 0.9)
    about = {"metric": "test_accuracy", "goal": "max", "over": None, "target": None, "mode": "auto"}
    about |= {"lr": [0.1, 1.0], "server_lr": [1.0, 2.0]}
    Path("grid/experiment.json").write_text(json.dumps({"runs": ["fedavg-seed0"], "sweep": about}))
    scores = {(0.1, 1.0): 0.5, (1.0, 1.0): 0.6, (0.1, 2.0): 0.7, (1.0, 2.0): ""}
    rows = [f"FedAvg,0,{lr},{server},{score}" for (lr, server), score in scores.items()]
    Path("grid/sweep.csv").write_text("\n".join(["algorithm,seed,lr,server_lr,score", *rows]) + "\n")
    assert invoke(["figures", "grid", "--out", "figs"]) == 0
    assert Path("figs/sweep-fedavg.pdf").exists()
    from fedax.report.recorded_sweep import read_sweep

    found = groups(read_all([Path("grid/runs/fedavg-seed0")]))
    (image,) = draw(found, read_sweep(Path("grid"), ["FedAvg"]))["sweep-FedAvg"].axes[0].images
    np.testing.assert_array_equal(np.asarray(image.get_array().filled(np.nan)), [[0.5, 0.6], [0.7, np.nan]])


def test_runs_that_cannot_be_compared_say_why(compared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = make(Path("other"), "Other", 0, 0.99, data={"name": "mnist"})
    assert invoke(["figures", str(compared), str(other), "--out", "figs"]) == 2
    assert "cannot be compared" in (said := capsys.readouterr().err)
    assert "data.name (digits, mnist)" in said
    assert not Path("figs").exists()
    assert invoke(["export", str(compared), str(other), "--to", "t.tex"]) == 0
    assert "data.name (digits, mnist)" in capsys.readouterr().err
    assert r"\textbf" not in Path("t.tex").read_text()
    unlike = make(Path("unlike"), "Unlike", 0, 0.5)
    (unlike / "metrics.jsonl").write_text(json.dumps({"round": 0, "train_loss": 1.0}) + "\n")
    assert invoke(["figures", str(compared), str(unlike)]) == 2
    said = capsys.readouterr().err
    assert "no metric in common" in said
    assert "Unlike train_loss" in said
    capsys.readouterr()


@pytest.mark.parametrize("method", ["FedAvg", "LocalOnly"])
def test_a_model_comes_with_a_card_whose_code_runs(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = parse(
        {
            "rounds": 3,
            "local_steps": 2,
            "batch_size": 5,
            "data": {"name": "iris", "partition": {"name": "IID", "clients": 3}},
            "model": {"name": "logistic"},
            "algorithm": {"name": method, "lr": 0.05},
        }
    )
    (done,) = run(experiment, tmp_path / "run").runs
    assert invoke(["export", str(done.folder), "--model", str(tmp_path / "model")]) == 0, capsys.readouterr().err
    card = (tmp_path / "model" / "README.md").read_text()
    for words in (method, "iris", "IID", "algorithm.lr | 0.05", "test rows of 3 clients", "Licence", "3 rounds"):
        assert words in card
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    monkeypatch.chdir(tmp_path / "model")
    printed = io.StringIO()
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    result = fedax.load(tmp_path / "run")
    if method == "FedAvg":
        measured = float(re.findall(r"'accuracy': ([\d.e-]+)", printed.getvalue())[0])
        assert measured == pytest.approx(result.history[-1]["test_accuracy"], abs=1e-6)
        value = f"{100 * measured:.2f} %"
        assert f"| Test accuracy | {value} |" in card
    else:
        jax.tree.map(np.testing.assert_array_equal, names["model"], result.personal(0))
    assert invoke(["export", str(done.folder), "--model", str(tmp_path / "model")]) == 2
    assert "already holds something" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["export", "both"], ["--to", "--model"]),
        (["export", "both", "--to", "a.xlsx"], ["a.xlsx", ".parquet"]),
        (["export", "nowhere", "--to", "a.csv"], ["nowhere", "not a run"]),
        (["export", "both", "--model", "m"], ["6", "both/runs/0-seed0"]),
        (["export", "both/runs/0-seed0", "--model", "m"], ["no model"]),
        (["figures", "nowhere"], ["nowhere", "not a run"]),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str], said: list[str], compared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert all(word in line for word in said), line


@pytest.mark.parametrize("command", ["export", "figures"])
def test_help_teaches_by_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([command, "--help"]) == 0
    assert f"fedax {command} runs/demo" in capsys.readouterr().out
