"""Which devices a cohort is spread over, and how."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from numpy.typing import NDArray

from fedax import platforms
from fedax.client import shares
from fedax.client.plan import Plan
from fedax.engine.executors import Executor, choose, step_floats
from fedax.errors import FedaxError
from fedax.problem import Problem
from fedax.runtime import cores, process_count, unheard
from fedax.vectors import Vector, size

log = logging.getLogger("fedax")
_SAID: set[str] = set()


def choose_devices(
    name: str,
    problem: Problem,
    x0: Vector,
    arrays: Mapping[str, Any],
    plan: Plan,
    steps: NDArray[np.int64],
    devices: int | None = None,
    chunk: int | None = None,
    busiest: int | None = None,
) -> tuple[Executor, Mesh]:
    """The executor for a cohort, and the mesh of devices that it is spread over.

    busiest: the largest number of a cohort's clients in one process; an even share unless given. Every process has
    the same number of devices in the mesh.
    """
    available, processes = len(jax.devices()), process_count()
    if devices is not None and not processes <= devices <= available:
        fewer = devices > available and jax.default_backend() == "cpu" and processes == 1
        more = f"; FEDAX_DEVICES={devices} makes that many" if fewer else ""
        raise FedaxError(f"devices must be in [{processes}, {available}], not {devices}{more}")
    if name == "debug" and processes > 1:
        raise FedaxError(f"executor is 'debug': it runs in one process, not in {processes}")
    work = step_floats(problem, x0.tree, arrays, plan, steps)
    most = -(-plan.cohort // processes) if busiest is None else busiest
    each = choose(name, most, size(x0), work, (devices or available) // processes, chunk, platforms.current())
    if each.devices > cores() and jax.default_backend() == "cpu":
        say_once(f"{each.devices} devices share {cores()} cores: more devices than cores make a run slower")
    if processes == 1:
        return each, Mesh(np.array(jax.devices()[: each.devices]), ("clients",))
    in_order = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    of_each = np.array(in_order).reshape(processes, -1)[:, : each.devices]
    mesh = Mesh(of_each, (shares.PROCESSES, "clients"))
    _meet(mesh)
    return dataclasses.replace(each, devices=mesh.devices.size, places=each.places * processes), mesh


@functools.cache
def _meet(mesh: Mesh) -> None:
    """Let devices that compute sums together find each other."""

    def together(one: jax.Array) -> Any:
        return jax.lax.psum(one, mesh.axis_names), jax.lax.psum(one, "clients")

    program = jax.shard_map(together, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
    with unheard():
        jax.block_until_ready(jax.jit(program)(np.float32(1)))


def say_once(advice: str) -> None:
    """Log a warning, each text only once."""
    if advice not in _SAID:
        _SAID.add(advice)
        log.warning(advice)
