"""The metrics of the shared model and of each client's own, client by client.

The shared model is run once over the rows concerned, whoever owns them, and each client's mean is read off
running sums; so overlapping clients (every client draws from all rows) cost no more than one. A metric that is no mean
over rows makes a statistic of each client's records (see `fedax.evaluation.metrics`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from numpy.typing import NDArray

from fedax import platforms
from fedax.algorithms.base import Algorithm
from fedax.client import shares
from fedax.client.device_data import Data, Disk, DividedRows
from fedax.client.plan import Plan
from fedax.client.round import Client
from fedax.data.federation import Rows
from fedax.evaluation.measurement import Floats, Measurement, Merge
from fedax.problem import Problem

OWN = ("loss", "accuracy")  # of every problem
TAKEN = 256  # clients whose states are taken from a store at a time


class Meter:
    """Measures models on one part (train, validation or test) of a federation's rows."""

    def __init__(
        self, problem: Problem, plan: Plan, mesh: Mesh, start: Any, count: Any, batched: int, seed: Any = 0
    ) -> None:
        self.problem, self.plan, self.mesh, self.batched, self.seed = problem, plan, mesh, batched, seed
        self.start, self.count = np.asarray(start, np.int64), np.asarray(count, np.int64)
        marks = np.zeros(int((self.start + self.count).max()) + 1, np.int64)
        np.add.at(marks, self.start, 1)
        np.add.at(marks, self.start + self.count, -1)
        self.index = np.flatnonzero(np.cumsum(marks) > 0)
        self._compact = np.searchsorted(self.index, self.start)

    def shared(self, params: Any, data: Data | Disk, *, statistics: bool = False) -> dict[str, Measurement]:
        """The shared model's metrics for every client, with each client's statistics if asked for."""
        return Meters({"": self}).shared(params, data, statistics=statistics)[""]

    def personal(self, algorithm: Algorithm, server: Any, clients: Any, data: Data | Disk) -> dict[str, Measurement]:
        """The metrics of each client's own model; see `Meters.personal`."""
        return Meters({"": self}).personal(algorithm, server, clients, data)[""]

    def of_records(self, every: Mapping[str, Floats], statistics: bool) -> dict[str, Measurement]:
        """The metrics for every client, from the records of the rows of `index`."""
        own = [name for name in every if name in OWN]
        asked = [name for name in self.problem.metrics if name not in OWN]  # a program gives them in sorted order
        return {
            name: self._means(every[name])
            if self.problem.metrics[name].mean
            else self._merged(name, every[name], statistics)
            for name in (*own, *asked)
        }

    def _merged(self, name: str, records: Floats, keep: bool) -> Measurement:
        """A metric that is no mean over rows, from the records of all rows; clients with the same rows share it."""
        metric = self.problem.metrics[name]
        ranges, which = np.unique(np.stack([self._compact, self.count]), axis=1, return_inverse=True)
        found = Merge(metric, keep)
        times = np.bincount(which.ravel())
        for (first, count), again in zip(ranges.T.tolist(), times.tolist(), strict=True):
            found.add(records[first : first + count], again)
        return found.measurement(self.count, which.ravel())

    def _means(self, rows: Floats) -> Measurement:
        sums = np.concatenate([[0.0], np.cumsum(rows[: len(self.index)])])
        with np.errstate(invalid="ignore", divide="ignore"):  # clients without rows; losses beyond a float's range
            total = sums[self._compact + self.count] - sums[self._compact]
            return Measurement(np.where(self.count > 0, total / self.count, np.nan), self.count.astype(np.float64))

    def of_sums(self, found: Sequence[Mapping[str, Floats]], merges: Mapping[str, Merge]) -> dict[str, Measurement]:
        """The metrics for every client, from the sums over their rows and the statistics of what is no mean."""
        rows = self.count.astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            means = {
                name: Measurement(np.concatenate([part[name] for part in found]) / rows, rows) for name in found[0]
            }
        own = {name: merge.measurement(self.count, np.arange(len(rows))) for name, merge in merges.items()}
        return {name: (means | own)[name] for name in self.problem.metrics}

    def sums(self, params: Any, arrays: Any, start: Any, count: Any) -> dict[str, jax.Array]:
        """The sums of each metric over one client's rows; of a metric that is no mean, the records, filled up."""
        block = min(_block(), int(self.count.max()))
        offsets = jnp.arange(block)

        def at(b: Any) -> dict[str, jax.Array]:
            inside = b * block + offsets < count
            index = jnp.where(inside, start + b * block + offsets, start)
            rows = self.problem.records(params, {k: a[index] for k, a in arrays.items()})
            return {
                k: jnp.sum(jnp.where(inside, v, 0), dtype=jnp.result_type(float)) if known[k].mean else v
                for k, v in rows.items()
            }

        def add(b: Any, total: dict[str, jax.Array]) -> dict[str, jax.Array]:
            new = at(b)
            return {
                k: v + new[k] if known[k].mean else jax.lax.dynamic_update_slice_in_dim(v, new[k], b * block, 0)
                for k, v in total.items()
            }

        known = self.problem.metrics
        room = -(-int(self.count.max()) // block) * block
        shapes = jax.eval_shape(lambda: at(0))
        zero = {
            k: jnp.zeros((), jnp.result_type(float)) if known[k].mean else jnp.zeros((room, *s.shape[1:]), s.dtype)
            for k, s in shapes.items()
        }
        sums: dict[str, jax.Array] = jax.lax.fori_loop(0, (count + block - 1) // block, add, zero)
        return sums


class Meters(dict[str, Meter]):
    """The meters of the parts that are evaluated: a model runs, and a client's own is made, once for all parts."""

    @property
    def _any(self) -> Meter:
        return next(iter(self.values()))

    def _program(self, name: str, *key: Any, build: Any) -> Any:
        mesh = self._any.mesh
        jitted = lambda: jax.jit(build(), out_shardings=shares.everywhere(mesh))  # noqa: E731
        return self._any.problem.program((name, mesh, *key), jitted)

    @property
    def _index(self) -> NDArray[np.int64]:
        return np.concatenate([meter.index for meter in self.values()])

    def _dealt(self, data: Data | Disk) -> tuple[Any, Any]:
        """The blocks of rows that the devices evaluate, with their arrays, and the position of each row among them."""
        if not isinstance(data, DividedRows):
            return data.blocks(self._blocks, self._any.mesh.devices.size), slice(None)
        block = min(_block(), -(-len(self._index) // self._any.mesh.devices.size))
        blocks, order = data.dealt_blocks(self._index, block)
        return [(data.near.arrays, blocks)], order

    @functools.cached_property
    def _blocks(self) -> NDArray[np.int32]:
        """The rows of all parts, in blocks."""
        index, devices = self._index, self._any.mesh.devices.size
        block = min(_block(), -(-len(index) // devices))
        filled = -(-len(index) // (block * devices)) * block * devices
        return np.resize(index, filled).astype(np.int32).reshape(-1, block)

    def shared(self, params: Any, data: Data | Disk, *, statistics: bool = False) -> dict[str, dict[str, Measurement]]:
        """The shared model's metrics for every client, part by part, with clients' statistics if asked for."""
        problem, mesh = self._any.problem, self._any.mesh

        def build() -> Any:
            def device(params: Any, arrays: Any, blocks: jax.Array) -> Any:
                def one(index: jax.Array) -> Any:
                    return problem.records(params, {k: a[index] for k, a in arrays.items()})

                return jax.lax.map(one, blocks)

            spread = shares.over_devices(mesh)
            specs = (P(), shares.over_processes(mesh) if divided else P(), spread)
            return jax.shard_map(device, mesh=mesh, in_specs=specs, out_specs=spread, check_vma=False)

        divided = isinstance(data, DividedRows)
        program, parts = self._program("shared", divided, build=build), []
        dealt, order = self._dealt(data)
        for arrays, blocks in dealt:
            found = program(params, arrays, blocks)
            parts.append({name: _by_row(np.asarray(values, np.float64)) for name, values in found.items()})
        every = {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}
        made, first = {}, 0
        for part, meter in self.items():
            last = first + len(meter.index)
            made[part] = meter.of_records({name: rows[first:last] for name, rows in every.items()}, statistics)
            first = last
        return made

    def personal(
        self, algorithm: Algorithm, server: Any, clients: Any, data: Data | Disk
    ) -> dict[str, dict[str, Measurement]]:
        """The metrics of each client's own model, part by part.

        algorithm: with its schedules at the round concerned.
        clients: their states, stacked, or with `take(who)` for some.
        """
        if isinstance(data, Disk) and not isinstance(data, DividedRows) and len(self) > 1:  # rows come part by part
            one_by_one = {part: Meters({part: meter}) for part, meter in self.items()}
            return {part: one.personal(algorithm, server, clients, data)[part] for part, one in one_by_one.items()}
        first_meter = self._any
        metrics, total, stored = first_meter.problem.metrics, first_meter.plan.clients, hasattr(clients, "take")
        merged = [metric for metric in metrics.values() if not metric.mean]
        room, many = total if isinstance(data, DividedRows) else data.at_once, shares.processes(first_meter.mesh)
        step = -(-min(total, room, many * TAKEN if stored or merged else total) // many) * many
        merges = {part: {metric.name: Merge(metric) for metric in merged} for part in self}
        found: dict[str, list[dict[str, Floats]]] = {part: [] for part in self}
        for first in range(0, total, step):
            who = np.arange(first, min(first + step, total))
            if isinstance(data, DividedRows):
                near, starts = data.near, {p: data.holding.start(Rows(m.start, m.count)) for p, m in self.items()}
            else:
                near, begin = data.some(who, step, Rows(first_meter.start, first_meter.count))
                own = {part: meter.start for part, meter in self.items()}
                starts = own if len(self) > 1 else dict.fromkeys(self, begin)
            states, at = (_taken(first_meter.mesh, clients, who, step), 0) if stored else (clients, None)
            for part, here in self._own(algorithm, server, states, near, starts, who, step, at).items():
                for name, merge in merges[part].items():
                    for records, count in zip(here.pop(name), self[part].count[who].tolist(), strict=True):
                        merge.add(records[:count])
                found[part].append(here)
        return {part: meter.of_sums(found[part], merges[part]) for part, meter in self.items()}

    def _own(
        self,
        algorithm: Algorithm,
        server: Any,
        states: Any,
        data: Data,
        starts: Mapping[str, Any],
        who: Any,
        limit: int,
        first: int | None,
    ) -> dict[str, dict[str, Floats]]:
        """`Meter.sums` of the clients `who`, whose rows begin at `starts`; `limit` is the largest number in a call.

        Their states are the rows of `states` from `first` on; without `first`, those at their own numbers.
        """
        meter = self._any
        problem, plan, mesh, batched = meter.problem, meter.plan, meter.mesh, meter.batched
        devices, count = mesh.devices.size, shares.processes(mesh)
        places = -(-limit // (devices * batched)) * devices * batched
        if count == 1:
            order = np.arange(len(who))
            every = np.resize(who, places).astype(np.int32)
            at = every if first is None else np.resize(np.arange(first, first + len(who)), places).astype(np.int32)
        else:  # each client at a place of the process that holds it; places left over repeat a client of that process
            order = who % count * (places // count) + np.arange(len(who)) // count
            every = np.repeat(np.arange(count, dtype=np.int32), places // count)
            at = np.zeros(places, np.int32)
            every[order], at[order] = who, who // count - (0 if first is None else who[0] // count)

        def build() -> Any:
            def device(
                algorithm: Any, server: Any, states: Any, data: Data, seed: Any, every: Any, at: Any, rows: Any
            ) -> Any:
                def one(here: Any) -> Any:
                    i, row = here
                    client = Client(problem, plan, data, i, seed, 0, algorithm.composite)
                    x = algorithm.personal(server, jax.tree.map(lambda a: a[row], states), client.full())
                    return {
                        part: meter.sums(x.tree, data.arrays, rows[part][0][i], rows[part][1][i])
                        for part, meter in self.items()
                    }

                pair = (every, at)
                return jax.lax.map(one, pair, batch_size=batched) if batched > 1 else jax.lax.map(one, pair)

            spread, held = shares.over_devices(mesh), shares.over_processes(mesh)
            specs = (P(), P(), held, data.specs(mesh), P(), spread, spread, P())
            return jax.shard_map(device, mesh=mesh, in_specs=specs, out_specs=spread, check_vma=False)

        rows = {part: (starts[part].astype(np.int32), m.count.astype(np.int32)) for part, m in self.items()}
        most = tuple((part, int(m.count.max())) for part, m in self.items())
        program = self._program("personal", plan, batched, most, data.divided, build=build)
        sums = program(algorithm, server, states, data, meter.seed, every, at, rows)
        return {
            part: {name: np.asarray(value, np.float64)[order] for name, value in found.items()}
            for part, found in sums.items()
        }


def _block() -> int:
    """Rows that are evaluated at a time, at most."""
    return platforms.current().evaluated_rows


def _taken(mesh: Mesh, store: Any, who: Any, limit: int) -> Any:
    """The states of some clients from a store; of several processes, each takes those that it holds."""
    if not shares.is_divided(mesh):
        return store.take(who)
    count = shares.processes(mesh)

    def own(process: int) -> Any:
        mine = who[who % count == process]
        return store.take(np.resize(mine if len(mine) else process, -(-limit // count)))

    return shares.divide(mesh, own)


def _by_row(values: Floats) -> Floats:
    """Blocks of rows as rows: [blocks, rows] as [rows], [blocks, rows, numbers] as [rows, numbers]."""
    return values.reshape(-1, *values.shape[2:])
