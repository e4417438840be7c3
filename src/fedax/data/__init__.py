"""Data: federations, the partitions that make them, and datasets by name.

>>> from fedax.data import Dirichlet, load
>>> load("wine", partition=Dirichlet(clients=4, alpha=0.5)).clients
4
"""

from fedax.data.datasets.fmri import haxby
from fedax.data.datasets.registry import DATASETS, FEDERATIONS
from fedax.data.datasets.spec import Dataset, Divided
from fedax.data.federation import Federation, Rows
from fedax.data.generators.clusters import ClusterClients, clusters
from fedax.data.generators.quadratics import QuadraticClients, quadratics
from fedax.data.generators.sparse import LASSO, LOW_RANK, LassoClients, LowRankClients, lasso, low_rank
from fedax.data.generators.synthetic import SyntheticClients, synthetic
from fedax.data.heterogeneity import Heterogeneity, heterogeneity
from fedax.data.loading import divided, from_table, load
from fedax.data.partitions.registry import (
    IID,
    PARTITIONS,
    ByColumn,
    ByLabel,
    ByWriter,
    Dirichlet,
    DirichletLabels,
    DirichletSize,
    FeatureShift,
    FromFlower,
    Homogeneous,
    LabelGroups,
    Partition,
    Pathological,
    Shards,
    partition,
)
from fedax.data.torch_datasets import from_torch

__all__ = [
    "DATASETS",
    "FEDERATIONS",
    "IID",
    "LASSO",
    "LOW_RANK",
    "PARTITIONS",
    "ByColumn",
    "ByLabel",
    "ByWriter",
    "ClusterClients",
    "Dataset",
    "Dirichlet",
    "DirichletLabels",
    "DirichletSize",
    "Divided",
    "FeatureShift",
    "Federation",
    "FromFlower",
    "Heterogeneity",
    "Homogeneous",
    "LabelGroups",
    "LassoClients",
    "LowRankClients",
    "Partition",
    "Pathological",
    "QuadraticClients",
    "Rows",
    "Shards",
    "SyntheticClients",
    "clusters",
    "divided",
    "from_table",
    "from_torch",
    "haxby",
    "heterogeneity",
    "lasso",
    "load",
    "low_rank",
    "partition",
    "quadratics",
    "synthetic",
]


def __getattr__(name: str) -> type[Partition]:
    """A partition of `PARTITIONS` that is not imported by name above."""
    if name not in PARTITIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return PARTITIONS[name]
