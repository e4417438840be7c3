"""The constants that the engine's choices depend on, by the kind of device that JAX computes on.

On a CPU it matters that floats stay in a core's cache, and `fedax.kernels` has the forms that XLA runs fastest there;
the numbers are measured (`benchmarks/choices.py`). An accelerator is fast when it has much to do at once:
clients are batched as long as their steps fit a share of its memory, and all operations are XLA's own. No accelerator
was at hand, so its numbers are chosen and not measured (docs/performance.md).
"""

from __future__ import annotations

import dataclasses
import functools
import math

import jax


@dataclasses.dataclass(frozen=True)
class Platform:
    """The constants of one kind of device."""

    kernels: bool  #: programs take the forms of `fedax.kernels`
    near: int  #: floats of local steps that are batched together, unless memory says otherwise
    made: int  #: floats of clients that are made at a time
    threaded: float  #: parameters from which one device's matrix products keep the machine busy by themselves
    large: float  #: parameters from which copying them in every step costs time,
    heavy: float  #: unless a step computes this many floats for each: then only compiling takes longer
    evaluated_rows: int  #: rows of an evaluation at a time
    gradient_rows: int  #: rows that a full local gradient takes at a time
    own_memory: bool  #: devices have memory of their own
    batch_share: float = 0.0  #: the share of a device's memory for the steps of clients that are batched together
    hold_share: float = 0.0  #: the share of a device's memory for rows, and as much for clients' states


CPU = Platform(
    kernels=True,
    near=1 << 16,
    made=1 << 19,
    threaded=1_000_000,
    large=1_000_000,
    heavy=32,
    evaluated_rows=256,  # more of a convolutional network leave the caches
    gradient_rows=1024,
    own_memory=False,
)
ACCELERATOR = Platform(
    kernels=False,
    near=1 << 28,
    made=1 << 28,
    threaded=math.inf,
    large=math.inf,
    heavy=0,
    evaluated_rows=4096,
    gradient_rows=8192,
    own_memory=True,
    batch_share=1 / 8,
    hold_share=1 / 4,
)
TABLE = {"cpu": CPU, "gpu": ACCELERATOR, "tpu": ACCELERATOR}


def kind() -> str:
    """The kind of device that JAX computes on, in JAX's word: cpu, gpu, tpu."""
    return str(jax.default_backend())


def current() -> Platform:
    """The constants of the devices that JAX computes on, with those that depend on their memory.

    >>> current().kernels == (jax.default_backend() == "cpu")
    True
    """
    known = TABLE.get(kind(), ACCELERATOR)
    memory = device_memory() if known.own_memory else None
    if memory is None:
        return known
    floats = max(1, int(memory * known.batch_share / 4))
    return dataclasses.replace(known, near=floats, made=min(known.made, floats))


@functools.cache
def device_memory() -> int | None:
    """The bytes of memory that programs may take on any device, None where JAX does not know."""
    found = [stats.get("bytes_limit") for device in jax.local_devices() if (stats := device.memory_stats())]
    return min((int(limit) for limit in found if limit), default=None)


def room_to_hold() -> int | None:
    """The bytes of a device for rows, and as many for clients' states; None where devices have no memory of their own.

    >>> room_to_hold() is None or jax.default_backend() != "cpu"
    True
    """
    known = TABLE.get(kind(), ACCELERATOR)
    memory = device_memory() if known.own_memory else None
    return None if memory is None else int(memory * known.hold_share)
