"""Checkpoints: what a run needs to go on to the same bits, written whole or not at all, the last two kept.

A checkpoint is one file: a SHA-256 of the rest, then a safetensors file with the server's state, the table of slots
of clients' states (the rows themselves are in `states.bin`, see store.py), the history, the counters and the best
validation round. Draws need nothing: each is a function of (seed, purpose, round, client).
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load, save

from fedax.engine.fingerprint import Differs, compare, fingerprint
from fedax.engine.rounds import State
from fedax.engine.snapshots import Snapshot
from fedax.engine.store import NONE, FileSlots, Index, Packing, Store
from fedax.errors import FedaxError
from fedax.evaluation import Measurement
from fedax.runs.files import History, write_whole
from fedax.runtime import is_main_process

if TYPE_CHECKING:
    from fedax.engine.loop import Simulation

log = logging.getLogger("fedax")
KEPT = 2
SHARE = 0.05  # of a run's time at most, unless a checkpoint is asked for every few rounds
STATES = "states.bin"


class Checkpoints:
    """The checkpoints of one run, in a directory of its own."""

    def __init__(self, run: Simulation, folder: Path, every: float) -> None:
        self.run, self.folder, self.every = run, folder, every
        self._last, self._took = time.monotonic(), 0.0
        self._tables: list[Index] = []  # of the checkpoints kept, the newest last
        self._since = 0  # clients that took part from this round on have rows that are not in the file yet
        packing = Packing(run.algorithm.client_init(run.x0))
        self._file = run.store if run.store is not None and isinstance(run.store.slots, FileSlots) else None
        if not is_main_process():
            self._file = None  # the rows of its own; those of checkpoints are read, not written
        self._rows = self._file or Store(packing, run.plan.clients, FileSlots(folder / STATES, packing.size))

    @functools.cached_property
    def fingerprint(self) -> dict[str, str]:
        """What makes this run the one it is."""
        return fingerprint(self.run)

    def due(self) -> bool:
        """Whether it is time for another: one that takes long, many large states on a slow disk, comes less often."""
        wait = max(self.every, self._took / SHARE) if self.every else 0.0
        return time.monotonic() - self._last >= wait

    def save(self) -> None:
        """Write a checkpoint of the run as it is now, between two rounds."""
        run, began = self.run, time.monotonic()
        try:
            self._copy_rows()
            if not is_main_process():
                return
            name = self.folder / f"round-{run.state.round:08d}.ckpt"
            write_whole(name, sealed(self._content()))
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
        self._took = self._last - began

    def _copy_rows(self) -> None:
        """Write the states of clients that took part since the last checkpoint to the file, unless they are there."""
        run = self.run
        if is_main_process():
            self.folder.mkdir(parents=True, exist_ok=True)
        if self._rows.packing.size:
            if self._file is None and run.state.round > self._since:
                rounds = range(self._since, run.state.round, run.engine.segment)
                who = [run.engine.cohorts(r, run.engine.segment)[: run.state.round - r] for r in rounds]
                for part in np.array_split(np.unique(np.concatenate(who)), 1 + run.plan.clients // 4096):
                    states = jax.device_get(run.state.take(part))  # by all processes together
                    if len(part) and is_main_process():
                        self._rows.put(part, states)
            slots = self._rows.slots
            if is_main_process() and isinstance(slots, FileSlots) and slots.path.exists():
                slots.flush()
        self._since = run.state.round

    def _content(self) -> bytes:
        run, best = self.run, self.run.watch.best
        arrays = {f"server.{i}": leaf for i, leaf in enumerate(leaves(run.state.server))}
        arrays |= {"table": self._rows.table, "joined": run.joined}
        about: dict[str, Any] = {
            "round": run.state.round,
            "diagnostics": None
            if run.state.diagnostics is None
            else np.asarray(run.state.diagnostics, np.float64).tolist(),
            "rows": self._rows.checksum(),
            "history": list(run.history),
            "seconds": run.seconds,
            "counters": [run.gradients, run.floats_up, run.floats_down],
            "fingerprint": self.fingerprint,
        }
        if best is not None:
            arrays |= {f"best.{i}": leaf for i, leaf in enumerate(leaves(best.server))}
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
                arrays, about = opened(name)
                self._restore(arrays, about)
            except (FedaxError, OSError, ValueError, KeyError) as error:
                if isinstance(error, Differs):
                    raise
                if is_main_process():
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
                    tables.append(opened(other)[0]["table"])
                except (FedaxError, OSError, ValueError, KeyError):
                    if is_main_process():
                        other.unlink(missing_ok=True)
        return tables

    def _restore(self, arrays: dict[str, Any], about: dict[str, Any]) -> None:
        run = self.run
        compare(about["fingerprint"], self.fingerprint)
        self._rows.table = arrays["table"]
        if self._rows.checksum() != about["rows"]:
            raise FedaxError("clients' states are not those of this checkpoint")
        server = run.engine.place(unflatten("server", arrays, run.state.server))
        run.state = State(
            jax.tree.map(jnp.copy, server),
            self._clients(),
            int(about["round"]),
            None if about["diagnostics"] is None else np.float32(about["diagnostics"]),
        )
        run.history, run.joined, run.seconds = History(about["history"]), arrays["joined"], float(about["seconds"])
        run.gradients, run.floats_up, run.floats_down = about["counters"]
        if "best" in about:
            best = about["best"]
            metrics = {
                part: {
                    n: Measurement(arrays[f"metric.{part}.{n}.values"], arrays[f"metric.{part}.{n}.rows"])
                    for n in names
                }
                for part, names in best["metrics"].items()
            }
            again = run.engine.place(unflatten("best", arrays, run.state.server))
            run.watch.best, run.watch.score = Snapshot(best["round"], again, metrics), best["score"]

    def _clients(self) -> Any:
        """Every client's state as the rows have it, where the run keeps them."""
        run, rows = self.run, self._rows
        took = np.flatnonzero(rows.table >= 0)
        clients = run.state.clients
        if isinstance(clients, Store):
            if clients is not rows:
                for part in np.array_split(took, 1 + len(took) // 4096):
                    clients.put(part, rows.take(part))
        elif len(took):
            states = rows.take(took)
            clients = run.engine.place(jax.tree.map(lambda s, v: s.at[took].set(v), clients, states))
        return clients

    def clear(self) -> None:
        """Remove all checkpoints: the run is over and saved."""
        if not is_main_process():
            return
        for name in [*self._names(), self.folder / STATES]:
            name.unlink(missing_ok=True)
        if self.folder.exists() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _names(self) -> list[Path]:
        return sorted(self.folder.glob("round-*.ckpt"))


def leaves(tree: Any) -> list[Any]:
    """A tree's arrays, on the host."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.device_get(tree))]


def unflatten(prefix: str, arrays: dict[str, Any], like: Any) -> Any:
    """The tree whose arrays have the names prefix.0, prefix.1 and so on."""
    found, tree = jax.tree.flatten(like)
    return jax.tree.unflatten(tree, [arrays[f"{prefix}.{i}"] for i in range(len(found))])


def sealed(content: bytes) -> bytes:
    """A safetensors file with its checksum before it."""
    return hashlib.sha256(content).hexdigest().encode() + content


def opened(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays of a sealed file and what it says about them; raises if it is not whole."""
    raw = path.read_bytes()
    if hashlib.sha256(raw[64:]).hexdigest().encode() != raw[:64]:
        raise FedaxError("its content does not match its checksum")
    size = int.from_bytes(raw[64:72], "little")
    about: dict[str, Any] = json.loads(json.loads(raw[72 : 72 + size])["__metadata__"]["about"])
    return load(raw[64:]), about


def _round(path: Path) -> int:
    return int(path.stem.removeprefix("round-"))
