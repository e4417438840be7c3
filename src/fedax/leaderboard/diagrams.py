"""The leaderboard's pictures as SVG: critical differences, score against cost, sensitivity."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedax.errors import FedaxError
from fedax.leaderboard.rules import LEVEL
from fedax.leaderboard.standing import Board
from fedax.runs.files import write_whole

COLOURS = ("C0", "C1", "C2", "C3", "C4", "C5")


def shown(boards: Sequence[Board]) -> dict[str, str]:
    """The pictures' file names, with what each shows."""
    return {
        f"{kind}-{board.track}-{board.budget}.svg": f"{words}, {board.track} track at equal {board.budget}"
        for board in boards
        for kind, (_, words) in PICTURES.items()
    }


def draw(boards: Sequence[Board], folder: Path) -> None:
    """Write all pictures."""
    try:
        import matplotlib
    except ImportError:
        raise FedaxError("pictures need matplotlib: pip install 'fedax[figures]'") from None
    matplotlib.use("agg")
    folder.mkdir(parents=True, exist_ok=True)
    look: Any = {"svg.hashsalt": "fedax", "font.size": 8, "axes.spines.top": False, "axes.spines.right": False}
    with matplotlib.rc_context(look):
        for board in boards:
            for kind, (figure, _) in PICTURES.items():
                _save(figure(board), folder / f"{kind}-{board.track}-{board.budget}.svg")


def _save(figure: Any, path: Path) -> None:
    content = io.BytesIO()
    figure.savefig(content, format="svg", bbox_inches="tight", metadata={"Date": None})
    write_whole(path, content.getvalue())


def _figure(wide: float, high: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(wide, high), layout="constrained")


def _differences(board: Board) -> Any:
    """Demsar's diagram turned: a method a line, best on top, and a bar beside each group that cannot be told apart."""
    labels, ranks = list(board.mean_ranks), list(board.mean_ranks.values())
    figure = _figure(7, 0.8 + 0.2 * len(labels))
    axes = figure.subplots()
    axes.plot(ranks, range(len(labels)), "o", color="black", markersize=4)
    for line, group in enumerate(board.groups):
        first, last = labels.index(group[0]), labels.index(group[-1])
        place = len(labels) + 0.6 + 0.5 * line
        axes.plot([place, place], [first - 0.2, last + 0.2], color="C0", linewidth=3, solid_capstyle="butt")
    if np.isfinite(board.difference):
        axes.plot([1, 1 + board.difference], [-1, -1], color="C3", linewidth=2)
        axes.text(1, -1.3, f"critical difference {board.difference:.1f}", color="C3")
    axes.set_yticks(range(len(labels)), labels)
    axes.set(ylim=(len(labels) - 0.4, -2), xlabel="mean rank (1 is best); bars join methods within noise of each other")
    count, rejects = len(board.tables), "rejects" if board.p < LEVEL else "does not reject"
    axes.set_title(f"{board.track}, equal {board.budget}, {count} tasks; Friedman's test {rejects} (p = {board.p:.2g})")
    axes.grid(axis="y", alpha=0.2)
    return figure


def _costs(board: Board) -> Any:
    """Mean score on test rows against what was spent, a task a panel: the four best by mean rank and the yardstick."""
    columns = min(3, len(board.tables))
    rows = -(-len(board.tables) // columns)
    figure = _figure(3.2 * columns, 2.4 * rows + 0.4)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    best = list(board.mean_ranks)[:4]
    for axes, table in zip(panels, board.tables, strict=False):
        shown = [*best, *([table.yardstick.label] if table.yardstick and table.yardstick.label not in best else [])]
        for label, colour in zip(shown, COLOURS, strict=False):
            curve = table.outcomes[label].curve
            axes.plot(np.linspace(0, 1, len(curve)), curve, color=colour, label=label, linewidth=1.2)
        axes.set_title(table.task.name)
        axes.set_xlabel(f"share of the budget of {board.budget}")
        axes.set_ylabel(f"test {table.task.metric}")
        if table.higher:  # the first steps are alike, and would hide what differs
            axes.set_ylim(bottom=float(np.nanmin([table.outcomes[label].curve[3] for label in shown])) - table.point)
        else:
            axes.set_yscale("log")
    for axes in panels[len(board.tables) :]:
        axes.set_axis_off()
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=5, frameon=False)
    return figure


def _sensitivity(board: Board) -> Any:
    """A bar a method: the mean over tasks, and a dot a task."""
    shares = {label: [table.near_best(label) for table in board.tables] for label in board.mean_ranks}
    labels = sorted(shares, key=lambda label: np.mean(shares[label]))
    figure = _figure(7, 0.6 + 0.2 * len(labels))
    axes = figure.subplots()
    axes.barh(labels, [float(np.mean(shares[label])) for label in labels], color="C0", alpha=0.5)
    for label in labels:
        axes.plot(shares[label], [label] * len(shares[label]), ".", color="black", markersize=3)
    axes.set(xlim=(0, 1.02), xlabel="share of settings within one point of the best (dots: tasks)")
    return figure


PICTURES: dict[str, tuple[Callable[[Board], Any], str]] = {
    "ranks": (_differences, "Mean ranks and their critical difference"),
    "cost": (_costs, "Score against cost"),
    "sensitivity": (_sensitivity, "Share of settings within one point of the best"),
}
