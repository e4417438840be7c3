"""What we learn: plain sentences, every number of which is computed here from saved results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedax.leaderboard.rules import BUDGETS, YARDSTICK
from fedax.leaderboard.standing import Board, Table

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
    """On how many tasks the one is ahead of the other, tied and behind, with the points of each."""
    kinds: dict[str, list[str]] = {"ahead": [], "tied": [], "behind": []}
    for table in tables:
        if first in table.outcomes and second in table.outcomes:
            verdict, mean, half = table.pair(first, second)
            shown = f"{mean:+.1f} ± {half:.1f}" if mean == mean else "diverged"
            kinds[verdict].append(table.task.name if verdict == "tied" else f"{table.task.name} {shown}")
    total = sum(map(len, kinds.values()))
    parts = [f"{kind} on {len(found)} ({', '.join(found)})" for kind, found in kinds.items() if found]
    return f"{', '.join(parts)} of {total} task{'s' if total != 1 else ''}"


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
        yield "When do personal models beat training alone?", list(_personal(by["personal", "gradients"]))
    if by.get(("composite", "gradients")):
        yield "What does FedDualAvg buy in sparsity?", list(_sparse(by["composite", "gradients"]))


def _scaffold(shared: dict[str, list[Table]]) -> Iterator[str]:
    for budget, known in shared.items():
        tables = [table for table in known if {"SCAFFOLD", "FedAvg"} <= set(table.outcomes)]
        if not tables:
            continue
        rounds = tables[0].outcomes["SCAFFOLD"].rounds / tables[0].outcomes["FedAvg"].rounds
        for unequal, who in ((True, "clients that differ"), (False, "rows dealt at random")):
            some = [table for table in tables if table.task.unequal is unequal]
            if some:
                yield (
                    f"At equal {budget}, with {rounds:.2g} times FedAvg's rounds, and {who}: SCAFFOLD is "
                    f"{counted(some, 'SCAFFOLD', 'FedAvg')} (points)."
                )


def _dear(shared: dict[str, list[Table]]) -> Iterator[str]:
    for label in ("FedDeper", "FedSpeed"):
        for budget, tables in shared.items():
            found = [table for table in tables if {label, "FedAvg"} <= set(table.outcomes)]
            if found:
                rounds = found[0].outcomes[label].rounds / found[0].outcomes["FedAvg"].rounds
                yield (
                    f"At equal {budget} {label} has {rounds:.2g} times FedAvg's rounds and is "
                    f"{counted(found, label, 'FedAvg')} (points)."
                )


def _personal(tables: Tables) -> Iterator[str]:
    for table in tables:
        if "LocalOnly" not in table.outcomes:
            continue
        others = [label for label in table.outcomes if label != "LocalOnly"]
        verdicts = {label: table.pair(label, "LocalOnly") for label in others}
        groups = {kind: [k for k, v in verdicts.items() if v[0] == kind] for kind in ("ahead", "tied", "behind")}
        best = max(others, key=lambda label: verdicts[label][1] if verdicts[label][1] == verdicts[label][1] else -1e9)
        alone, (verdict, mean, half) = table.outcomes["LocalOnly"].mean, verdicts[best]
        yield (
            f"{table.task.title}: of {len(others)} methods {len(groups['ahead'])} are ahead of training alone "
            f"({100 * alone:.1f} %), {len(groups['tied'])} tied, {len(groups['behind'])} behind; the best, {best}, is "
            f"{verdict} ({mean:+.1f} ± {half:.1f} points)"
            f"{'' if not groups['behind'] else '; behind: ' + ', '.join(groups['behind'])}."
        )


def _sparse(tables: Tables) -> Iterator[str]:
    for table in tables:
        rivals = [k for k in ("FedMiD", "FedMiD-OSP", "FedAvg") if k in table.outcomes]
        if "FedDualAvg" not in table.outcomes or not rivals:
            continue
        own = table.outcomes["FedDualAvg"].density
        parts = []
        for rival in rivals:
            verdict, mean, half = table.pair("FedDualAvg", rival)
            density = table.outcomes[rival].density
            parts.append(f"{rival}'s {100 * density:.0f} % (FedDualAvg is {verdict}, {mean:+.1f} ± {half:.1f} points)")
        share = f"{100 * own:.0f} %" if own == own else "an unknown share"
        yield f"{table.task.title}: {share} of FedDualAvg's weights are not zero, of {', of '.join(parts)}."
