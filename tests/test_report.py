"""The report: what it reads from a run directory, its table, its page, and the page in a browser."""

from __future__ import annotations

import ast
import html
import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedax.report
from fedax.errors import FedaxError
from fedax.evaluation.protocol import Clients, Moment
from fedax.report import find, groups, read, table, text, write
from fedax.report.partition import partitions

NASTY = "<script>alert(1)</script> & 'co' %{x}"
CLIENTS, LABELS = 6, 3


def experiment(label: str, seed: int, **changes: Any) -> dict[str, Any]:
    return {
        "name": "two labels each",
        "rounds": 10,
        "cohort": None,
        "local_steps": 5,
        "batch_size": 20,
        "weighted": True,
        "seed": seed,
        "data": {"name": "digits", "seed": 0, "partition": {"name": "ByLabel", "clients": 6, "labels": 2}},
        "model": {"name": "mlp", "hidden": [32]},
        "algorithm": {"name": label, "label": label, "lr": 0.1},
        "versions": {"fedax": "0.1.0", "jax": "0.10.0"},
    } | changes


def history(final: float, personal: float | None, rounds: tuple[int, ...] = (0, 5, 10)) -> list[dict[str, Any]]:
    rows = []
    for r in rounds:
        row: dict[str, Any] = {"round": r}
        for prefix, value in (("", final), ("personal_", personal)):
            if value is not None:
                accuracy = 0.1 + (value - 0.1) * r / rounds[-1]
                row |= {f"{prefix}test_accuracy": accuracy, f"{prefix}test_loss": 2 - accuracy}
                row |= {f"{prefix}test_accuracy_mean": accuracy, f"{prefix}test_accuracy_std": 0.05}
                row |= {f"{prefix}test_accuracy_worst": accuracy / 2}
        rows.append(row | {"gradients": 30 * r, "floats_up": 600 * r, "floats_down": 1200 * r, "seconds": r / 10})
    return rows


def clients(personal: bool) -> dict[str, Any]:
    values = {"test": {"accuracy": [0.1 * i for i in range(CLIENTS)], "loss": [1.0] * CLIENTS}}
    if personal:
        values["personal_test"] = {"accuracy": [0.9, None, 0.8, 0.7, 0.9, 1.0], "loss": [0.5] * CLIENTS}
    return {
        "names": [f"client {i}" for i in range(CLIENTS)],
        "label_counts": [[10 * (i % LABELS == label) for label in range(LABELS)] for i in range(CLIENTS)],
        "rows": {"train": [10] * CLIENTS, "validation": [0] * CLIENTS, "test": [5] * CLIENTS},
        "values": values,
    }


