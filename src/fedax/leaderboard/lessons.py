"""What we learn: plain sentences, every number of which is computed here from saved results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedax.leaderboard.rules import BUDGETS
from fedax.leaderboard.standing import Board, Table
from fedax.selection.candidates import YARDSTICK

#: The methods of the five documents that Fedax was built from, whose results come first, whatever they are.
OURS = ("FedAc", "FedDualAvg", "FedDualAvg-OSP", "APFL", "APFL-adaptive", "FedDeper", "FedSpeed", "PFedFBE")
Tables = Sequence[Table]


def ours(boards: Sequence[Board]) -> Iterator[str]:
    """A table of our documents' methods, worst place first: their places, and how they stand against the yardstick."""
    counts = "ahead, tied, behind"
    yield f"| method | track | against | equal gradients: place | {counts} | equal floats: place | {counts} |"
    yield "|---|---|---|---|---|---|---|"
    by = {(board.track, board.budget): board for board in boards}
    rows = []
    for track in dict.fromkeys(board.track for board in boards):
        both = [by[track, budget] for budget in BUDGETS if (track, budget) in by]
        for label in OURS:
            if all(label in board.mean_ranks for board in both):
                cells = [cell for board in both for cell in _standing(board, label)]
                worst = max(board.mean_ranks[label] / len(board.mean_ranks) for board in both)
                rows.append((worst, f"| **{label}** | {track} | {named(YARDSTICK[track])} | {' | '.join(cells)} |"))
    yield from (row for _, row in sorted(rows, reverse=True))


def _standing(board: Board, label: str) -> tuple[str, str]:
    """A method's place by mean rank, and its verdicts against the yardstick over the tasks."""
    ranks, yardstick = board.mean_ranks, YARDSTICK[board.track]
    place = 1 + sum(rank < ranks[label] for rank in ranks.values())
    tied = "=" if label in board.first and len(board.first) > 1 else ""
    return f"{place}{tied} of {len(ranks)}", ", ".join(map(str, verdicts(board, label, yardstick)))


def verdicts(board: Board, label: str, other: str) -> tuple[int, ...]:
    """On how many tasks a method is ahead of another, tied with it and behind it."""
    found = [table.pair(label, other)[0] for table in board.tables]
    return tuple(found.count(kind) for kind in ("ahead", "tied", "behind"))


def counted(tables: Tables, first: str, second: str) -> str:
    """On how many tasks the one is ahead of the other, behind and tied, with the points of each that is not tied."""
    kinds: dict[str, list[str]] = {"ahead": [], "behind": [], "tied": []}
    for table in tables:
        verdict, mean, half = table.pair(first, second)
        points = f"{mean:+.1f} ± {half:.1f}" if mean == mean else "diverged"
        kinds[verdict].append(table.task.name if verdict == "tied" else f"{table.task.name} {points}")
    return "; ".join(
        f"{kind} on {len(found)} of {len(tables)} ({', '.join(found)})" for kind, found in kinds.items() if found
    )


def named(label: str) -> str:
    """A yardstick in a sentence."""
    return "training alone" if label == "LocalOnly" else label


def lessons(boards: Sequence[Board]) -> Iterator[tuple[str, list[str]]]:
    """Questions, and the sentences that answer them."""
    by = {(board.track, board.budget): board.tables for board in boards}
    shared: dict[str, list[Table]] = {budget: by.get(("shared", budget), []) for budget in BUDGETS}
    if shared["gradients"]:
        yield "When does SCAFFOLD pay?", list(_scaffold(shared))
        yield "What do FedDeper's and FedSpeed's extra gradients buy at equal cost?", list(_dear(shared))
    if by.get(("personal", "gradients")):
        known = {budget: by["personal", budget] for budget in BUDGETS}
        yield "When do personal models beat training alone?", list(_personal(known))
    if by.get(("composite", "gradients")):
        yield "What does FedDualAvg buy in sparsity?", list(_sparse(by["composite", "gradients"]))


def _scaffold(shared: dict[str, list[Table]]) -> Iterator[str]:
    yield from _overall(shared, "SCAFFOLD")
    for budget, known in shared.items():
        tables = _with(known, "SCAFFOLD", "FedAvg")
        for words in sorted({_clients(table) for table in tables}, reverse=True):
            some = [table for table in tables if _clients(table) == words]
            yield f"{words}, {_at(some, budget, 'SCAFFOLD')}, it is {counted(some, 'SCAFFOLD', 'FedAvg')}."


def _clients(table: Table) -> str:
    if not table.task.unequal:
        return "Where rows are dealt at random"
    present = "a part of them is" if table.task.experiment.cohort else "all are"
    return f"Where clients differ and {present} in a round"


