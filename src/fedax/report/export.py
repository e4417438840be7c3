"""Results for other programs: the metrics round by round, or the comparison's table, as CSV, Parquet or LaTeX."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import Any

from fedax.errors import FedaxError
from fedax.report.columns import COUNTERS, parse, text
from fedax.report.fairness import held_equal
from fedax.report.markup import best
from fedax.report.sentences import obstacles
from fedax.report.summary import Group, Spread, columns, rows

Line = dict[str, Any]
UNTOLD = ("seconds",)  # what a paper's table does not tell
_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_SPECIAL |= {mark: f"\\{mark}" for mark in "&%$#_{}"}


def by_round(groups: Sequence[Group]) -> list[Line]:
    """A line for each evaluated round of each run: the method, the seed, and the row of its log."""
    return [
        {"algorithm": group.label, "seed": run.seed, **row}
        for group in groups
        for run in group.runs
        for row in run.rows
    ]


def comparison(groups: Sequence[Group]) -> list[Line]:
    """A line for each method: each final metric's mean over seeds, and the half-width of its 95 % interval."""
    lines = []
    for row in rows(groups):
        line: Line = {}
        for key, value in row.items():
            if isinstance(value, Spread):
                line |= {key: value.mean, f"{key}_ci": value.half}
            else:
                line[key] = " ".join(map(str, value)) if isinstance(value, list) else value
        lines.append(line)
    return lines


def as_csv(lines: Sequence[Line]) -> bytes:
    """The lines as CSV with a header; a cell is empty where a line lacks the value.

    >>> as_csv([{"a": 1, "b": None}, {"a": 2, "c": 3}])
    b'a,b,c\\n1,,\\n2,,3\\n'
    """
    file = io.StringIO()
    writer = csv.DictWriter(file, _names(lines), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return file.getvalue().encode()


def as_parquet(lines: Sequence[Line]) -> bytes:
    """A Parquet file; a value that a line lacks is null."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise FedaxError("Parquet needs pyarrow: pip install 'fedax[parquet]'") from None
    table = pyarrow.table({name: [line.get(name) for line in lines] for name in _names(lines)})
    file = io.BytesIO()
    pyarrow.parquet.write_table(table, file)
    return file.getvalue()


def _names(lines: Sequence[Line]) -> list[str]:
    return list(dict.fromkeys(key for line in lines for key in line))


def as_latex(groups: Sequence[Group]) -> bytes:
    """The comparison's table for booktabs: numbers aligned at their decimal points, the best of each column in bold
    among methods whose runs all finished, if the methods can be compared."""
    found = rows(groups)
    titles = {key: title for key, title in columns(found).items() if key not in UNTOLD}
    judged = [] if obstacles(list(groups)) else [r for r, g in zip(found, groups, strict=True) if g.finished]
    table = {key: _column(key, title, found, judged) for key, title in titles.items()}
    layout = "l" + "".join(column[0] for column in table.values())
    head = " & ".join(["Method", *(column[1] for column in table.values())])
    body = "".join(
        " & ".join([_escaped(row["algorithm"]), *(column[2][i] for column in table.values())]) + " \\\\\n"
        for i, row in enumerate(found)
    )
    seeds = max((row["runs"] for row in found), default=1)
    notes = [r"\usepackage{booktabs} in the preamble"]
    notes += [f"mean and 95 % confidence interval (Student's t) over {seeds} seeds"] if seeds > 1 else []
    notes += [held] if (held := held_equal([run for group in groups for run in group.runs])) else []
    comments = "".join(f"% {note}\n" for note in notes)
    rules = f"\\begin{{tabular}}{{{layout}}}\n\\toprule\n{head} \\\\\n\\midrule\n{body}\\bottomrule\n\\end{{tabular}}\n"
    return (comments + rules).encode()


def _column(key: str, title: str, found: Sequence[Line], judged: Sequence[Line]) -> tuple[str, str, list[str]]:
    """A column's layout, its head, and its cells: a mean and an interval side by side, where there are any."""
    spreads = [row.get(key) for row in found]
    counted = key in COUNTERS
    halves = [s.half for s in spreads if s is not None and s.half is not None and not counted]
    digits = _digits(key, [s.mean for s in spreads if s is not None], halves)
    won = None if counted else best(key, [row[key].mean for row in judged if key in row])
    cells = []
    for row, spread in zip(found, spreads, strict=True):
        if spread is None or not math.isfinite(spread.mean):
            cells.append(r"\multicolumn{2}{c}{--}" if halves else "--")
            continue
        scale = 100 if _percent(key) else 1
        shown = text(key, spread.mean) if counted else f"{scale * spread.mean:.{digits}f}"
        bold = row in judged and won is not None and text(key, spread.mean) == won
        around = "" if spread.half is None else f"{scale * spread.half:.{digits}f}"
        cells.append((rf"\textbf{{{shown}}}" if bold else shown) + (f" & {around}" if halves else ""))
    if not halves:
        return "r", _escaped(title), cells
    return r"r@{\,$\pm$\,}l", rf"\multicolumn{{2}}{{c}}{{{_escaped(title)}}}", cells


def _percent(key: str) -> bool:
    metric = parse(key)
    return metric is not None and metric.percent


def _digits(key: str, means: Sequence[float], halves: Sequence[float]) -> int:
    """Decimals of a column: two for per cent, else two significant ones of the narrowest interval, or four of a mean.

    >>> _digits("test_loss", [1.25], [0.031]), _digits("test_loss", [12.5], [])
    (3, 2)
    """
    if _percent(key):
        return 2
    known = [value for value in (halves or means) if math.isfinite(value) and value]
    if not known:
        return 3
    least = min(known) if halves else max(map(abs, known))
    return min(6, max(0, (1 if halves else 3) - math.floor(math.log10(abs(least)))))


def _escaped(words: str) -> str:
    r"""Plain words for LaTeX.

    >>> _escaped("FedAvg_2, 5 %")
    'FedAvg\\_2, 5 \\%'
    """
    return "".join(_SPECIAL.get(mark, mark) for mark in words)
