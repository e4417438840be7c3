"""The report in headless Chromium: it opens without a fault, its switches work, at a desk, on a phone and in print."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedax.report import find, write
from report_runs import NASTY, comparison, composite, everything, experiment, history, make, personal, sweep

CATCH = """<script>window.faults = [];
addEventListener("error", (e) => faults.push(e.message));
addEventListener("securitypolicyviolation", (e) => faults.push(e.blockedURI + " " + e.violatedDirective));
console.error = console.warn = (...words) => faults.push(words.join(" "));</script>"""
BEGIN = """ready.then(() => {
const by = (id) => document.getElementById(id), seen = {};
const choose = (id, value) => { by(id).value = value; by(id).dispatchEvent(new Event("change")); };
"""
END = """
seen.wide = document.documentElement.scrollWidth - innerWidth;
seen.faults = faults;
parent.postMessage(JSON.stringify(seen), "*");
});"""
# A window is never narrower than 500 pixels, a frame is.
FRAME = """<!doctype html><body style="margin: 0">
<iframe src="report.html" style="border: 0; width: {0}px; height: {1}px"></iframe>
<script>addEventListener("message", (event) => {{
  const out = document.createElement("pre");
  out.id = "seen";
  out.textContent = event.data;
  document.body.append(out);
}});</script>"""
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
const absent = "#sweep-section, #diagnostics-section, #progress-section";
const there = [...document.querySelectorAll(`main section:not(${absent})`)];
seen.absent = [...document.querySelectorAll(absent)].every((s) => s.hidden);
seen.visible = there.every((s) => !s.hidden && s.offsetHeight > 0);
dispatchEvent(new Event("beforeprint"));
seen.printed = [chart.layout.width, document.querySelectorAll("details[open]").length];
dispatchEvent(new Event("afterprint"));
seen.printed.push(document.querySelectorAll("details[open]").length);
seen.share = document.querySelectorAll('[data-title^="Share"]').length;
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


def driven(page: Path, script: str, size: str, *options: str) -> dict[str, Any]:
    """What a script that fills `seen` found on a page."""
    before, _, after = page.read_text().replace("<style>", CATCH + "<style>", 1).rpartition("</body>")
    page.write_text(f"{before}<script>{BEGIN}{script}{END}</script></body>{after}")
    frame = page.with_name("frame.html")
    frame.write_text(FRAME.format(*size.split(",")))
    dom = browse(frame, page.parent / "profile", f"--window-size={size}", "--dump-dom", *options)
    found = re.search(r'<pre id="seen">(.*?)</pre>', dom, re.DOTALL)
    seen: dict[str, Any] = json.loads(html.unescape(found[1]))  # type: ignore[index]
    return seen


in_a_browser = pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium")
sizes = pytest.mark.parametrize("size", ["1280,1600", "360,780"])


@in_a_browser
@sizes
def test_the_page_works_in_a_browser(tmp_path: Path, size: str) -> None:
    seen = driven(write(tmp_path, everything(tmp_path)), DRIVE, size)
    assert seen["faults"] == []
    assert seen["share"] == 0
    assert seen["loaded"] == 0
    assert seen["wide"] <= 0
    assert seen["visible"]
    assert seen["absent"]
    assert (seen["unreachable"], seen["nameless"]) == ([], [])
    assert seen["printed"] == [680, 3, 0]
    nasty = html.escape(NASTY, quote=False)
    title = "Test accuracy" if size == "1280,1600" else ""
    assert seen["first"] == [title, "Rounds", "linear"]
    assert seen["lines"] == [nasty, "APFL", "APFL, personal", "SCAFFOLD", "bare"]
    assert seen["bands"] == 3
    assert seen["second"] == [title and "Training loss", "Gradient evaluations", "log"]
    assert seen["second_lines"] == ["GD"]
    assert seen["third_lines"] == ["APFL", "APFL, personal", "SCAFFOLD", "bare"]
    assert (seen["sorted"], seen["scatter"], seen["heat"]) == (2, 2, 1)


LOOK = """
const progress = () => [0, 1, 2, 3].map((i) => by(`progress-0-${i}`).data.map((t) => t.x.length));
seen.visible = !by("sweep-section").hidden && by("sweep-section").offsetHeight > 0;
seen.kinds = [0, 1].map((i) => by(`heat-0-${i}`).data[0].type);
seen.title = by("sweep-progress-title").textContent;
seen.progress = progress();
document.querySelector("#methods input").click();
seen.after = [progress(), by("heat-0-0").offsetHeight];
"""


@in_a_browser
@sizes
def test_a_sweep_works_in_a_browser(tmp_path: Path, size: str) -> None:
    seen = driven(write(tmp_path, sweep(tmp_path)), LOOK, size)
    assert seen.pop("wide") <= 0
    one = [12, 12, 10, 10]
    assert seen == {
        "visible": True,
        "kinds": ["heatmap", "heatmap"],
        "title": "Progress: density against Support F1, one point a setting and seed",
        "progress": [[n, n] for n in one],
        "after": [[[n] for n in one], 0],
        "faults": [],
    }


COMPOSITE = """
const path = () => by("progress").data.map((t) => [t.meta, t.x, t.y]);
const ticks = (id) => [by(id).layout.yaxis.type, by(id).layout.xaxis.title.text];
seen.first = [by("progress-measure").selectedOptions[0].text, by("progress-corner").textContent, path()];
choose("progress-measure", [...by("progress-measure").options].find((o) => o.text === "Test loss").value);
seen.loss = [by("progress-corner").textContent, path()[0][2]];
seen.captions = [...document.querySelectorAll("#diagnostics figcaption")].map((e) => e.textContent.split(":")[0]);
choose("curve-axis", "gradients");
seen.signs = [ticks("diagnostic-0"), by("diagnostic-0").data[0].x, by("diagnostic-0").data[0].y];
document.querySelector("#methods input").click();
seen.fewer = [path().length, by("diagnostic-0").data.length];
"""


@in_a_browser
def test_density_and_drift_are_drawn(tmp_path: Path) -> None:
    seen = driven(write(tmp_path, composite(tmp_path)), COMPOSITE, "360,780")
    assert (seen["faults"], max(seen["wide"], 0)) == ([], 0)
    f1 = [0, 0.4, 1]
    paths = [["FedDualAvg", [0, 0.5, 0.25], f1], ["FedMiD", [0, 0.75, 0.5], f1]]
    assert seen["first"] == ["Support F1", "upper", paths]
    assert seen["loss"] == ["lower", [2, 1.6, 1]]
    assert seen["captions"] == ["Drift", "Diversity"]
    assert seen["signs"] == [["log", "Gradient evaluations"], [0, 150, 300], [None, 0.2, 0.1]]
    assert seen["fewer"] == [1, 1]


@in_a_browser
@pytest.mark.parametrize(
    ("drift", "labels"),
    [
        ((0.28, 0.058), ["0.07", "0.1", "0.2"]),  # not every whole number between 0.06 and 0.1
        ((5.006346, 5.006481), ["5.006346", "5.006391", "5.006436", "5.006481"]),  # nearly one number, told apart
    ],
)
def test_a_logarithmic_axis_has_labels_and_not_too_many(tmp_path: Path, drift: Any, labels: list[str]) -> None:
    rows = [{"round": r, "test_loss": 1.0 / (r + 1), "drift": value, "gradients": r} for r, value in enumerate(drift)]
    make(tmp_path / "runs/a", rows, experiment=experiment("FedAvg", 0))
    seen = driven(
        write(tmp_path, find(tmp_path)), 'seen.labels = by("diagnostic-0").layout.yaxis.ticktext;', "1280,900"
    )
    assert (seen["faults"], seen["labels"]) == ([], labels)


NUMBERS = """
const under = (id) => by(id).nextElementSibling;
const rows = (id) => [...under(id).querySelectorAll("tr")].map((row) => [...row.cells].map((c) => c.textContent));
under("curves").open = under("partition").open = true;
choose("curve-axis", "round");
choose("partition-choice", 0);
seen.curves = rows("curves");
seen.partition = rows("partition").slice(0, 3);
seen.label = by("curves").getAttribute("aria-label");
const charts_ = [...document.querySelectorAll(".js-plotly-plot")];
seen.without = charts_.filter((e) => e.role !== "img" || !e.ariaLabel || !e.nextElementSibling.matches("details"));
"""


@in_a_browser
def test_every_chart_has_words_and_a_table(tmp_path: Path) -> None:
    seen = driven(write(tmp_path, comparison(tmp_path)), NUMBERS, "360,780")
    assert (seen["faults"], max(seen["wide"], 0), seen["without"]) == ([], 0, [])
    heads, *lines = seen["curves"]
    assert heads == ["Series", "Rounds", "Value", "Over seeds"]
    # the seeds end at 80, 82 and 84 %; at round 5 they are half-way from 10 %
    assert lines[1:3] == [
        ["FedAvg", "5", "46.00 %", "45.00 % to 47.00 %"],
        ["FedAvg", "10", "82.00 %", "80.00 % to 84.00 %"],
    ]
    assert [line[0] for line in lines[3:]] == ["APFL"] * 3 + ["APFL, personal"] * 3 + ["target"] * 2
    assert seen["partition"] == [["Client \\ Label", "0", "1", "2"], ["0", "10", "0", "0"], ["1", "0", "10", "0"]]
    ends = "FedAvg ends at 82.0 %; APFL ends at 70.0 %; APFL, personal, ends at 93.0 %"
    assert seen["label"] == f"Test accuracy against Rounds; {ends}"


DARK = """
const ink = () => [by("curves").layout.font.color, getComputedStyle(document.body).color];
seen.screen = ink();
dispatchEvent(new Event("beforeprint"));
seen.print = ink();
dispatchEvent(new Event("afterprint"));
seen.after = ink();
"""


@in_a_browser
def test_a_dark_screen_prints_on_white_paper(tmp_path: Path) -> None:
    seen = driven(write(tmp_path, comparison(tmp_path)), DARK, "1280,1600", "--blink-settings=preferredColorScheme=0")
    light, dark = (["#1c2430", "rgb(28, 36, 48)"], ["#e6eaf0", "rgb(230, 234, 240)"])
    assert (seen["screen"], seen["print"], seen["after"]) == (dark, light, dark)


@in_a_browser
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_a_picture_of_the_page_shows_the_curves(tmp_path: Path, width: int, scheme: str) -> None:
    """The second method's colour, which nothing but its marks and its curve has, is seen all along the second half of
    the chart, to which it is zoomed."""
    image = pytest.importorskip("PIL.Image")
    page, picture = write(tmp_path, comparison(tmp_path)), tmp_path / "page.png"
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.format(width, 1600))
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    browse(frame, tmp_path / "profile", "--window-size=1280,1600", f"--screenshot={picture}", *dark)
    with image.open(picture) as opened:
        shown = np.asarray(opened.convert("RGB"))[:, :width]
    orange = (0xF0, 0x7D, 0x2E) if scheme == "dark" else (0xD5, 0x5E, 0x00)
    assert (shown == orange).all(axis=2).any(axis=0).sum() > 0.3 * width
    assert page.stat().st_size < 2e6


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
def test_the_costs_of_a_target_are_read_off_the_curves(tmp_path: Path) -> None:
    """Mean accuracies over the seeds at rounds 0, 5, 10: FedAvg .10 .46 .82, APFL .10 .40 .70, its personal models
    .10 .515 .93; five rounds cost 150 gradients and 3000 + 6000 floats."""
    found = comparison(tmp_path)
    stopped = {"status": "diverged", "round": 5, "rounds": 10, "message": "the loss is NaN"}
    lost = make(tmp_path / "lost", history(0.3, None, (0, 5)), experiment=experiment("Lost", 0), status=stopped)
    seen = driven(write(tmp_path, [*found, lost]), TARGET, "360,780")
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


PERSONAL = """
const models = () => by("sorted").data.map((t) => [t.name, ...t.y]);
const blocks = [...document.querySelectorAll("[data-moment]")];
const visible = () => blocks.filter((e) => e.offsetHeight).map((e) => e.dataset.moment);
seen.title = by("clients-title").textContent;
seen.start = visible();
choose("moment", "chosen");
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
    seen = driven(write(tmp_path, personal(tmp_path)), PERSONAL, size)
    assert (seen["faults"], max(seen["wide"], 0)) == ([], 0)
    assert seen["title"] == "Personal models"
    assert seen["start"] == ["last"]
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
