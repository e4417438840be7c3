"""The metrics of the shared model and of each client's own, client by client.

The shared model is run once over the rows concerned, whoever owns them, and each client's mean is read off
running sums; so overlapping clients (every client draws from all rows) cost no more than one. A metric that is no mean
over rows makes a statistic of each client's records (see `fedax.evaluation.metrics`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from fedax.algorithms.base import Algorithm
from fedax.client.device_data import Data, Disk
from fedax.client.plan import Plan
from fedax.client.round import Client
from fedax.data.federation import Rows
from fedax.evaluation.metrics import METRICS, Metric
from fedax.problem import Problem
from fedax.runtime import readable

BLOCK = 256  # rows at a time: more of a convolutional network leave the caches
OWN = ("loss", "accuracy")  # of every problem
TAKEN = 256  # clients whose states are taken from a store at a time
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One metric for every client, NaN for a client without rows or where it has no meaning.

    whole: its value on all rows together; None for a mean over rows.
    statistics: each client's, where they were asked for.
    """

    values: Floats
    rows: Floats
    whole: float | None = None
    statistics: tuple[Floats, ...] = ()

    @property
    def overall(self) -> float:
        """The value on all rows together."""
        if self.whole is not None:
            return self.whole
        some = self.rows > 0
        return float(np.sum(self.values[some] * self.rows[some]) / np.sum(self.rows[some]))


