"""Data: federations, the partitions that make them, and datasets by name.

>>> from fedax.data import Dirichlet, load
>>> load("wine", partition=Dirichlet(clients=4, alpha=0.5)).clients
4
"""

from fedax.data.datasets import DATASETS, FEDERATIONS, Dataset, Divided, divided, load
from fedax.data.federation import Federation, Rows
from fedax.data.fmri import haxby
from fedax.data.generators import LASSO, LOW_RANK, Synthetic, lasso, low_rank
from fedax.data.partitions import (
    IID,
    PARTITIONS,
    ByLabel,
    Dirichlet,
    Homogeneous,
    Partition,
    partition,
)

__all__ = [
    "DATASETS",
    "FEDERATIONS",
    "IID",
    "LASSO",
    "LOW_RANK",
    "PARTITIONS",
    "ByLabel",
    "Dataset",
    "Dirichlet",
    "Divided",
    "Federation",
    "Homogeneous",
    "Partition",
    "Rows",
    "Synthetic",
    "divided",
    "haxby",
    "lasso",
    "load",
    "low_rank",
    "partition",
]
