"""The report: what it reads from a run directory, its table and its page."""

from __future__ import annotations

import ast
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedax.report
from fedax.cli.app import invoke
from fedax.errors import FedaxError
from fedax.report import combine, find, groups, packing, read, read_all, table, text, write
from fedax.report.conclusion import conclusion
from report_runs import NASTY, comparison, embedded, everything, experiment, history, make, sweep, words


def test_the_table_has_mean_and_sample_deviation_over_seeds(tmp_path: Path) -> None:
    first, second = table(comparison(tmp_path))
    assert (first["algorithm"], first["status"], first["runs"], first["seeds"]) == (
        "FedAvg",
        "finished",
        3,
        [0, 1, 2],
    )
    assert first["test_accuracy"] == pytest.approx((0.82, 0.02, 3))
    assert first["test_loss"] == pytest.approx((1.18, 0.02, 3))
    assert first["test_accuracy_worst"] == pytest.approx((0.41, 0.01, 3))
    assert first["gradients"] == (300, 0, 3)
    assert (first["floats_up"].mean, first["floats_down"].mean, first["seconds"].mean) == (6000, 12000, 1)
    assert "personal_test_accuracy" not in first
    # Deviations from 0.93: -0.03, -0.01, 0.04; their squares sum to 0.0026, over two degrees of freedom.
    assert second["personal_test_accuracy"] == pytest.approx((0.93, math.sqrt(0.0013), 3))


def test_one_seed_has_no_deviation_and_nan_is_not_averaged_away(tmp_path: Path) -> None:
    make(tmp_path / "one", history(0.5, None), experiment=experiment("FedAvg", 0))
    assert table([tmp_path / "one"])[0]["test_accuracy"].std is None
    make(tmp_path / "two", [{"round": 1, "test_accuracy": math.nan}], experiment=experiment("FedAvg", 1))
    (row,) = table([tmp_path / "one", tmp_path / "two"])
    assert math.isnan(row["test_accuracy"].mean)
    assert text("test_accuracy", *row["test_accuracy"][:2]) == "–"


def test_runs_of_one_label_in_two_settings_are_told_apart(tmp_path: Path) -> None:
    for i, lr in enumerate((0.1, 0.2)):
        other = experiment("FedAvg", 0, algorithm={"name": "FedAvg", "label": "FedAvg", "lr": lr})
        make(tmp_path / f"runs/{i}", history(0.5, None), experiment=other)
    assert [row["algorithm"] for row in table(find(tmp_path))] == ["FedAvg (lr=0.1)", "FedAvg (lr=0.2)"]


def test_a_directory_given_twice_counts_once(tmp_path: Path) -> None:
    run = make(tmp_path / "a", history(0.5, None))
    assert table([run, run / "../a"])[0]["runs"] == 1


def test_what_a_crash_left_is_read(tmp_path: Path) -> None:
    found = everything(tmp_path)
    bare = read(tmp_path / "bare")
    assert (bare.label, bare.status, bare.round) == ("bare", "unknown", 10)
    assert bare.notes == ("metrics.jsonl ends early: its last line was cut short",)
    rows = {row["algorithm"]: row for row in table(found)}
    assert rows["bare"]["test_accuracy"].mean == pytest.approx(0.6)
    assert (rows["SCAFFOLD"]["status"], rows["SCAFFOLD"]["round"]) == ("diverged", 5)
    assert rows["GD"]["train_loss"].mean == 1e-8
    assert "test_accuracy" not in rows["GD"]


def test_unreadable_documents_are_noted_and_a_planned_run_has_no_rows(tmp_path: Path) -> None:
    planned = make(tmp_path / "p", [], experiment=experiment("FedAvg", 0), status=None)
    (planned / "metrics.jsonl").unlink()
    (planned / "clients.json").write_text('{"names": [')
    run = read(planned)
    assert (run.rows, run.round, run.label) == ((), None, "FedAvg")
    assert run.notes == ("clients.json cannot be read and is left out",)
    assert invoke(["report", str(planned)]) == 0
    assert "before the first evaluated round" in (planned / "report.html").read_text()


