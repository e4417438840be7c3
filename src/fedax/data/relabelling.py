"""Wrong labels: the training rows of some clients with label C - 1 - y in place of y."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from fedax.data.federation import Federation
from fedax.data.splits import is_label
from fedax.errors import FedaxError


def relabel(federation: Federation, clients: Iterable[int]) -> Federation:
    """The federation with these clients' training rows relabelled; validation and test rows stay as they are.

    >>> federation = Federation.from_clients([{"y": [0, 1, 2]}, {"y": [0, 1, 2]}])
    >>> relabel(federation, [1]).client(1)["y"], relabel(federation, [1]).client(0)["y"]
    (array([2, 1, 0]), array([0, 1, 2]))
    """
    y = federation.arrays.get("y")
    if y is None or not is_label(y):
        raise FedaxError("attack.kind is 'relabel': it needs classes, one whole number a row in the array 'y'")
    order = np.argsort(federation.train.start, kind="stable")
    start, end = federation.train.start[order], (federation.train.start + federation.train.count)[order]
    if (start[1:] < end[:-1]).any():
        raise FedaxError("attack.kind is 'relabel': clients must not share training rows, and these do")
    new, most = np.array(y), int(y.max())
    for client in clients:
        rows = federation.train.of(client)
        new[rows] = most - new[rows]
    return dataclasses.replace(federation, arrays={**federation.arrays, "y": new})
