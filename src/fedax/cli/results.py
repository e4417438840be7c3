"""After a run: its reports, the summary as CSV, and the table on the screen."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedax import report
from fedax.cli.console import say, table
from fedax.errors import FedaxError
from fedax.experiments import Swept
from fedax.report.columns import MetricColumn, parse, title
from fedax.report.conclusion import conclusion
from fedax.report.honest import constant_row, unbalanced
from fedax.report.personal_table import worth
from fedax.report.recorded_sweep import edge_warning
from fedax.report.summary import groups
from fedax.report.writing import write_reports
from fedax.runs.reading import run_folders

#: Left to the report, for want of room on the screen.
UNSHOWN = ("gradients", "floats_down", "seconds", "personal_test_loss")


def write_all_reports(folders: Sequence[Path], out: Path | None) -> Iterator[Path]:
    """Write the report of each directory, and one page on all of them: to `out`, or to report.html here if there are
    several."""
    if out is not None and out.is_dir():
        raise FedaxError(f"--out is {out}: it is a directory, and must be a file such as {out / 'report.html'}")
    if out is not None and out.suffix != ".html":
        raise FedaxError(f"--out is {str(out)!r}: its name must end in .html")
    found = {folder: _inside(folder) for folder in folders}
    for folder, inside in found.items():
        yield write_reports(folder, inside)
    if out is not None or len(found) > 1:
        yield report.combine(out or Path("report.html"), found)


def _inside(folder: Path) -> list[Path]:
    """The runs in a directory; one that crashed before its first evaluation has left its experiment alone."""
    try:
        return run_folders(folder)
    except FedaxError:
        with suppress(FedaxError):
            return report.find(folder)
        raise


def show_table(console: Console, runs: Sequence[Path]) -> None:
    """The final metrics, one line per algorithm."""
    rows = report.table(list(runs))
    shown = {key: title for key, title in report.columns(rows).items() if key not in UNSHOWN}
    unfinished = any(row["status"] != "finished" for row in rows)
    several = max((row["runs"] for row in rows), default=1)
    said = [f"mean ± 95 % interval over {several} seeds"] if several > 1 else []
    equal = report.held_equal(report.read_all(runs))
    caption = "; ".join([*said, *([equal[0].lower() + equal[1:-1]] if equal else [])])
    numbers = (["Status"] if unfinished else []) + list(shown.values())
    lines = []
    for row in rows:
        cells = [row["status"]] if unfinished else []
        for key in shown:
            spread = row.get(key)
            cells.append("–" if spread is None else report.text(key, spread.mean, spread.half))
        lines.append((row["algorithm"], *cells))
    found = groups(report.read_all(runs))
    constant = constant_row(found)
    if constant is not None:
        held = [report.text(key, constant[key].mean) if key in constant else "–" for key in shown]
        lines.append((constant["algorithm"], *(["constant"] if unfinished else []), *held))
    columns = ("Method", *numbers)
    console.print(table(None, columns, lines, right=numbers, caption=caption))
    for sentence in conclusion(found):
        console.print(sentence, markup=False, highlight=False)
    for sentence in unbalanced(found):
        say(sentence, style="yellow")


COLUMNS = (
    "Localised: the shared model after local steps at the client. Local only: trained without federation. Helps / "
    "harms: the share of the clients whose personal model is better / worse than the shared one, and than training "
    "alone; * where the signed-rank test over clients has p < 0.05."
)


def show_protocol(console: Console, runs: Sequence[Path]) -> None:
    """The personal models beside the shared ones, and the clients that they help; for methods that make them."""
    found = report.groups(report.read_all(runs))
    metric, lines = report.protocol(found)
    if not lines:
        return
    about = MetricColumn("test", metric)
    there = [line for line in lines if line["moment"] == "last"]  # as in the table above; the report has both
    for group in worth(there):
        here = [line for line in there if line["group"] == group]
        console.print(_protocol_table(here, group, about))
    own = {line["algorithm"] for line in lines if line["model"] == "personal"}
    without = [name for name in dict.fromkeys(line["algorithm"] for line in lines) if name not in own]
    console.print(COLUMNS, style="dim", markup=False, highlight=False)
    if without:
        console.print(f"{', '.join(without)}: no personal models, so clients use the shared one.", style="dim")


def _protocol_table(lines: Sequence[dict[str, Any]], group: str, about: MetricColumn) -> Table:
    percent = about.percent
    who = {"all": "All clients", "joined": "Clients that took part", "unseen": "Clients held out from training"}[group]
    title = f"{who}, test {about.words}{', %' if percent else ''}, the last round"
    seeds = max(line["seeds"] for line in lines)
    caption = "mean over clients" + (f" ± 95 % interval over {seeds} seeds" if seeds > 1 else "")
    rows = []
    early = any(line["model"] == "before" for line in lines)
    shown = ("shared", "localised", *(["before"] if early else []), "personal", "local")
    for name in dict.fromkeys(line["algorithm"] for line in lines):
        models = {line["model"]: line for line in lines if line["algorithm"] == name}
        own = models.get("personal", {})
        cells = [_cell(models.get(model), "mean", percent) for model in shown]
        cells.append(_cell(own or models.get("shared"), "worst", percent))
        cells += [_helps(own, other) for other in ("shared", "local")]
        rows.append((name, *cells))
    before = ["Before averaging"] if early else []
    numbers = (
        "Shared",
        "Localised",
        *before,
        "Personal",
        "Local only",
        "Worst tenth",
        "Helps / harms: shared",
        "local only",
    )
    return table(title, ("Method", *numbers), rows, right=numbers, spare=["Worst tenth"], caption=caption)


def _cell(line: dict[str, Any] | None, key: str, percent: bool) -> str:
    if line is None or key not in line:
        return "–"
    scale, digits = (100, 2) if percent else (1, 4)
    half = f" ± {scale * line[f'{key}_ci']:.{digits}f}" if f"{key}_ci" in line else ""
    return f"{scale * line[key]:.{digits}f}{half}"


def _helps(line: dict[str, Any], other: str) -> str:
    if f"helped_{other}" not in line:
        return "–"
    stars = "*" if line[f"p_{other}"] < 0.05 else ""
    return f"{line[f'helped_{other}']:.0%} / {line[f'harmed_{other}']:.0%}{stars}"


def show_best(console: Console, swept: Swept) -> None:
    """The best setting of each method of a sweep: its values, its score, and how soon it reached the target."""
    judge, found = swept.judge, [best for best in swept.methods if best.setting is not None]
    extra = [key for key in ("density", "rank") if key != judge.metric and any(key in b.rows[0] for b in found)]
    several = any(len(best.scores) > 1 for best in found)
    over = [f"mean over the last {judge.over} rounds"] if judge.over else []
    caption = "; ".join([*over, *(["mean ± deviation over seeds"] if several else [])]) or None
    about = parse(judge.metric)
    metric = f"{title(judge.metric)}{', %' if about and about.percent else ''}"
    fields = list(found[0].setting or {})
    rounds = [] if judge.target is None else [f"Rounds to {judge.target:g}"]
    numbers = (*fields, metric, *rounds, *(key.capitalize() for key in extra), "Diverged")
    lines = []
    for best in found:
        cells = [f"{value:g}" for value in (best.setting or {}).values()]
        cells.append(_spread(judge.metric, best.scores))
        if rounds:
            cells.append(", ".join("never" if r is None else str(r) for r in best.reached))
        cells += [_spread(key, [row[key] for row in best.rows]) if key in best.rows[0] else "–" for key in extra]
        lines.append((best.label, *cells, f"{best.diverged} of {best.settings}"))
    console.print(table("Best settings", ("Method", *numbers), lines, right=numbers, caption=caption))
    for best in found:
        if best.edge:
            sentence = f"{best.label}: {edge_warning(best.setting or {}, best.edge)}"
            console.print(sentence, style="yellow", markup=False, highlight=False)


def _spread(key: str, values: Sequence[float]) -> str:
    return report.text(key, statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)