def make(folder: Path, rows: list[dict[str, Any]], **documents: Any) -> Path:
    """A run directory; a status of finished unless another is given."""
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, content in ({"status": {"status": "finished", "round": 10, "rounds": 10}} | documents).items():
        if content is not None:
            (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def comparison(folder: Path, label: str = "FedAvg") -> list[Path]:
    """Two methods with three seeds each, the second personalised."""
    for seed, (shared, low, own) in enumerate([(0.80, 0.70, 0.90), (0.82, 0.70, 0.92), (0.84, 0.70, 0.97)]):
        first, second = experiment(label, seed), experiment("APFL", seed)
        make(folder / f"runs/a-{seed}", history(shared, None), experiment=first, clients=clients(False))
        make(folder / f"runs/b-{seed}", history(low, own), experiment=second, clients=clients(True))
    return find(folder)


@pytest.fixture
def everything(tmp_path: Path) -> list[Path]:
    """A comparison with a label that is markup, a diverged run, a bare log cut short, and a regression."""
    found = comparison(tmp_path, NASTY)
    stopped = {"status": "diverged", "round": 5, "rounds": 10, "message": "the loss is NaN"}
    rows = history(0.5, None, (0, 5))
    found.append(make(tmp_path / "d", rows, experiment=experiment("SCAFFOLD", 0), status=stopped))
    found.append(make(tmp_path / "bare", history(0.6, None), status=None))
    with (tmp_path / "bare/metrics.jsonl").open("a") as log:
        log.write('{"round": 15, "test_acc')
    losses = [{"round": r, "train_loss": 10.0**-r, "train_loss_worst": 1.0, "gradients": r} for r in (0, 4, 8)]
    found.append(make(tmp_path / "regression", losses, experiment=experiment("GD", 0)))
    return found


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


def test_what_a_crash_left_is_read(everything: list[Path], tmp_path: Path) -> None:
    bare = read(tmp_path / "bare")
    assert (bare.label, bare.status, bare.round) == ("bare", "unknown", 10)
    assert bare.notes == ("metrics.jsonl ends early: its last line was cut short",)
    rows = {row["algorithm"]: row for row in table(everything)}
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
    page = write(tmp_path, [planned]).read_text()
    assert "before the first evaluated round" in page


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


def words(page: str) -> str:
    """A page without its scripts, style and tags."""
    bare = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", bare)))


def test_the_page_says_what_was_run_and_what_went_wrong(everything: list[Path], tmp_path: Path) -> None:
    shown = words(write(tmp_path / "new/folder", everything).read_text())
    assert "The digits data over 6 clients (partition ByLabel, labels 2) with the model mlp" in shown
    assert "Each round all clients take part; each takes 5 local steps on batches of 20" in shown
    assert "10 rounds, seeds 0, 1, 2." in shown
    assert "SCAFFOLD, seed 0 diverged at round 5 of 10: the loss is NaN." in shown
    assert "bare has left no word of how it ended: its log stops at round 10." in shown
    assert "its last line was cut short" in shown
    assert NASTY in shown
    assert "algorithm.lr" in shown
    assert "0.10.0" in shown


def test_the_best_finished_value_is_bold(everything: list[Path], tmp_path: Path) -> None:
    bold = re.findall(r"<strong>(.*?)</strong>", write(tmp_path, everything).read_text())
    assert "82.00" in bold
    assert not [value for value in bold if value.startswith(("50", "60", "70"))]


def test_runs_that_differ_in_more_than_the_method_are_flagged(tmp_path: Path) -> None:
    runs = [make(tmp_path / "a", history(0.5, None), experiment=experiment("A", 0))]
    runs.append(make(tmp_path / "b", history(0.5, None), experiment=experiment("B", 0, rounds=20)))
    assert "compare them with care: rounds (10, 20)." in words(write(tmp_path, runs).read_text())


def test_the_page_needs_nothing_else_and_holds_no_foreign_markup(everything: list[Path], tmp_path: Path) -> None:
    page = write(tmp_path, everything).read_text()
    markup = re.sub(r"(<script>).*?</script>", r"\1", page, flags=re.DOTALL)
    assert not re.search(r"\b(src|href|action)\s*=|<link|<iframe|@import|url\(|https?:", markup)
    assert "default-src 'none'" in markup  # the browser refuses what a script might ask for
    assert "alert(1)</script>" not in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    assert data["groups"][0]["label"] == NASTY
    assert list(data["axes"]) == ["round", "gradients", "floats", "seconds"]
    assert data["curves"][0]["x"]["floats"] == [0, 9000, 18000]
    curve = data["curves"][0]["y"]["test_accuracy"]
    assert [curve[k][-1] for k in ("low", "mean", "high")] == [0.8, 0.82, 0.84]
    assert data["clients"][3]["moments"]["last"]["metrics"]["Test accuracy"]["personal"][1] is None


def test_a_long_run_is_thinned_and_keeps_its_ends(tmp_path: Path) -> None:
    run = make(tmp_path / "a", [{"round": r, "train_loss": math.inf if r == 0 else 1.0 / r} for r in range(5000)])
    page = write(tmp_path, [run]).read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
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
    own = ("fedax.report", "fedax.errors", "fedax.evaluation.protocol", "fedax.data.heterogeneity")
    assert not [n for n in names if n.startswith(("jax", "flax", "fedax.")) and not n.startswith(own)]


def test_the_room_opens_without_jax() -> None:
    code = "import sys, fedax.report; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


CATCH = """<script>window.faults = [];
addEventListener("error", (e) => faults.push(e.message));
addEventListener("securitypolicyviolation", (e) => faults.push(e.blockedURI + " " + e.violatedDirective));
console.error = console.warn = (...words) => faults.push(words.join(" "));</script>"""
BEGIN = """(() => {
const by = (id) => document.getElementById(id), seen = {};
const choose = (id, value) => { by(id).value = value; by(id).dispatchEvent(new Event("change")); };
"""
END = """
seen.wide = document.documentElement.scrollWidth - innerWidth;
seen.faults = faults;
const out = document.createElement("pre");
out.id = "seen";
out.textContent = JSON.stringify(seen);
document.body.append(out);
})();"""
DRIVE = """
const chart = by("curves");
const named = () => chart.data.filter((t) => t.name).map((t) => t.name);
seen.first = [chart.layout.yaxis.title.text, chart.layout.xaxis.title.text, chart.layout.yaxis.type];
seen.lines = named();
seen.bands = chart.data.filter((t) => t.fill === "toself").length;
choose("curve-axis", "gradients");
choose("curve-measure", [...by("curve-measure").options].find((o) => o.text === "Training loss").value);
by("curve-log").click();
seen.second = [chart.layout.yaxis.title.text, chart.layout.xaxis.title.text, chart.layout.yaxis.type];
seen.second_lines = named();
choose("curve-measure", 0);
document.querySelector("#methods input").click();
seen.third_lines = named();
seen.sorted = by("sorted").data.length;
seen.scatter = by("scatter").data.length;
seen.heat = by("partition").data.filter((t) => t.type === "heatmap").length;
const there = [...document.querySelectorAll("main section:not(#sweep-section)")];
seen.visible = there.every((s) => !s.hidden && s.offsetHeight > 0);
dispatchEvent(new Event("beforeprint"));
seen.printed = [chart.layout.width, document.querySelectorAll("details[open]").length];
dispatchEvent(new Event("afterprint"));
seen.printed.push(document.querySelectorAll("details[open]").length);
seen.loaded = performance.getEntriesByType("resource").length;
const lost = (e) => { e.focus(); return document.activeElement !== e; };
const controls = [...document.querySelectorAll("main select, main input, main button, main summary, .scroll")];
seen.unreachable = controls.filter((e) => e.checkVisibility() && (e.tabIndex < 0 || lost(e))).map((e) => e.id);
seen.nameless = controls.filter((e) => e.matches("select, input") && !e.labels[0]?.textContent.trim()).map((e) => e.id);
"""


QUIET = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--virtual-time-budget=8000",
]


