"""docs/leaderboard.md, from the tasks and the saved results alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from fedax.evaluation.protocol import interval
from fedax.leaderboard.lessons import lessons, named, ours, verdicts
from fedax.leaderboard.rules import BUDGETS, LEVEL, RULES, SEEDS
from fedax.leaderboard.saved_tasks import Saved
from fedax.leaderboard.standing import Board, Table, board, complete
from fedax.selection.candidates import YARDSTICK

TRACKS = {
    "shared": "One model for all",
    "composite": "One model with a regularizer",
    "personal": "A model for each client",
}
HEAD = """# Leaderboard

Which method is best, at equal cost and with equal tuning?

Every method has the same budget and the same number of settings, of which validation rows choose one. On a task, one
method is ahead of another if the 95 % interval of their difference, seed by seed, leaves out 0; otherwise they are
tied. A rank is 1, plus 1 for each method ahead, plus 1/2 for each tied, and mean ranks that are closer than the
critical difference are a tie. [The rules](#the-rules) were written down before any run.
"""
OURS = """\
The methods of the documents that Fedax was built from, the worst place first. A place is by mean rank; = marks those
within noise of the first. Beside it: on how many tasks the method is ahead of FedAvg, or of training alone, tied with
it, and behind it.
"""
COLUMNS = """\
- **mean rank**: over the tasks; 1 is best. Bold methods are within noise of the first, or with one task win it.
- **wins**: the number of tasks on which nobody is ahead of the method, so that several can win one.
- **ahead, tied, behind**: on how many tasks, of the yardstick: FedAvg, or training alone in the personal track.
- **reaches**: on how many tasks the method's mean score is at the target at some evaluation. **Floats** and
  **CPU time to target** are what a run has spent by then, on the first board; – if it never is.
- **worst tenth**: the mean score of the tenth of clients that fare worst, at the end; in a board, the mean over the
  tasks that measure accuracy.
- **settings near the best**: the sensitivity, in a board the mean over tasks.
- **score**: mean over seeds, and the half-width of its own 95 % interval. Comparisons are seed by seed, so two methods
  whose intervals overlap can still be apart.
- **rounds**: what the budget pays for.
- **diverged**: settings and reported runs, of all of them.
"""
LEARNT = """\
Differences are in points, with the half-widths of their 95 % intervals over seeds. Tasks that are named without a
difference are ties.
"""
AGAIN = """\
`fedax leaderboard run --suite quick --out DIR` makes the quick suite again, and `--suite full` all tasks, the cheapest
first; the same command goes on with what was stopped, and `--minutes 30` stops it after 30 minutes. Then copy
`DIR/*.json` to `src/fedax/leaderboard/results/`, and `fedax leaderboard page --out docs/leaderboard.md` writes this
page from them. `fedax leaderboard add mymodule:MyMethod` runs a method of your own under the same rules and shows its
place; `fedax leaderboard verify` checks what it wrote and runs a part of it again.
"""


def all_boards(results: Sequence[Saved]) -> list[Board]:
    """Every track's board with either budget, where a task is complete."""
    found = [board(results, track, budget) for track in TRACKS for budget in BUDGETS]
    return [one for one in found if one is not None]


def page(results: Sequence[Saved], pictures: Mapping[str, str], folder: str) -> str:
    """The whole page; pictures: file names in the folder, with what they show."""
    boards = all_boards(results)
    lines = [HEAD, *_coverage(results), "", "## What came out", ""]
    if not boards:
        lines.append("Nothing yet: no task has results of all methods.")
    else:
        lines += [*_conclusions(boards), "", OURS, *ours(boards), "", "## What we learn", "", LEARNT]
    for question, answers in lessons(boards):
        lines += ["", f"**{question}**", "", *(f"- {answer}" for answer in answers)]
    lines += ["", "## The rules", "", RULES, "The columns:", "", COLUMNS]
    for one in boards:
        about = f"{one.track}-{one.budget}"
        lines += [f"## {TRACKS[one.track]}, equal {one.budget}", "", *_board(one), ""]
        lines += [f"![{words}]({folder}/{name})\n" for name, words in pictures.items() if about in name]
    lines += ["## Task by task", "", *_tasks(results), *_costs(results), "", "## Run it again", "", AGAIN]
    return "\n".join(lines).rstrip() + "\n"


def _conclusions(boards: Sequence[Board]) -> Iterator[str]:
    """A conclusion a board; one for both budgets where they agree, as where all methods cost the same."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in boards:
        found.setdefault((one.track, _conclusion(one)), []).append(one.budget)
    for (track, words), budgets in found.items():
        yield f"- **{TRACKS[track]}, equal {' or '.join(budgets)}**: {words}"


def _conclusion(one: Board) -> str:
    """Who is first and within noise of it, and who is most often ahead of the yardstick and behind it."""
    order, count, yardstick = list(one.mean_ranks), len(one.tables), YARDSTICK[one.track]
    behind = [label for label in order if label not in one.first]
    if count == 1:
        return f"on the one task that was run, nobody is ahead of {', '.join(one.first)}, of {len(order)} methods."
    said = f"{order[0]} has the best mean rank, {one.mean_ranks[order[0]]:.1f} of {len(order)} on {count} tasks. "
    if behind:
        said += (
            f"Within noise of it: {', '.join(one.first[1:]) or 'none'}; behind it beyond noise: {', '.join(behind)}."
        )
    else:
        said += (
            f"All others are within noise of it, {order[-1]} ({one.mean_ranks[order[-1]]:.1f}) included: {_power(one)}."
        )
    found = {label: verdicts(one, label, yardstick) for label in order if label != yardstick}
    best = max(found, key=lambda label: found[label][0] - found[label][2])
    worst = min(found, key=lambda label: found[label][0] - found[label][2])
    return (
        f"{said} Task by task, {best} fares best against {named(yardstick)} (ahead on {found[best][0]}, behind on "
        f"{found[best][2]}), and {worst} worst (ahead on {found[worst][0]}, behind on {found[worst][2]})."
    )


def _power(one: Board) -> str:
    """How far mean ranks must be apart to count, and how far they can be."""
    if one.p >= LEVEL:
        return "Friedman's test does not reject that all methods are the same, and then no difference counts"
    most = len(one.mean_ranks) - 1
    return f"with {len(one.tables)} tasks mean ranks must be {one.difference:.1f} apart to count, of at most {most}"


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
    for saved in results:
        if changed := saved.changed():
            yield f"Of an older version of the method, on {saved.task.name}: {', '.join(changed)}."
    if rest:
        yield f"Not run yet: {_names(rest)}."


def _names(results: Sequence[Saved]) -> str:
    return ", ".join(saved.task.name for saved in results) or "none"


def _board(one: Board) -> Iterator[str]:
    tables, order = one.tables, list(one.mean_ranks)
    yardstick = YARDSTICK[one.track]
    rejects = "rejects" if one.p < LEVEL else "does not reject"
    difference = (
        f"; critical difference {one.difference:.1f}, of at most {len(order) - 1}"
        if math.isfinite(one.difference)
        else ""
    )
    yield (
        f"{len(tables)} task{'s' if len(tables) > 1 else ''}: {', '.join(table.task.name for table in tables)}. "
        f"Friedman's test {rejects} that all are the same (p = {one.p:.2g}){difference}."
    )
    yield ""
    yield from _row(
        ("method", "mean rank", "wins", f"ahead, tied, behind {named(yardstick)}", f"reaches {named(yardstick)}"),
        ("worst tenth", "settings near the best", "diverged"),
    )
    yield "|" + "---|" * 8
    for label in order:
        reached = [t for t in tables if t.yardstick and t.to_target(label, _target(t)) is not None]
        worst = [t.outcomes[label].worst for t in tables if t.higher]
        near = sum(t.near_best(label) for t in tables) / len(tables)
        tried = sum(len(t.outcomes[label].tried) + len(t.seeds) for t in tables)
        yield from _row(
            (f"**{label}**" if label in one.first else label, f"{one.mean_ranks[label]:.1f}", str(one.wins[label])),
            ("–" if label == yardstick else ", ".join(map(str, verdicts(one, label, yardstick))),),
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
        budget = f"{task.rounds} rounds of FedAvg"
        yield f"{task.title}: {task.about}. {task.metric.capitalize()}, {budget}; task `{task.hash}`."
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


def _task(gradients: Table, floats: Table) -> Iterator[str]:
    yield from _row(
        ("method", "rank", "score", "rounds"),
        ("rank, equal floats", "score, equal floats", "rounds, equal floats"),
        _MORE,
    )
    yield "|" + "---|" * (7 + len(_MORE))
    target = _target(gradients) if gradients.yardstick else math.nan
    for label in sorted(gradients.outcomes, key=lambda k: gradients.ranks[k]):
        one, two = gradients.outcomes[label], floats.outcomes[label]
        share = gradients.to_target(label, target)
        spent = ("–", "–") if share is None else (_big(share * one.floats), f"{share * one.seconds:.2g} s")
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
    done = {s.task.name: sum(float(entry["cpu_seconds"]) for entry in s.entries.values()) / 60 for s in results}
    rest = {s.task.name: _left(s, done[s.task.name]) for s in results if not complete(s)}
    yield "## What it takes"
    yield ""
    yield "CPU time of all cores together, in minutes; two free cores take between half of it and all of it."
    yield ""
    yield f"- Run: {_minutes({name: value for name, value in done.items() if value})}."
    if rest:
        yield f"- Still to run, estimated from the methods run so far, else from FedAvg alone: {_minutes(rest)}."


def _left(saved: Saved, done: float) -> float:
    """The minutes that a task still takes."""
    if not saved.entries:
        return saved.task.minutes
    return done / len(saved.entries) * (len(saved.task.methods) - len(saved.entries) - len(saved.left_out))


def _minutes(found: Mapping[str, float]) -> str:
    return f"{sum(found.values()):.0f} ({', '.join(f'{name} {value:.1f}' for name, value in found.items())})"


def _row(*cells: Sequence[str]) -> Iterator[str]:
    yield "| " + " | ".join(cell for some in cells for cell in some) + " |"
