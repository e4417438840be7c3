"""Checkpoints: what a run needs to go on to the same bits, written whole or not at all, the last two kept.

A checkpoint is one file: a SHA-256 of the rest, then a safetensors file with the server's state, the table of slots
of clients' states (the rows themselves are in `states.bin`, see store.py), the history, the counters and the best
validation round. Draws need nothing: each is a function of (seed, purpose, round, client).
"""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from safetensors.numpy import load, save

import fedax
from fedax.errors import FedaxError
from fedax.evaluation import Measurement
from fedax.simulation.moments import Snapshot
from fedax.simulation.result import write_whole
from fedax.simulation.store import NONE, FileSlots, Index, Packing, Store

if TYPE_CHECKING:
    from fedax.simulation.run import Simulation

log = logging.getLogger("fedax")
KEPT = 2
STATES = "states.bin"


class Checkpoints:
    """The checkpoints of one run, in a directory of its own."""

    def __init__(self, run: Simulation, folder: Path, every: float) -> None:
        self.run, self.folder, self.every = run, folder, every
        self._last = time.monotonic()
        self._tables: list[Index] = []  # of the checkpoints kept, the newest last
        self._since = 0  # clients that took part from this round on have rows that are not in the file yet
        packing = Packing(run.algorithm.client_init(run.x0))
        self._file = run.store if run.store is not None and isinstance(run.store.slots, FileSlots) else None
        self._rows = self._file or Store(packing, run.plan.clients, FileSlots(folder / STATES, packing.size))

    def due(self) -> bool:
        """Whether it is time for another."""
        return time.monotonic() - self._last >= self.every

    def save(self) -> None:
        """Write a checkpoint of the run as it is now, between two rounds."""
        run = self.run
        try:
            self._copy_rows()
            name = self.folder / f"round-{run.state.round:08d}.ckpt"
            write_whole(name, _sealed(self._content()))
        except OSError as error:
            kept = self._names()
            good = f"the last good one is of round {_round(kept[-1])}" if kept else "there is none yet"
            why = (error.strerror or str(error)).lower()
            raise FedaxError(f"the checkpoint of round {run.state.round} cannot be written: {why}; {good}") from error
        self._tables = [*self._tables, self._rows.table.copy()][-KEPT:]
        self._rows.keep(self._tables)
        for old in self._names()[:-KEPT]:
            old.unlink(missing_ok=True)
        self._last = time.monotonic()

    def _copy_rows(self) -> None:
        """Write the states of clients that took part since the last checkpoint to the file, unless they are there."""
        run = self.run
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._rows.packing.size:
            if self._file is None and run.state.round > self._since:
                rounds = range(self._since, run.state.round, run.engine.segment)
                who = [run.engine.cohorts(r, run.engine.segment)[: run.state.round - r] for r in rounds]
                for part in np.array_split(np.unique(np.concatenate(who)), 1 + run.plan.clients // 4096):
                    if len(part):
                        self._rows.put(part, jax.device_get(run.state.take(part)))
            slots = self._rows.slots
            if isinstance(slots, FileSlots) and slots.path.exists():
                slots.flush()
        self._since = run.state.round

    def _content(self) -> bytes:
        run, best = self.run, self.run.watch.best
        arrays = {f"server.{i}": leaf for i, leaf in enumerate(_leaves(run.state.server))}
        arrays |= {"table": self._rows.table, "joined": run.joined}
        about: dict[str, Any] = {
            "round": run.state.round,
            "signs": None if run.state.signs is None else np.asarray(run.state.signs, np.float64).tolist(),
            "rows": self._rows.checksum(),
            "history": list(run.history),
            "seconds": run.seconds,
            "counters": [run.gradients, run.floats_up, run.floats_down],
            "fingerprint": run.fingerprint,
        }
        if best is not None:
            arrays |= {f"best.{i}": leaf for i, leaf in enumerate(_leaves(best.server))}
            about["best"] = {"round": best.round, "score": run.watch.score, "metrics": {}}
            for part, metrics in best.metrics.items():
                about["best"]["metrics"][part] = list(metrics)
                for name, measured in metrics.items():
                    arrays[f"metric.{part}.{name}.values"] = measured.values
                    arrays[f"metric.{part}.{name}.rows"] = measured.rows
        return save({k: np.ascontiguousarray(a) for k, a in arrays.items()}, {"about": json.dumps(about)})

    def load(self) -> bool:
        """Put the run where the newest sound checkpoint has it; False if there is none."""
        for name in reversed(self._names()):
            try:
                arrays, about = _opened(name)
                self._restore(arrays, about)
            except (FedaxError, OSError, ValueError, KeyError) as error:
                if isinstance(error, Differs):
                    raise
                log.warning("%s is damaged and left out: %s", name.name, error)
                name.unlink(missing_ok=True)
                continue
            self._tables = [*self._others(name), self._rows.table.copy()]
            self._rows.keep(self._tables)
            self._since, self._last = self.run.state.round, time.monotonic()
            return True
        self._rows.table = np.full(self.run.plan.clients, NONE, np.int64)
        self._rows.keep([])
        return False

    def _others(self, name: Path) -> list[Index]:
        tables = []
        for other in self._names():
            if other != name:
                try:
                    tables.append(_opened(other)[0]["table"])
                except (FedaxError, OSError, ValueError, KeyError):
                    other.unlink(missing_ok=True)
        return tables

    def _restore(self, arrays: dict[str, Any], about: dict[str, Any]) -> None:
        run = self.run
        _compare(about["fingerprint"], run.fingerprint)
        self._rows.table = arrays["table"]
        if self._rows.checksum() != about["rows"]:
            raise FedaxError("clients' states are not those of this checkpoint")
        server = run.engine.place(_unflatten("server", arrays, run.state.server))
        run.resume(server, self._rows, about, arrays["joined"])
        if "best" in about:
            best = about["best"]
            metrics = {
                part: {
                    n: Measurement(arrays[f"metric.{part}.{n}.values"], arrays[f"metric.{part}.{n}.rows"])
                    for n in names
                }
                for part, names in best["metrics"].items()
            }
            again = run.engine.place(_unflatten("best", arrays, run.state.server))
            run.watch.best, run.watch.score = Snapshot(best["round"], again, metrics), best["score"]

    def clear(self) -> None:
        """Remove all checkpoints: the run is over and saved."""
        for name in [*self._names(), self.folder / STATES]:
            name.unlink(missing_ok=True)
        if self.folder.exists() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _names(self) -> list[Path]:
        return sorted(self.folder.glob("round-*.ckpt"))


class Differs(FedaxError):
    """A checkpoint of another experiment."""


def fingerprint(run: Simulation) -> dict[str, str]:
    """What must be the same for a run to go on."""
    method = type(run.algorithm)
    arrays = run.federation.arrays
    data = [zlib.crc32(np.ascontiguousarray(arrays[key]).data) for key in sorted(arrays)]
    ranges = [zlib.crc32(run.federation.part(p).count.tobytes()) for p in ("train", "validation", "test")]
    return {
        "algorithm": repr(run.algorithm),
        "version of the method": _source(method),
        "seed": str(run.seed),
        "rounds": str(run.rounds),
        "eval_every": str(run.eval_every),
        "schedule": repr(run.plan),
        "executor": repr(run.executor),
        "data": f"{sorted(arrays)} {data} {ranges}",
        "model": repr([(leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(run.x0)]),
        "loss": run.problem.name,
        "regularizer": repr(run.problem.regularizer),
        "augment": getattr(run.problem.augment, "__name__", str(run.problem.augment)),
        "evaluated": str(list(run.meters)),
        "unseen": str(run.unseen.tolist()),
        "fedax": fedax.__version__,
        "jax": jax.__version__,
    }


def _source(method: type) -> str:
    try:
        return hashlib.sha256(inspect.getsource(method).encode()).hexdigest()[:16]
    except (OSError, TypeError):  # typed into a console
        return "unknown"


def _compare(saved: dict[str, str], now: dict[str, str]) -> None:
    apart = [key for key in now if saved.get(key) != now[key]]
    if apart:
        shown = "; ".join(f"{key} was {saved.get(key)} and is {now[key]}" for key in apart)
        raise Differs(f"the run cannot go on under another experiment: {shown}")


def _leaves(tree: Any) -> list[Any]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.device_get(tree))]


def _unflatten(prefix: str, arrays: dict[str, Any], like: Any) -> Any:
    leaves, tree = jax.tree.flatten(like)
    return jax.tree.unflatten(tree, [arrays[f"{prefix}.{i}"] for i in range(len(leaves))])


def _sealed(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode() + content


def _opened(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    raw = path.read_bytes()
    if hashlib.sha256(raw[64:]).hexdigest().encode() != raw[:64]:
        raise FedaxError("its content does not match its checksum")
    size = int.from_bytes(raw[64:72], "little")
    about: dict[str, Any] = json.loads(json.loads(raw[72 : 72 + size])["__metadata__"]["about"])
    return load(raw[64:]), about


def _round(path: Path) -> int:
    return int(path.stem.removeprefix("round-"))