def browse(page: Path, profile: Path, *options: str) -> str:
    command = ["chromium", *QUIET, f"--user-data-dir={profile}", *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def driven(page: Path, script: str, size: str) -> tuple[dict[str, Any], str]:
    """What a script that fills `seen` found on a page, and the page's document after it."""
    before, _, after = page.read_text().replace("<style>", CATCH + "<style>", 1).rpartition("</body>")
    page.write_text(f"{before}<script>{BEGIN}{script}{END}</script></body>{after}")
    dom = browse(page, page.parent / "profile", f"--window-size={size}", "--dump-dom")
    found = re.search(r'<pre id="seen">(.*?)</pre>', dom, re.DOTALL)
    seen: dict[str, Any] = json.loads(html.unescape(found[1]))  # type: ignore[index]
    return seen, dom


in_a_browser = pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium")
sizes = pytest.mark.parametrize("size", ["1280,1600", "500,844"])


@in_a_browser
@sizes
def test_the_page_works_in_a_browser(everything: list[Path], tmp_path: Path, size: str) -> None:
    seen, dom = driven(write(tmp_path, everything), DRIVE, size)
    assert seen["faults"] == []
    assert 'data-title="Share' not in dom
    assert seen["loaded"] == 0
    assert seen["wide"] <= 0
    assert seen["visible"]
    assert (seen["unreachable"], seen["nameless"]) == ([], [])
    assert seen["printed"] == [680, 2, 0]
    nasty = html.escape(NASTY, quote=False)
    title = "Test accuracy" if size == "1280,1600" else ""
    assert seen["first"] == [title, "Rounds", "linear"]
    assert seen["lines"] == [nasty, "APFL", "APFL, personal", "SCAFFOLD", "bare"]
    assert seen["bands"] == 3
    assert seen["second"] == [title and "Training loss", "Gradient evaluations", "log"]
    assert seen["second_lines"] == ["GD"]
    assert seen["third_lines"] == ["APFL", "APFL, personal", "SCAFFOLD", "bare"]
    assert (seen["sorted"], seen["scatter"], seen["heat"]) == (2, 2, 1)


def sweep(folder: Path) -> list[Path]:
    """A sweep of two methods over three by two settings, of which some diverged."""
    rows = ["algorithm,seed,lr,server_lr,diverged,score,rounds_to_target,f1,density"]
    for label in (NASTY, "B"):
        for seed in (0, 1):
            for i, lr in enumerate((0.1, 1.0, 10.0)):
                for server_lr in (0.5, 1.0):
                    gone = lr == 10 and seed == 1
                    score = "" if gone else f"{(i + server_lr + seed) / 10}"
                    rows.append(f'"{label}",{seed},{lr},{server_lr},{3 if gone else ""},{score},,{score},0.25')
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sweep.csv").write_text("\n".join(rows) + "\n")
    about = {"lr": [0.1, 1.0, 10.0], "server_lr": [0.5, 1.0], "metric": "f1", "goal": "max", "over": 5, "target": None}
    (folder / "experiment.json").write_text(json.dumps({"sweep": about}))
    return [
        make(folder / "runs" / str(i), history(0.5, None), experiment=experiment(label, 0))
        for i, label in enumerate((NASTY, "B"))
    ]


def embedded(page: Path) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    data: dict[str, Any] = json.loads(found[1])  # type: ignore[index]
    return data


def test_a_sweep_beside_the_runs_is_drawn(tmp_path: Path) -> None:
    shown = embedded(write(tmp_path, sweep(tmp_path)))["sweep"]
    assert (shown["title"], shown["how"], shown["fields"]) == ("F1", "mean over the last 5 rounds", ["lr", "server_lr"])
    assert shown["axes"] == [["0.1", "1", "10"], ["0.5", "1"]]
    assert [method["group"] for method in shown["methods"]] == [0, 1]
    assert shown["methods"][0]["z"] == [[0.1, 0.2, None], [0.15, 0.25, None]]  # means over the two seeds
    assert len(shown["methods"][1]["points"]) == 10
    assert shown["methods"][1]["points"][0] == [0.25, 0.05, "lr 0.1, server_lr 0.5"]


@pytest.mark.parametrize("name", ["sweep.csv", "experiment.json"])
def test_a_sweep_that_cannot_be_read_is_left_out(tmp_path: Path, name: str) -> None:
    runs = sweep(tmp_path)
    (tmp_path / name).write_text("{}")
    shown = embedded(write(tmp_path, runs))["sweep"]
    assert not shown or not shown["methods"]


LOOK = """
seen.visible = !by("sweep-section").hidden && by("sweep-section").offsetHeight > 0;
seen.kinds = [0, 1].map((i) => by(`heat-${i}`).data[0].type);
seen.dense = by("dense").data.length;
document.querySelector("#methods input").click();
seen.after = [by("dense").data.length, by("heat-0").offsetHeight];
"""


@in_a_browser
@sizes
def test_a_sweep_works_in_a_browser(tmp_path: Path, size: str) -> None:
    seen, _ = driven(write(tmp_path, sweep(tmp_path)), LOOK, size)
    assert seen.pop("wide") <= 0
    assert seen == {"visible": True, "kinds": ["heatmap", "heatmap"], "dense": 2, "after": [1, 0], "faults": []}


TARGET = """
const rows = () => [...by("target-rows").rows].map((row) => [...row.cells].map((c) => c.textContent));
const type = (value) => { by("target").value = value; by("target").dispatchEvent(new Event("input")); };
seen.first = [by("target").value, rows()];
type("46");
seen.lower = [rows(), by("curves").data.find((t) => t.meta === "target").y];
type("99");
seen.higher = rows().map((row) => row[1].split(";")[0]);
type("");
seen.cleared = rows().length && rows()[0][1];
choose("curve-measure", [...by("curve-measure").options].find((o) => o.text === "Test loss").value);
seen.loss = by("target").value;
document.querySelector("#methods input").click();
seen.fewer = rows().map((row) => row[0]);
"""


@in_a_browser
@sizes
def test_the_costs_of_a_target_are_read_off_the_curves(tmp_path: Path, size: str) -> None:
    """Mean accuracies over the seeds at rounds 0, 5, 10: FedAvg .10 .46 .82, APFL .10 .40 .70, its personal models
    .10 .515 .93; five rounds cost 150 gradients and 3000 + 6000 floats."""
    found = comparison(tmp_path)
    stopped = {"status": "diverged", "round": 5, "rounds": 10, "message": "the loss is NaN"}
    lost = make(tmp_path / "lost", history(0.3, None, (0, 5)), experiment=experiment("Lost", 0), status=stopped)
    seen, _ = driven(write(tmp_path, [*found, lost]), TARGET, size)
    assert (seen["faults"], max(seen["wide"], 0)) == ([], 0)
    at_five, at_ten = ["5", "150", "9000", "0.5"], ["10", "300", "18 k", "1"]
    failed = "not reached; its best is"
    # the worst of FedAvg's 82 and APFL's 93; the run that diverged does not count
    assert seen["first"] == [
        "82",
        [["FedAvg", *at_ten], ["APFL", f"{failed} 70 %"], ["APFL, personal", *at_ten], ["Lost", f"{failed} 30 %"]],
    ]
    assert seen["lower"][0][:3] == [["FedAvg", *at_five], ["APFL", *at_ten], ["APFL, personal", *at_five]]
    assert seen["lower"][1] == [0.46, 0.46]
    assert seen["higher"] == ["not reached"] * 4
    assert seen["cleared"] == "10"
    assert float(seen["loss"]) == 1.18  # lower is better: 2 - 0.82, and not APFL's 2 - 0.93
    assert seen["fewer"] == ["APFL", "APFL, personal", "Lost"]


def moments(shift: float, *, shared: bool = True, personal: bool = True) -> dict[str, Any]:
    """Five clients: the third never joins, the fourth does in round 8, the fifth is held out. Every metric at the last
    round is half of that at the chosen one."""
    own, common = np.array([0.75, 0.75, 0.25, 0.5, 0.9]) + shift, np.array([0.5, 0.5, 0.5, 0.5, 0.4]) + shift
    models = {"shared": common} if shared else {}
    models |= {"personal": own} if personal else {}
    rows = {"train": np.full(5, 8), "validation": np.full(5, 2), "test": np.array([10, 10, 10, 30, 10])}

    def moment(round: int, scale: float) -> Moment:
        return Moment(round, {name: {"test": {"accuracy": scale * of}} for name, of in models.items()})

    joined, unseen = np.array([1, 2, 0, 8, 0]), np.arange(5) == 4
    names = tuple(f"client {i}" for i in range(5))
    kept = Clients(names, rows, joined, unseen, {"last": moment(10, 0.5), "chosen": moment(6, 1.0)})
    return kept.as_json() | {"label_counts": [[2 * (i == label) for label in range(5)] for i in range(5)]}


def personal(folder: Path) -> list[Path]:
    """A personal method, one without personal models, and training alone; two seeds, the second 2 % better."""
    for seed in (0, 1):
        for label, kept in (
            ("Ditto", moments(0.02 * seed)),
            ("FedAvg", moments(0.02 * seed, personal=False)),
            ("LocalOnly", moments(0.02 * seed - 0.125, shared=False)),
        ):
            plan = experiment(label, seed)
            make(folder / f"runs/{label}-{seed}", history(0.5, 0.6), experiment=plan, clients=kept)
    return find(folder)


def cells(page: str, moment: str, title: str) -> list[list[str]]:
    """The body of one of the protocol's tables."""
    block = page.split(f'data-moment="{moment}"')[1].split(f"<h3>{title}")[1].split("</table>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", block.split("</thead>")[1], re.DOTALL)
    return [[words(cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)] for row in rows]


def test_personal_models_stand_beside_the_others(tmp_path: Path) -> None:
    page = write(tmp_path, personal(tmp_path)).read_text()
    rows = cells(page, "chosen", "All clients: test accuracy, %, round chosen on validation rows")
    # Student's t with one degree of freedom is 12.706 at 97.5 %; two seeds 2 % apart have a standard error of 1 %.
    # Weighted by rows: (7.5 + 7.5 + 2.5 + 15) / 60 and 1 % for the seeds' mean; the deviation is that of the four.
    deviation = f"{100 * math.sqrt((2 * 0.1875**2 + 0.3125**2 + 0.0625**2) / 4):.2f}"
    assert rows[0] == ["Ditto round 6"]
    shared, own = rows[1], rows[2]
    assert shared == ["Shared", "4", "51.00", "51.00 ± 12.71", "0.00", "51.00", "51.00", *["–"] * 6]
    assert own[:7] == ["Personal", "4", "55.17", "57.25 ± 12.71", deviation, "26.00", "76.00"]
    assert own[7:9] == ["50 %", "25 %"]
    assert own[10:12] == ["100 %", "0 %"]  # every client's is an eighth better than training alone
    assert rows[3] == ["FedAvg round 6; no personal models: clients use the shared one"]
    assert [row[0] for row in rows[4:]] == [
        "Shared",
        "LocalOnly round 6; no shared model: every client trains alone",
        "Local",
    ]
    assert rows[6][2] == "42.67"
    last = cells(page, "last", "All clients: test accuracy, %, last round")
    assert (last[0], last[1][3]) == (["Ditto round 10"], "25.50 ± 6.35")
    joined = cells(page, "chosen", "Clients that took part")
    assert joined[2][:3] == ["Personal", "2", "76.00"]
    assert cells(page, "chosen", "Clients held out from training")[2][:3] == ["Personal", "1", "91.00"]


def test_runs_on_other_data_are_not_compared_and_the_page_says_why(tmp_path: Path) -> None:
    first = make(tmp_path / "a", history(0.5, None), experiment=experiment("Ditto", 0), clients=moments(0.0))
    fewer = {"name": "digits", "seed": 0, "partition": {"name": "ByLabel", "clients": 5, "labels": 5}}
    other = moments(0.1, shared=False)
    other["names"] = [f"writer {i}" for i in range(5)]
    plan = experiment("LocalOnly", 0, data=fewer, rounds=20)
    second = make(tmp_path / "b", history(0.6, None), experiment=plan, clients=other)
    page = write(tmp_path, [first, second]).read_text()
    shown = words(page)
    assert (
        "These runs cannot be compared, for their data or models are not the same: "
        "data.partition.clients (6, 5), data.partition.labels (2, 5)."
    ) in shown
    assert "compare them with care: rounds (10, 20)." in shown
    assert "<strong>" not in page.split("<script")[0]
    assert "against shared" in shown
    assert "against local" not in shown  # other clients are no yardstick


def test_runs_on_another_draw_of_the_data_cannot_be_compared(tmp_path: Path) -> None:
    runs = []
    for label, seed in (("A", 0), ("B", 7)):
        data = {"name": "digits", "seed": seed}
        runs.append(make(tmp_path / label, history(0.5, None), experiment=experiment(label, 0, data=data)))
    assert "are not the same: data.seed (0, 7)." in words(write(tmp_path, runs).read_text())


def test_a_personal_run_that_crashed_shows_what_it_left(tmp_path: Path) -> None:
    found = personal(tmp_path)
    crashed = tmp_path / "runs/Ditto-1"
    (crashed / "clients.json").write_text(json.dumps({k: v for k, v in moments(0.0).items() if k != "moments"}))
    (crashed / "status.json").write_text(
        json.dumps({"status": "failed", "round": 5, "rounds": 10, "message": "no disk"})
    )
    (crashed / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in history(0.5, 0.6, (0, 5))))
    page = write(tmp_path, found).read_text()
    assert "Ditto, seed 1 failed at round 5 of 10: no disk." in words(page)
    rows = cells(page, "chosen", "All clients")
    assert rows[0] == ["Ditto round 6; 1 of 2 seeds; 1 finished, 1 failed"]
    assert rows[2][3] == "56.25"