def summary(prefix: str, metrics: Mapping[str, Measurement], known: Mapping[str, Metric] = METRICS) -> dict[str, float]:
    """Over all rows; then over clients: mean, spread, and the mean of the worst tenth.

    known: the metrics by name, which say what is worst. Clients for whom a metric has no meaning are left out.

    >>> m = Measurement(np.array([0.5, 1.0]), np.array([1.0, 3.0]))
    >>> summary("test_", {"accuracy": m})
    {'test_accuracy': 0.875, 'test_accuracy_mean': 0.75, 'test_accuracy_std': 0.25, 'test_accuracy_worst': 0.5}
    """
    row: dict[str, float] = {}
    for name, metric in metrics.items():
        there = metric.rows > 0
        if metric.whole is not None:
            there &= ~np.isnan(metric.values)
            if np.isnan(metric.whole) or not there.any():
                continue
        values = np.sort(metric.values[there])
        if not known[name].higher:
            values = values[::-1]
        tenth = max(1, round(len(values) / 10))
        row[f"{prefix}{name}"] = metric.overall
        row[f"{prefix}{name}_mean"] = float(np.mean(values))
        with np.errstate(invalid="ignore"):  # a diverged model's losses may be infinite
            row[f"{prefix}{name}_std"] = float(np.std(values))
        row[f"{prefix}{name}_worst"] = float(np.mean(values[:tenth]))
    return row


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
        devices = mesh.devices.size
        block = min(BLOCK, -(-len(self.index) // devices))
        filled = -(-len(self.index) // (block * devices)) * block * devices
        self._blocks = np.resize(self.index, filled).astype(np.int32).reshape(-1, block)
        self._compact = np.searchsorted(self.index, self.start)

    def _program(self, name: str, build: Any) -> Any:
        key = (name, self.plan, self.mesh, self.batched, int(self.count.max()))
        return self.problem.program(key, lambda: jax.jit(build(), out_shardings=readable(self.mesh)))

    def shared(self, params: Any, data: Data | Disk, *, statistics: bool = False) -> dict[str, Measurement]:
        """The shared model's metrics for every client, with each client's statistics if asked for."""

        def build() -> Any:
            def device(params: Any, arrays: Any, blocks: jax.Array) -> Any:
                def one(index: jax.Array) -> Any:
                    return self.problem.records(params, {k: a[index] for k, a in arrays.items()})

                return jax.lax.map(one, blocks)

            specs = (P(), P(), P("clients"))
            return jax.shard_map(device, mesh=self.mesh, in_specs=specs, out_specs=P("clients"), check_vma=False)

        program, parts = self._program("shared", build), []
        for arrays, blocks in data.blocks(self._blocks, self.mesh.devices.size):
            found = program(params, arrays, blocks)
            parts.append({name: _by_row(np.asarray(values, np.float64)) for name, values in found.items()})
        every = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
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
        found = _Merge(metric, keep)
        times = np.bincount(which.ravel())
        for (first, count), again in zip(ranges.T.tolist(), times.tolist(), strict=True):
            found.add(records[first : first + count], again)
        return found.measurement(self.count, which.ravel())

    def _means(self, rows: Floats) -> Measurement:
        sums = np.concatenate([[0.0], np.cumsum(rows[: len(self.index)])])
        with np.errstate(invalid="ignore", divide="ignore"):  # clients without rows; losses beyond a float's range
            total = sums[self._compact + self.count] - sums[self._compact]
            return Measurement(np.where(self.count > 0, total / self.count, np.nan), self.count.astype(np.float64))

    def personal(self, algorithm: Algorithm, server: Any, clients: Any, data: Data | Disk) -> dict[str, Measurement]:
        """The metrics of each client's own model; `clients` is their states, stacked, or has `take(who)` for some.

        algorithm: with its schedules at the round concerned.
        """
        total = self.plan.clients
        stored = hasattr(clients, "take")
        merged = [metric for metric in self.problem.metrics.values() if not metric.mean]
        step = min(total, data.at_once, TAKEN if stored or merged else total)
        merges = {metric.name: _Merge(metric) for metric in merged}
        found = []
        for first in range(0, total, step):
            who = np.arange(first, min(first + step, total))
            near, start = data.some(who, step, Rows(self.start, self.count))
            states, at = (clients.take(who), 0) if stored else (clients, None)
            here = self._own(algorithm, server, states, near, start, who, step, at)
            for name, merge in merges.items():
                for records, count in zip(here.pop(name), self.count[who].tolist(), strict=True):
                    merge.add(records[:count])
            found.append(here)
        rows = self.count.astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            means = {
                name: Measurement(np.concatenate([part[name] for part in found]) / rows, rows) for name in found[0]
            }
        own = {name: merge.measurement(self.count, np.arange(total)) for name, merge in merges.items()}
        return {name: (means | own)[name] for name in self.problem.metrics}

    def _own(
        self,
        algorithm: Algorithm,
        server: Any,
        states: Any,
        data: Data,
        start: Any,
        who: Any,
        limit: int,
        first: int | None,
    ) -> dict[str, Floats]:
        """The sums of each metric over the rows, from `start` on, of the clients `who`, whose states are the rows of
        `states` from `first` on, or at their own numbers; `limit` is the largest number of clients in a call. Of a
        metric that is no mean, the records of the rows, filled up."""
        devices = self.mesh.devices.size
        places = -(-limit // (devices * self.batched)) * devices * self.batched
        every = np.resize(who, places).astype(np.int32)
        at = every if first is None else np.resize(np.arange(first, first + len(who)), places).astype(np.int32)
        block = min(BLOCK, int(self.count.max()))

        def build() -> Any:
            def device(
                algorithm: Any,
                server: Any,
                states: Any,
                data: Data,
                seed: Any,
                every: Any,
                at: Any,
                start: Any,
                count: Any,
            ) -> Any:
                def one(here: Any) -> Any:
                    i, row = here
                    client = Client(self.problem, self.plan, data, i, seed, 0, algorithm.composite)
                    x = algorithm.personal(server, jax.tree.map(lambda a: a[row], states), client.full())
                    return self._sums(x.tree, data.arrays, start[i], count[i], block)

                pair = (every, at)
                return jax.lax.map(one, pair, batch_size=self.batched) if self.batched > 1 else jax.lax.map(one, pair)

            specs = (P(), P(), P(), P(), P(), P("clients"), P("clients"), P(), P())
            return jax.shard_map(device, mesh=self.mesh, in_specs=specs, out_specs=P("clients"), check_vma=False)

        start, count = start.astype(np.int32), self.count.astype(np.int32)
        sums = self._program("personal", build)(algorithm, server, states, data, self.seed, every, at, start, count)
        return {name: np.asarray(value, np.float64)[: len(who)] for name, value in sums.items()}

    def _sums(self, params: Any, arrays: Any, start: Any, count: Any, block: int) -> dict[str, jax.Array]:
        """The sums of each metric over one client's rows."""
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


class _Merge:
    """Statistics of clients, one after the other: each one's value, and all of them together."""

    def __init__(self, metric: Metric, keep: bool = False) -> None:
        self.metric, self.keep, self.values = metric, keep, list[float]()
        self.statistics: list[Floats | None] = []
        self.total: Floats | None = None

    def add(self, records: Floats, times: int = 1) -> None:
        """A client's records, or those of several clients with the same rows."""
        metric = self.metric
        found = metric.statistic_of(records) if len(records) else None
        self.values.append(np.nan if found is None else metric.finished(found))
        if self.keep:
            self.statistics.append(found)
        for _ in range(times if found is not None else 0):
            self.total = found if self.total is None else metric.merge(self.total, found)

    def measurement(self, count: Any, which: Any) -> Measurement:
        """What was found; `which` says whose values those of each client are."""
        whole = np.nan if self.total is None else self.metric.finished(self.total)
        kept = tuple(s for i in which if (s := self.statistics[i]) is not None) if self.keep else ()
        return Measurement(np.asarray(self.values)[which], count.astype(np.float64), whole, kept)


def _by_row(values: Floats) -> Floats:
    """Blocks of rows as rows: [blocks, rows] as [rows], [blocks, rows, numbers] as [rows, numbers]."""
    return values.reshape(-1, *values.shape[2:])