def test_places_without_a_run_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FedaxError, match=r"nowhere holds no run: there is no such directory$"):
        read(tmp_path / "nowhere")
    with pytest.raises(FedaxError, match=r"holds no run: it has no metrics\.jsonl$"):
        read(tmp_path)
    with pytest.raises(FedaxError, match="holds no run"):
        find(tmp_path)
    with pytest.raises(FedaxError, match="at least one run"):
        write(tmp_path, [])
    run = make(tmp_path / "a", history(0.5, None))
    assert find(run) == [run]
    with pytest.raises(FedaxError, match="cannot be written"):
        write(run / "metrics.jsonl", [run])
    assert not list(tmp_path.rglob("*.part"))


def test_the_page_says_what_was_run_and_what_went_wrong(tmp_path: Path) -> None:
    shown = words(write(tmp_path / "new/folder", everything(tmp_path)).read_text())
    assert "The digits data over 6 clients (partition ByLabel, labels 2) with the model mlp" in shown
    assert "Each round all clients take part; each takes 5 local steps on batches of 20" in shown
    assert "10 rounds, seeds 0, 1, 2." in shown
    assert "SCAFFOLD, seed 0 diverged at round 5 of 10: the loss is NaN." in shown
    assert "bare has left no word of how it ended: its log stops at round 10." in shown
    assert "its last line was cut short" in shown
    assert NASTY in shown
    assert "algorithm.lr" in shown
    assert "0.10.0" in shown


def test_the_best_finished_value_is_bold(tmp_path: Path) -> None:
    bold = re.findall(r"<strong>(.*?)</strong>", write(tmp_path, everything(tmp_path)).read_text())
    assert "82.00" in bold
    assert not [value for value in bold if value.startswith(("50", "60", "70"))]


def test_runs_that_differ_in_more_than_the_method_are_flagged(tmp_path: Path) -> None:
    runs = [make(tmp_path / "a", history(0.5, None), experiment=experiment("A", 0))]
    runs.append(make(tmp_path / "b", history(0.5, None), experiment=experiment("B", 0, rounds=20)))
    assert "compare them with care: rounds (10, 20)." in words(write(tmp_path, runs).read_text())


def test_the_page_needs_nothing_else_and_holds_no_foreign_markup(tmp_path: Path) -> None:
    written = write(tmp_path, everything(tmp_path))
    page = written.read_text()
    markup = re.sub(r"(<script\b[^>]*>).*?</script>", r"\1", page, flags=re.DOTALL)
    assert not re.search(r"\b(src|href|action)\s*=|<link|<iframe|@import|url\(|https?:", markup)
    assert "default-src 'none'" in markup  # the browser refuses what a script might ask for
    assert "alert(1)</script>" not in page
    data = embedded(written)
    assert data["groups"][0]["label"] == NASTY
    assert list(data["axes"]) == ["round", "gradients", "floats", "seconds"]
    assert data["curves"][0]["x"]["floats"] == [0, 9000, 18000]
    curve = data["curves"][0]["y"]["test_accuracy"]
    assert [curve[k][-1] for k in ("low", "mean", "high")] == [0.8, 0.82, 0.84]
    assert data["clients"][3]["moments"]["last"]["metrics"]["Test accuracy"]["personal"][1] is None


def test_a_long_run_is_thinned_and_keeps_its_ends(tmp_path: Path) -> None:
    run = make(tmp_path / "a", [{"round": r, "train_loss": math.inf if r == 0 else 1.0 / r} for r in range(5000)])
    data = embedded(write(tmp_path, [run]))
    rounds = data["curves"][0]["x"]["round"]
    assert len(rounds) <= 1501
    assert (rounds[0], rounds[-1]) == (0, 4999)
    assert data["curves"][0]["y"]["train_loss"]["mean"][0] is None