def test_a_method_that_did_not_finish_wins_nothing(tmp_path: Path) -> None:
    runs = []
    for label, shift, status in (("A", 0.0, "finished"), ("B", 0.0, "failed"), ("C", -0.1, "finished")):
        kept, state = moments(shift), {"status": status, "round": 10, "rounds": 10}
        plan = experiment(label, 0)
        runs.append(make(tmp_path / label, history(0.5 + shift, None), experiment=plan, clients=kept, status=state))
    bodies = re.findall(r"<tbody>(.*?)</tbody>", write(tmp_path, runs).read_text().split("<script")[0], re.DOTALL)
    summary = re.findall(r"<tr>(.*?)</tr>", bodies[0])
    methods = [body for body in bodies if 'scope="rowgroup"' in body]
    assert ["<strong>" in row for row in summary] == [True, False, False]
    assert ["<strong>" in body for body in methods[:3]] == [True, False, False]


@pytest.mark.parametrize(
    "damage",
    [
        {"moments": [1]},
        {"moments": {"chosen": {"round": 1, "values": {}}}},
        {"moments": {"last": {"round": None, "values": {}}}},
        {"moments": {"last": {"round": 1, "values": {"shared": {"test": {"accuracy": [0.5]}}}}}},
        {"joined": "x"},
        {"unseen": [[True]]},
    ],
)
def test_damaged_moments_are_left_out(tmp_path: Path, damage: dict[str, Any]) -> None:
    run = make(tmp_path / "a", history(0.5, None), experiment=experiment("A", 0), clients=moments(0.0) | damage)
    page = write(tmp_path, [run])
    assert "data-moment=" not in page.read_text().split("<script")[0]
    assert embedded(page)["clients"][0]["moments"] == {}


