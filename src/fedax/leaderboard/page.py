"""docs/leaderboard.md, from the tasks and the saved results alone."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from fedax.evaluation.protocol import interval
from fedax.leaderboard.lessons import lessons, named, ours
from fedax.leaderboard.rules import BUDGETS, LEVEL, RULES, SEEDS, YARDSTICK
from fedax.leaderboard.saved_tasks import Saved
from fedax.leaderboard.standing import Board, Table, board, complete
from fedax.leaderboard.tasks import Task

TRACKS = {
    "shared": "One model for all",
    "composite": "One model with a regularizer",
    "personal": "A model for each client",
}
HEAD = """# Leaderboard

Which method is best, at equal cost and with equal tuning? Written by `fedax leaderboard page` from saved results;
`fedax leaderboard run --suite quick` makes them again, and `fedax leaderboard add mymodule:MyMethod` places a method of
your own. Differences within noise, as the rules define it, are shown as ties.
"""
OURS = """\
The methods of the documents that Fedax was built from, the worst place first. A place is by mean rank; = marks those
within noise of the first. Beside it: on how many tasks the method is ahead of FedAvg, or of training alone, tied with
it, and behind it.
"""


def all_boards(results: Sequence[Saved]) -> list[Board]:
    """Every track's board with either budget, where a task is complete."""
    found = [board(results, track, budget) for track in TRACKS for budget in BUDGETS]
    return [one for one in found if one is not None]


def page(results: Sequence[Saved], pictures: Mapping[str, str], folder: str) -> str:
    """The whole page; pictures: file names in the folder, with what they show."""
    boards = all_boards(results)
    lines = [HEAD, *_coverage(results), "", "## What we learn", ""]
    if not boards:
        lines.append("Nothing yet: no task has results of all methods.")
    else:
        lines += [OURS, *ours(boards)]
    for question, answers in lessons(boards):
        lines += ["", f"**{question}**", "", *(f"- {answer}" for answer in answers)]
    lines += ["", "## The rules", "", "They were written down before any run.", "", RULES]
    for one in boards:
        about = f"{one.track}-{one.budget}"
        lines += [f"## {TRACKS[one.track]}, equal {one.budget}", "", *_board(one), ""]
        lines += [f"![{words}]({folder}/{name})\n" for name, words in pictures.items() if about in name]
    lines += ["## Task by task", "", *_tasks(results), *_costs(results)]
    return "\n".join(lines).rstrip() + "\n"


def _coverage(results: Sequence[Saved]) -> Iterator[str]:
    run = [saved for saved in results if complete(saved)]
    seeds = sorted({len(Table(saved, "gradients").seeds) for saved in run})
    part = [saved for saved in results if saved not in run and saved.entries]
    rest = [saved for saved in results if not saved.entries]
    yield f"Run: {len(run)} of {len(results)} tasks ({_names(run)})."
    if seeds and seeds[0] < len(SEEDS["full"]):
        few = [saved for saved in run if len(Table(saved, "gradients").seeds) < len(SEEDS["full"])]
        yield f"With {seeds[0]} seeds instead of {len(SEEDS['full'])}, so that more is within noise: {_names(few)}."
    if part:
        yield f"Begun, and not yet on the boards: {_names(part)}."
    if rest:
        yield f"Not run yet: {_names(rest)}."


def _names(results: Sequence[Saved]) -> str:
    return ", ".join(saved.task.name for saved in results) or "none"


def _board(one: Board) -> Iterator[str]:
    tables, order = one.tables, list(one.mean_ranks)
    first = [label for label in order if not one.apart(order[0], label)]
    rejects = "rejects" if one.p < LEVEL else "does not reject"
    difference = f"; critical difference {one.difference:.1f}" if math.isfinite(one.difference) else ""
    yield (
        f"{len(tables)} task{'s' if len(tables) > 1 else ''}: {', '.join(table.task.name for table in tables)}. "
        f"Friedman's test {rejects} that all are the same (p = {one.p:.2g}){difference}. "
        + (f"Within noise of the first: {', '.join(first[1:])}." if len(first) > 1 else f"{first[0]} is alone ahead.")
    )
    yield ""
    yardstick = YARDSTICK[one.track]
    yield from _row(
        ("method", "mean rank", "wins", f"reaches {named(yardstick)}", "worst tenth", "settings near the best"),
        ("diverged",),
    )
    yield "|---|---|---|---|---|---|---|"
    for label in order:
        reached = [t for t in tables if t.yardstick and t.to_target(label, _target(t)) is not None]
        worst = [t.outcomes[label].worst for t in tables if t.higher]
        near = sum(t.near_best(label) for t in tables) / len(tables)
        tried = sum(len(t.outcomes[label].tried) + len(t.seeds) for t in tables)
        yield from _row(
            (f"**{label}**" if label in first else label, f"{one.mean_ranks[label]:.1f}", str(one.wins[label])),
            (f"{len(reached)} of {len(tables)}", f"{100 * sum(worst) / len(worst):.1f} %" if worst else "–"),
            (f"{100 * near:.0f} %", f"{sum(t.outcomes[label].diverged for t in tables)} of {tried} runs"),
        )


