"""Partitions by name: how one dataset is divided among clients.

Every partition but `Homogeneous`, where all clients share all rows, gives a row to at most one client. For any data and
parameters it gives each client at least one row or raises, and it is a function of its parameters, the data and the
seed alone.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from fedax.data.partitions.base import IID, DirichletSize, Homogeneous, Partition
from fedax.data.partitions.by_column import ByColumn, ByWriter, FromFlower
from fedax.data.partitions.by_label import ByLabel, Dirichlet, DirichletLabels, LabelGroups, Pathological, Shards
from fedax.data.partitions.feature_shift import FeatureShift
from fedax.errors import FedaxError, unknown
from fedax.outside import is_outside, load

__all__ = [
    "IID",
    "PARTITIONS",
    "ByColumn",
    "ByLabel",
    "ByWriter",
    "Dirichlet",
    "DirichletLabels",
    "DirichletSize",
    "FeatureShift",
    "FromFlower",
    "Homogeneous",
    "LabelGroups",
    "Partition",
    "Pathological",
    "Shards",
    "partition",
]

PARTITIONS: dict[str, type[Partition]] = {
    kind.__name__: kind
    for kind in (
        IID,
        ByLabel,
        LabelGroups,
        Shards,
        Dirichlet,
        DirichletLabels,
        DirichletSize,
        Pathological,
        ByColumn,
        ByWriter,
        FeatureShift,
        Homogeneous,
    )
}


def partition_class(name: str) -> type[Partition]:
    """The class of a partition: one of `PARTITIONS`, or "mymodule:MyPartition", "file.py:MyPartition".

    >>> partition_class("iid").__name__
    'IID'
    """
    if is_outside(name):
        check = lambda found: isinstance(found, type) and issubclass(found, Partition)  # noqa: E731
        advice = "derive it from fedax.data.Partition and decorate it with @dataclass(frozen=True)"
        found: type[Partition] = load(name, "partition", check, advice)
        return found
    by_lower = {known.lower(): known for known in PARTITIONS}
    if str(name).lower() not in by_lower:
        raise unknown("partition", name, PARTITIONS)
    return PARTITIONS[by_lower[str(name).lower()]]


def partition(name: str, **arguments: Any) -> Partition:
    """The partition of that name, in any case, with its arguments; your own as "mymodule:MyPartition".

    >>> partition("dirichlet", clients=10, alpha=0.3)
    Dirichlet(clients=10, alpha=0.3, min_rows=1)
    """
    kind = partition_class(name)
    known = [f.name for f in fields(kind)]
    for argument in arguments:
        if argument not in known:
            raise unknown(f"{kind.__name__} argument", argument, known)
    missing = [f.name for f in fields(kind) if f.default is MISSING and f.name not in arguments]
    if missing:
        raise FedaxError(f"{kind.__name__} is missing {', '.join(missing)}: its arguments are {', '.join(known)}")
    return kind(**arguments)
