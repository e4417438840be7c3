"""Check that the processes of a run were started on the same experiment, before they work together."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fedax.algorithms.base import Algorithm
from fedax.client.plan import Plan
from fedax.data.federation import Federation
from fedax.engine.config import RunConfig
from fedax.errors import FedaxError
from fedax.runtime import agreed, process_count, unheard
from fedax.version import VERSION

ROWS = 1024  # of each array that are compared
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # the address in a function's repr, which differs between processes
_OWN = ("out", "on_progress", "label")  # options that each process may have its own of


def check_agreement(problem: Any, federation: Federation, algorithm: Algorithm, plan: Plan, config: RunConfig) -> None:
    """Raise in all processes if they disagree, with what they disagree on."""
    if process_count() == 1:
        return
    options = {name: value for name, value in vars(config).items() if name not in _OWN}
    said = {
        "algorithm": algorithm,
        "clients": plan.clients,
        "rows": [crc(federation.part(part).count) for part in ("train", "validation", "test")],
        "data": {name: crc(array[:: max(1, len(array) // ROWS)]) for name, array in sorted(federation.arrays.items())},
        "model": problem.model,
        "loss": problem.name,
        "regularizer": problem.regularizer,
        "devices of a process": jax.local_device_count(),
        "version of fedax": VERSION,
        "version of jax": jax.__version__,
        **options,
    }
    apart = different(said)
    if apart:
        raise FedaxError(
            f"the processes of the run disagree on {', '.join(apart)}: each must be started with the same experiment"
        )


def crc(array: Any) -> int:
    """A checksum of an array."""
    return zlib.crc32(np.ascontiguousarray(array).data)


def different(said: Mapping[str, Any]) -> list[str]:
    """The names whose values differ between processes; all processes must give the same names."""
    from jax.experimental.multihost_utils import process_allgather

    numbers = np.array([zlib.crc32(_ADDRESS.sub("", repr(value)).encode()) for value in said.values()], np.uint32)
    with unheard():
        every = np.asarray(process_allgather(numbers)).reshape(-1, len(numbers))
        agreed(0)
    return [name for name, column in zip(said, every.T, strict=True) if len(set(column.tolist())) > 1]