def _target(table: Table) -> float:
    """What the yardstick has at its end, less one point."""
    assert table.yardstick is not None
    return table.yardstick.mean - table.point if table.higher else table.yardstick.mean + table.point


def _tasks(results: Sequence[Saved]) -> Iterator[str]:
    for saved in results:
        task = saved.task
        yield f"### {task.name}"
        yield ""
        yield f"{task.title}: {task.about}. {task.metric.capitalize()}, {_size(task)}; task `{task.hash}`."
        yield ""
        if not complete(saved):
            known = f"{len(saved.entries)} of {len(task.methods)} methods" if saved.entries else "not"
            yield f"{known[0].upper()}{known[1:]} run yet."
            yield ""
            continue
        yield from _task(*(Table(saved, budget) for budget in BUDGETS))
        for label, why in saved.left_out.items():
            yield f"{label} left out: {why}."
        yield ""


def _size(task: Task) -> str:
    return f"{task.rounds} rounds of FedAvg"


def _task(gradients: Table, floats: Table) -> Iterator[str]:
    yield from _row(("method", "rank", "score", "rounds"), ("rank, equal floats", "score", "rounds"), _MORE)
    yield "|" + "---|" * (7 + len(_MORE))
    target = _target(gradients) if gradients.yardstick else math.nan
    for label in sorted(gradients.outcomes, key=lambda k: gradients.ranks[k]):
        one, two = gradients.outcomes[label], floats.outcomes[label]
        share = gradients.to_target(label, target)
        spent = ("–", "–") if share is None else (_big(share * one.floats), f"{share * one.seconds:.1f} s")
        yield from _row(
            (label, f"{gradients.ranks[label]:g}", _score(gradients, label), str(one.rounds)),
            (f"{floats.ranks[label]:g}", _score(floats, label), str(two.rounds)),
            (_value(gradients, one.worst), *spent, f"{100 * gradients.near_best(label):.0f} %", str(one.diverged)),
        )


_MORE = ("worst tenth", "floats to target", "CPU time to target", "settings near the best", "diverged")


def _score(table: Table, label: str) -> str:
    one = table.outcomes[label]
    if not math.isfinite(one.mean):
        return "diverged"
    mean, half = interval(one.scores)
    return f"{_value(table, mean)} ± {100 * half:.1f}" if table.higher else f"{mean:.4g} ± {half:.2g}"


def _value(table: Table, value: float) -> str:
    if not math.isfinite(value):
        return "–"
    return f"{100 * value:.1f} %" if table.higher else f"{value:.4g}"


def _big(value: float) -> str:
    return f"{value / 1e6:.2f} M" if value >= 1e5 else f"{value / 1e3:.1f} k"


def _costs(results: Sequence[Saved]) -> Iterator[str]:
    """What the runs took, and what the rest is estimated to take."""
    done, begun = [s for s in results if complete(s)], [s for s in results if s.entries and not complete(s)]
    yield "## What it takes"
    yield ""
    yield "CPU time of all cores together, in minutes; two free cores take between half of it and all of it."
    yield ""
    if not done and not begun:
        yield "Nothing was run, so there is no estimate."
        return
    yield f"- Run, {_sum({s.task.name: sum(_cpu(s)) / 60 for s in done})}."
    if begun:
        yield (
            f"- Begun, {_sum({s.task.name: _estimate(s, done) for s in begun})}: estimated by what the methods that "
            "were run took, times what all methods took against these on the tasks that were run."
        )
    rest = [s.task.name for s in results if not s.entries]
    if rest:
        yield f"- Without an estimate: {', '.join(rest)}."


def _cpu(saved: Saved, labels: Collection[str] | None = None) -> list[float]:
    """The CPU seconds of each method on a task, or of some of them."""
    return [float(entry["cpu_seconds"]) for key, entry in saved.entries.items() if labels is None or key in labels]


def _estimate(saved: Saved, done: Sequence[Saved]) -> float:
    """The minutes that a task would take with all of its methods."""
    ratios = [np.mean(_cpu(s)) / np.mean(some) for s in done if (some := _cpu(s, saved.entries))]
    count = len(saved.task.methods) - len(saved.left_out)
    return float(np.mean(_cpu(saved)) * (np.mean(ratios) if ratios else 1.0) * count / 60)


def _sum(minutes: Mapping[str, float]) -> str:
    return f"{sum(minutes.values()):.0f} ({', '.join(f'{name} {value:.1f}' for name, value in minutes.items())})"


def _row(*cells: Sequence[str]) -> Iterator[str]:
    yield "| " + " | ".join(cell for some in cells for cell in some) + " |"
