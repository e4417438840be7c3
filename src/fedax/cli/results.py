"""After a run: its reports, the summary as CSV, and the table on the screen."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedax import report
from fedax.experiments import Swept
from fedax.simulation.result import write_whole

#: Left to the report, for want of room on the screen.
UNSHOWN = ("gradients", "floats_down", "seconds", "personal_test_loss")


def write_reports(folder: Path, runs: Sequence[Path]) -> Path:
    """Write the report of a run, or of a comparison with its summary; `fedax report` writes that of one of its runs."""
    if list(runs) != [folder]:
        write_summary(folder / "summary.csv", runs)
    return report.write(folder, list(runs))


def write_summary(path: Path, runs: Sequence[Path]) -> None:
    """One line per algorithm, each final metric as its mean and its deviation over seeds."""
    rows = [_plain(row) for row in report.table(list(runs))]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, text.getvalue().encode())


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, report.Spread):
            plain |= {f"{key}_avg": value.mean, f"{key}_dev": value.std}
        else:
            plain[key] = " ".join(map(str, value)) if isinstance(value, list) else value
    return plain


def show_table(console: Console, runs: Sequence[Path]) -> None:
    """The final metrics, one line per algorithm."""
    rows = report.table(list(runs))
    shown = {key: title for key, title in report.columns(rows).items() if key not in UNSHOWN}
    unfinished = any(row["status"] != "finished" for row in rows)
    table = Table(caption="mean ± deviation over seeds" if any(row["runs"] > 1 for row in rows) else None)
    table.add_column("Algorithm")
    for title in (["Status"] if unfinished else []) + list(shown.values()):
        table.add_column(title, justify="right")
    for row in rows:
        cells = [row["status"]] if unfinished else []
        for key in shown:
            spread = row.get(key)
            cells.append("–" if spread is None else report.text(key, spread.mean, spread.std))
        table.add_row(row["algorithm"].replace("[", "\\["), *cells)
    console.print(table)


def show_best(console: Console, swept: Swept) -> None:
    """The best setting of each method of a sweep: its values, its score, and how soon it reached the target."""
    judge, found = swept.judge, [best for best in swept.methods if best.setting is not None]
    extra = [key for key in ("density", "rank") if key != judge.metric and any(key in b.rows[0] for b in found)]
    several = any(len(best.scores) > 1 for best in found)
    table = Table(title="Best settings", title_justify="left", title_style="bold")
    table.caption = "; ".join([judge.title, *(["mean ± deviation over seeds"] if several else [])])
    fields = list(found[0].setting or {})
    rounds = [] if judge.target is None else [f"Rounds to {judge.target:g}"]
    table.add_column("Method", overflow="fold")
    for title in (*fields, judge.metric, *rounds, *(key.capitalize() for key in extra), "Diverged"):
        table.add_column(title, justify="right")
    for best in found:
        cells = [f"{value:g}" for value in (best.setting or {}).values()]
        cells.append(_spread(judge.metric, best.scores))
        if rounds:
            cells.append(", ".join("never" if r is None else str(r) for r in best.reached))
        cells += [_spread(key, [row[key] for row in best.rows]) if key in best.rows[0] else "–" for key in extra]
        table.add_row(best.label.replace("[", "\\["), *cells, f"{best.diverged} of {best.settings}")
    console.print(table)


def _spread(key: str, values: Sequence[float]) -> str:
    return report.text(key, statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)
