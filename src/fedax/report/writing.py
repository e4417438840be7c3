"""What is written beside runs when they are over: their reports, and the summary as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedax.report.html import write
from fedax.report.personal_table import protocol
from fedax.report.summary import Spread, groups, read_all, table
from fedax.runs.files import write_whole


def write_reports(folder: Path, runs: Sequence[Path]) -> Path:
    """Write the report of a run, or of a comparison with its summary and that of each of its runs."""
    if list(runs) != [folder]:
        write_summary(folder / "summary.csv", runs)
        for run in runs:
            write(run, [run])
    _, lines = protocol(groups(read_all(runs)))
    if lines:
        _write_csv(folder / "clients.csv", lines)
    return write(folder, list(runs))


def write_summary(path: Path, runs: Sequence[Path]) -> None:
    """One line per algorithm, each final metric as its mean, deviation and 95 % interval over seeds."""
    _write_csv(path, [_plain(row) for row in table(list(runs))])


def _write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, text.getvalue().encode())


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Spread):
            plain |= {f"{key}_avg": value.mean, f"{key}_dev": value.std, f"{key}_ci": value.half}
        else:
            plain[key] = " ".join(map(str, value)) if isinstance(value, list) else value
    return plain
