"""One JAX device for each core: on a CPU the cohort is then spread over the cores.

XLA's own threads only help large matrix products; clients are independent, so giving each core its own
clients is about twice as fast for small models. The count can be set only before JAX's first use.
"""

from __future__ import annotations

import contextlib
import os

import jax

from fedax.errors import FedaxError


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_all_cores() -> None:
    """Ask JAX for one CPU device a core, unless it is in use already or was told a number."""
    asked = os.environ.get("FEDAX_DEVICES", "")
    if asked and (not asked.isdigit() or int(asked) < 1):
        raise FedaxError(f"FEDAX_DEVICES must be a whole number from 1 on, not {asked!r}")
    told = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if told or os.environ.get("JAX_NUM_CPU_DEVICES"):
        return
    with contextlib.suppress(RuntimeError):  # JAX is in use: it keeps the devices it has
        jax.config.update("jax_num_cpu_devices", int(asked) if asked else cores())
