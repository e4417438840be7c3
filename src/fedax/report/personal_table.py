"""The protocol's table for the runs of a comparison: each method's models side by side, over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fedax.evaluation.metrics import main
from fedax.report.summary import Group
from fedax.runs.reading import RecordedRun

if TYPE_CHECKING:
    from fedax.evaluation.protocol import Clients


def protocol(groups: Iterable[Group], *, part: str = "test") -> tuple[str, list[dict[str, Any]]]:
    """The metric, and the lines of `fedax.evaluation.protocol.over_seeds` with each method's label; no lines where no
    run kept its clients. Training alone, if it is among the runs, is every other method's yardstick."""
    found = [(group.label, {str(run.seed): kept for run in group.runs if (kept := by_client(run))}) for group in groups]
    found = [(label, runs) for label, runs in found if runs]
    if not found:
        return main(()), []
    from fedax.evaluation.protocol import over_seeds, table

    metric = _metric([kept for _, runs in found for kept in runs.values()], part)
    local = next((runs for _, runs in found if all(alone(kept) for kept in runs.values())), {})
    lines = []
    for label, runs in found:
        paired = [_beside(kept, local.get(seed)) for seed, kept in runs.items()]
        tables = [table(kept, part=part, metric=metric) for kept in paired if part in kept.rows]
        lines += [{"algorithm": label, **line} for line in over_seeds(tables)]
    return metric, lines


def worth(lines: Sequence[dict[str, Any]]) -> list[str]:
    """The groups of clients that get a table of their own; those that took part have none where they are all clients.

    >>> worth([{"group": "all", "clients": 9}, {"group": "joined", "clients": 9}, {"group": "unseen", "clients": 2}])
    ['all', 'unseen']
    """
    sizes = {name: [line["clients"] for line in lines if line["group"] == name] for name in ("all", "joined", "unseen")}
    return [name for name, of in sizes.items() if of and (name != "joined" or of != sizes["all"])]


def by_client(run: RecordedRun) -> Clients | None:
    """A run client by client; None where it kept no moments, or what it kept does not fit together."""
    if not run.clients.get("moments"):
        return None
    from fedax.evaluation.protocol import Clients

    try:
        kept = Clients.from_json(run.clients)
        return kept if kept is not None and _whole(kept) else None
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        return None  # written by another version, or damaged: the run is shown without


def alone(kept: Clients) -> bool:
    """Whether a run trained without federation: it has no shared model."""
    return "shared" not in kept.moments["last"].values


def _beside(kept: Clients, local: Clients | None) -> Clients:
    """A run with the models of training alone on the same clients."""
    same = local is not None and local.names == kept.names and not alone(kept)
    return kept.with_local(local) if local is not None and same else kept


def _whole(kept: Clients) -> bool:
    """Whether every list has a value for every client, and every moment its round."""
    values = [
        metric
        for moment in kept.moments.values()
        for parts in moment.values.values()
        for metrics in parts.values()
        for metric in metrics.values()
    ]
    shape = (len(kept.names),)
    lists = [kept.joined, kept.unseen, *kept.rows.values(), *values]
    rounds = all(isinstance(moment.round, int) for moment in kept.moments.values())
    return "last" in kept.moments and rounds and all(one.shape == shape for one in lists)


def _metric(runs: list[Clients], part: str) -> str:
    """The main one of the metrics that every run has of every model."""
    measured = [parts[part] for kept in runs for parts in kept.moments["last"].values.values() if part in parts]
    return main(name for name in measured[0] if all(name in other for other in measured)) if measured else main(())