PERSONAL = """
const models = () => by("sorted").data.map((t) => [t.name, ...t.y]);
const blocks = [...document.querySelectorAll("[data-moment]")];
const visible = () => blocks.filter((e) => e.offsetHeight).map((e) => e.dataset.moment);
seen.title = by("clients-title").textContent;
seen.first = [visible(), by("client-method").selectedOptions[0].text, models()];
seen.scatter = [by("scatter").data[1].x, by("scatter").data[1].y, by("scatter").layout.annotations.map((a) => a.text)];
choose("moment", "last");
seen.last = [visible(), models()[0]];
choose("client-group", "unseen");
seen.unseen = models();
choose("client-group", "joined");
seen.joined = [models()[1]];
choose("moment", "chosen");
seen.joined.push(models()[1]);
choose("moment", "last");
choose("client-group", "all");
choose("client-method", "1");
seen.without = [models().map((m) => m[0]), by("client-note").textContent, by("scatter-figure").hidden];
choose("client-method", "");
seen.all = by("sorted").data.map((t) => t.meta);
seen.words = by("partition-words").textContent;
"""


@in_a_browser
@sizes
def test_personal_models_work_in_a_browser(tmp_path: Path, size: str) -> None:
    seen, _ = driven(write(tmp_path, personal(tmp_path)), PERSONAL, size)
    assert (seen["faults"], max(seen["wide"], 0)) == ([], 0)
    assert seen["title"] == "Personal models"
    visible, method, models = seen["first"]
    assert (visible, method) == (["chosen"], "Ditto")
    # in the order of the personal model, and every other model's value of the same client
    assert models == [
        ["shared", 0.5, 0.5, 0.5, 0.5],
        ["personal", 0.25, 0.5, 0.75, 0.75],
        ["local", 0.125, 0.375, 0.625, 0.625],
    ]
    four = [0.5, 0.5, 0.5, 0.5, None]
    assert seen["scatter"] == [four, [0.75, 0.75, 0.25, 0.5, None], ["helped", "harmed"]]
    assert seen["last"] == [["last"], ["shared", 0.25, 0.25, 0.25, 0.25]]
    assert seen["joined"] == [["personal", 0.25, 0.375, 0.375], ["personal", 0.75, 0.75]]
    assert seen["unseen"] == [["shared", 0.2], ["personal", 0.45], ["local", 0.3875]]
    names, note, hidden = seen["without"]
    assert (names, hidden) == (["shared", "local"], True)
    assert note == "FedAvg at round 10. It has no personal models: clients use the shared one."
    assert seen["all"] == ["Ditto", "Ditto, personal", "FedAvg", "LocalOnly, personal"]
    assert "5 clients train on 40 rows, 8 each." in seen["words"]
    assert "labels is 0.800:" in seen["words"]  # a label of its own each: 1 - 1/5
    assert "A client holds 1 of 5 labels (median). The mean total variation" in seen["words"]


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([[4 * (i == label) for label in range(10)] for i in range(10)], "labels is 0.900:"),  # 1 - 1/10
        ([[i + 1, 3 * (i + 1)] for i in range(4)], "labels is 0.000:"),
        ([[6, 0], [0, 2], [0, 0]], "labels is 0.500:"),  # a client without rows has no distribution
        ([[0, 0]], ""),
        ([[1, 2], [3]], ""),
        ([[1, None]], ""),
        (None, ""),
    ],
)
def test_the_partition_in_words(tmp_path: Path, counts: Any, said: str) -> None:
    told = {"label_counts": counts, "rows": {"train": [3, 1, 8]}}
    (of,) = partitions(groups([read(make(tmp_path / "a", [], clients=told))]))
    assert of["words"].startswith("3 clients train on 12 rows, from 1 to 8 each, median 3.")
    assert said in of["words"]
    assert ("total variation" in of["words"]) == bool(said)