def test_the_room_reads_files_only() -> None:
    names: set[str] = set()
    for path in Path(fedax.report.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            if isinstance(node, ast.ImportFrom):
                names.add(node.module or "")
    evaluation = ("fedax.evaluation.protocol", "fedax.evaluation.metrics")
    own = ("fedax.report", "fedax.runs", "fedax.errors", "fedax.data.heterogeneity", *evaluation)
    assert not [n for n in names if n.startswith(("jax", "flax", "fedax.")) and not n.startswith(own)]


def test_the_room_opens_without_jax() -> None:
    code = "import sys, fedax.report; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_sweep_beside_the_runs_is_drawn(tmp_path: Path) -> None:
    page = write(tmp_path, sweep(tmp_path))
    assert "B: lr 1, server_lr 1 is the best of 6 settings, with support F1 0.25." in words(page.read_text())
    (shown,) = embedded(page)["sweeps"]
    assert (shown["title"], shown["how"]) == ("Support F1", "mean over the last 5 rounds")
    assert (shown["fields"], shown["axes"]) == (["lr", "server_lr"], [["0.1", "1", "10"], ["0.5", "1"]])
    assert [method["group"] for method in shown["methods"]] == [0, 1]
    assert shown["methods"][0]["z"] == [[0.1, 0.2, None], [0.15, 0.25, None]]  # means over the two seeds


def test_a_sweep_shows_its_settings_at_the_thesis_shares_of_the_rounds(tmp_path: Path) -> None:
    """Figure 4.11 has rounds 10, 30, 100 and 300 of 300; here they are 1, 3, 10 and 30 of 30. Two of the twelve
    settings and seeds diverge after round 3."""
    (shown,) = embedded(write(tmp_path, sweep(tmp_path)))["sweeps"]
    progress = shown["progress"]
    assert (progress["title"], progress["rounds"]) == ("Support F1", [1, 3, 10, 30])
    assert [[len(at) for at in method] for method in progress["points"]] == [[12, 12, 10, 10]] * 2
    assert progress["points"][1][3][0] == [0.5, 0.05, "lr 0.1, server_lr 0.5"]
    assert progress["points"][1][2][0][:2] == pytest.approx([1 - 10 / 60, 0.05 / 3])


@pytest.mark.parametrize("name", ["sweep.csv", "experiment.json"])
def test_a_sweep_that_cannot_be_read_is_left_out(tmp_path: Path, name: str) -> None:
    runs = sweep(tmp_path)
    (tmp_path / name).write_text("{}")
    assert not any(shown["methods"] for shown in embedded(write(tmp_path, runs))["sweeps"])


def test_several_directories_are_one_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    comparison(Path("one"))
    sweep(Path("two"))
    assert invoke(["report", "one", "two"]) == 0
    assert capsys.readouterr().out.split() == ["one/report.html", "two/report.html", "report.html"]
    data = embedded(Path("report.html"))
    assert [group["label"] for group in data["groups"]] == ["FedAvg", "APFL", NASTY, "B"]
    assert [[method["group"] for method in shown["methods"]] for shown in data["sweeps"]] == [[2, 3]]
    assert [group["label"] for group in embedded(Path("one/report.html"))["groups"]] == ["FedAvg", "APFL"]
    assert invoke(["report", "one", "two", "--out", "pages/both.html"]) == 0
    assert Path("pages/both.html").read_text() == Path("report.html").read_text()


def test_a_page_cannot_take_the_place_of_a_directory_or_of_a_run_s_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    make(Path("one"), history(0.5, None))
    assert invoke(["report", "one", "--out", "one"]) == 2
    assert capsys.readouterr().err.startswith("error: --out is one: it is a directory, and must be a file")
    assert invoke(["report", "one", "--out", "one/metrics.jsonl"]) == 2
    assert capsys.readouterr().err == "error: --out is 'one/metrics.jsonl': its name must end in .html\n"
    assert not Path("one/report.html").exists()


def test_the_same_run_in_two_directories_is_no_further_seed(tmp_path: Path) -> None:
    first, second = comparison(tmp_path / "first"), comparison(tmp_path / "second")
    lost = tmp_path / "first/runs/a-0"
    (lost / "status.json").write_text(json.dumps({"status": "failed", "round": 5, "rounds": 10}))
    found = groups(read_all([*first, *second]))
    assert [len(group.runs) for group in found] == [3, 3]
    assert [run.folder for run in found[0].again] == [lost, *(tmp_path / "second/runs" / f"a-{i}" for i in (1, 2))]
    assert table([*first, *second])[0]["test_accuracy"] == pytest.approx((0.82, 0.02, 3))
    page = combine(tmp_path / "both.html", {tmp_path / "first": first, tmp_path / "second": second})
    assert "first/runs/a-0 is a run of FedAvg that is here already, and counts once." in words(page.read_text())


def test_runs_that_have_not_begun_are_named(tmp_path: Path) -> None:
    runs = comparison(tmp_path)
    planned = [run.name for run in runs]
    (tmp_path / "experiment.json").write_text(json.dumps({"runs": [*planned, "c-0", "c-1"]}))
    said = words(write(tmp_path, runs).read_text())
    assert f"2 of the 8 planned runs of {tmp_path.name} left nothing to show: c-0, c-1." in said
    (tmp_path / "experiment.json").write_text(json.dumps({"runs": planned}))
    assert "left nothing" not in words(write(tmp_path, runs).read_text())


def test_one_label_in_unlike_experiments_goes_by_their_names(tmp_path: Path) -> None:
    other = {"name": "four labels", "rounds": 20, "cohort": 3, "local_steps": 1, "batch_size": 5}
    for i, changes in enumerate(({}, other)):
        make(tmp_path / f"runs/{i}", history(0.5, None), experiment=experiment("FedAvg", 0, **changes))
    assert [row["algorithm"] for row in table(find(tmp_path))] == ["FedAvg (two labels each)", "FedAvg (four labels)"]


def test_a_page_is_below_two_megabytes(tmp_path: Path) -> None:
    assert write(tmp_path, everything(tmp_path)).stat().st_size < 2e6


@given(st.text())
def test_what_is_packed_comes_out_again_and_closes_no_element(text: str) -> None:
    packed = packing.pack(text)
    assert packing.unpack(packed) == text
    assert not set("</") & set(packed)


def test_the_conclusion_is_about_the_spread_of_the_differences(tmp_path: Path) -> None:
    """A is ahead of B by 1, 2 and 3 points with seeds 0, 1 and 2: the interval is 2 +- 2.48. Ahead of C it is by 2, 2.1
    and 2.2: beyond it, though A's own interval is as wide as before."""

    def runs(folder: str, of: dict[str, tuple[float, ...]]) -> list[str]:
        places = [
            make(tmp_path / folder / f"{label}{seed}", history(value, None), experiment=experiment(label, seed))
            for label, values in of.items()
            for seed, value in enumerate(values)
        ]
        return conclusion(groups(read_all(places)))

    a = (0.8, 0.85, 0.9)
    assert runs("b", {"A": a, "B": (0.79, 0.83, 0.87)}) == [
        "No method is shown to have the best shared model: A's test accuracy 85.00 % is 2.00 points above B, which is "
        "within the spread over 3 seeds."
    ]
    assert runs("c", {"A": a, "C": (0.78, 0.829, 0.878), "D": (0.78, 0.829, 0.878)}) == [
        "A has the best shared model: test accuracy 85.00 %, 2.10 points above C and D (beyond the spread over 3 "
        "seeds), with as many gradients and floats sent."
    ]
    assert runs("d", {"A": (0.8,), "B": (0.7,)})[0].startswith("A has the best shared model: test accuracy 80.00 %, ")
    assert runs("e", {"A": (0.8,)}) == ["A reaches test accuracy 80.00 % with its shared model, with one seed."]
