"""From a checked table to a federation: rows are divided first, then prepared with numbers from training rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedax.data.checks import Array
from fedax.data.federation import Federation
from fedax.data.storage.sharing import within_budget
from fedax.data.tables.applying import Cells, encode
from fedax.data.tables.fitting import asker
from fedax.data.tables.preparation import Preparation
from fedax.data.tables.table import Table

log = logging.getLogger("fedax")
BLOCK = 1 << 16  # rows that one place holds: sums do not depend on which clients hold them
WEIGHT = "weight"  #: the array of rows' weights, which a problem's loss takes


def federate(table: Table, divide: Callable[[Mapping[str, Array]], Federation]) -> Federation:
    """The federation of a table's rows; `divide` gives each client its own, and splits them.

    Its `info` has the `preparation`, whose every number comes from the clients' training rows.
    """
    rows = np.arange(len(table.y))
    blank = np.zeros((len(rows), 1), np.float32)
    made = divide({"x": blank, "y": table.y, "row": rows})
    training = _training(made)
    places = [_some(table.cells, training[i : i + BLOCK]) for i in range(0, len(training), BLOCK)]
    preparation = Preparation.of(table, asker(places), made.names)
    x = encode(preparation.columns, table.cells)
    if made.arrays["x"].any():  # the partition changes features, each client's in its own way
        made = divide({"x": x, "y": table.y, "row": rows})
        x = made.arrays["x"]
    else:
        x = x[made.arrays["row"]]
    arrays = {"x": x, "y": made.arrays["y"]}
    if table.weight is not None:
        arrays[WEIGHT] = _weights(table, training)[made.arrays["row"]]
    _say_who_has_one_class(made, table)
    return replace(made, arrays=within_budget(arrays), info={**made.info, "preparation": preparation})


def _training(made: Federation) -> Array:
    """The table's rows that clients train on, each once."""
    ranges = {made.train.of(i).indices(made.rows)[:2] for i in range(made.clients)}
    return np.unique(np.concatenate([made.arrays["row"][first:last] for first, last in ranges]))


def _some(cells: Cells, rows: Array) -> Cells:
    return {name: values[rows] for name, values in cells.items()}


def _weights(table: Table, training: Array) -> Array:
    """A weight for each row, 1 on average over the training rows."""
    if isinstance(table.weight, str):
        counts = np.bincount(table.y[training], minlength=len(table.labels or ()))
        weight: Any = (len(training) / np.maximum(counts, 1) / len(counts))[table.y]
    else:
        weight = np.asarray(table.weight, np.float64)
    mean = weight[training].mean()
    made: Array = (weight / (mean if mean > 0 else 1.0)).astype(np.float32)
    return made


def _say_who_has_one_class(made: Federation, table: Table) -> None:
    """Log which clients have rows of one class alone: no AUC of theirs has a meaning."""
    if table.labels is None or table.client is None:
        return
    alone = [i for i, counts in enumerate(made.label_counts()) if np.count_nonzero(counts) < 2]
    if alone:
        some = ", ".join(made.names[i] for i in alone[:10]) + (" ..." if len(alone) > 10 else "")
        log.warning("%d of %d clients have rows of one class alone: %s", len(alone), made.clients, some)