def _dear(shared: dict[str, list[Table]]) -> Iterator[str]:
    for label in ("FedDeper", "FedSpeed"):
        yield from _overall(shared, label)
        for budget, known in shared.items():
            if tables := _with(known, label, "FedAvg"):
                yield f"{label}, {_at(tables, budget, label)}, is {counted(tables, label, 'FedAvg')}."


def _overall(shared: dict[str, list[Table]], label: str) -> Iterator[str]:
    """In how many cases a method pays, in one sentence."""
    parts = []
    for budget, known in shared.items():
        found = [table.pair(label, "FedAvg")[0] for table in _with(known, label, "FedAvg")]
        if found:
            pays, costs = found.count("ahead"), found.count("behind")
            parts.append(
                f"at equal {budget} it is ahead of FedAvg on {pays} of {len(found)} tasks and behind on {costs}"
            )
    if parts:
        yield f"**{label}**: {'; '.join(parts)}."


def _with(tables: Tables, *labels: str) -> list[Table]:
    return [table for table in tables if set(labels) <= set(table.outcomes)]


def _at(tables: Tables, budget: str, label: str) -> str:
    """A budget and what it pays for, compared with FedAvg."""
    shares = [table.outcomes[label].rounds / table.outcomes["FedAvg"].rounds for table in tables]
    low, high = f"{100 * min(shares):.0f}", f"{100 * max(shares):.0f}"
    return f"at equal {budget} ({low if low == high else f'{low} to {high}'} % of FedAvg's rounds)"


def _personal(known: Mapping[Any, list[Table]]) -> Iterator[str]:
    counts = [
        f"at equal {budget} on {sum(_some_ahead(table) for table in tables)} of {len(tables)} tasks"
        for budget, tables in known.items()
    ]
    yield f"**Some personal method** is ahead of training alone {', and '.join(counts)}."
    for tables in zip(*known.values(), strict=True):
        alone = tables[0].outcomes["LocalOnly"].mean
        said = [_against_alone(table) for table in tables]
        yield f"{tables[0].task.title}: training alone has {100 * alone:.1f} %. {' '.join(said)}"


def _some_ahead(table: Table) -> bool:
    return any(table.pair(label, "LocalOnly")[0] == "ahead" for label in table.outcomes)


def _against_alone(table: Table) -> str:
    """Which personal methods are ahead of training alone and behind it, and the best of them."""
    verdicts = {label: table.pair(label, "LocalOnly") for label in table.outcomes if label != "LocalOnly"}
    best = max(verdicts, key=lambda label: -math.inf if math.isnan(verdicts[label][1]) else verdicts[label][1])
    verdict, mean, half = verdicts[best]
    parts = []
    for kind in ("ahead", "tied", "behind"):
        names = [label for label, found in verdicts.items() if found[0] == kind]
        listed = f" ({', '.join(names)})" if names and kind != "tied" else ""
        parts.append(f"{len(names)} {kind}{listed}")
    parts[0] += f", the best being {best} ({verdict}, {mean:+.1f} ± {half:.1f})"
    return f"Of {len(verdicts)} methods at equal {table.budget}: {'; '.join(parts)}."


def _sparse(tables: Tables) -> Iterator[str]:
    sparse = [table for table in _with(tables, "FedDualAvg", "FedAvg") if _has_l1(table)]
    if sparse:
        fewer = sum(table.outcomes["FedDualAvg"].density < table.outcomes["FedAvg"].density for table in sparse)
        behind = sum(table.pair("FedDualAvg", "FedAvg")[0] == "behind" for table in sparse)
        yield (
            f"**FedDualAvg** has fewer weights that are not zero than FedAvg on {fewer} of {len(sparse)} tasks with an "
            f"l1 norm, and its score is behind on {behind}."
        )
    for table in sparse:
        parts = []
        for rival in (label for label in ("FedMiD", "FedMiD-OSP", "FedAvg") if label in table.outcomes):
            verdict, mean, half = table.pair("FedDualAvg", rival)
            digits = 1 if table.higher else 2  # a point of a loss is large: the first model's is far away
            points = f"{mean:+.{digits}f} ± {half:.{digits}f}"
            parts.append(f"{rival}'s {100 * table.outcomes[rival].density:.0f} % ({verdict}, {points})")
        own = 100 * table.outcomes["FedDualAvg"].density
        yield (
            f"{table.task.title}: {own:.0f} % of FedDualAvg's weights are not zero, of {', of '.join(parts)}; in "
            "brackets how FedDualAvg's score compares."
        )


def _has_l1(table: Table) -> bool:
    psi = table.task.experiment.problem.regularizer
    return psi is not None and psi.name == "L1"
