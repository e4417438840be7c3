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
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load, save

from fedax.client import shares
from fedax.engine.fingerprint import Differs, compare, fingerprint
from fedax.engine.prepare import Prepared
from fedax.engine.state import RunState, Snapshot
from fedax.engine.store import NONE, FileSlots, Index, Packing, Store
from fedax.errors import FedaxError
from fedax.evaluation import Measurement
from fedax.runs.files import STATES, History, write_whole
from fedax.runtime import is_main_process

log = logging.getLogger("fedax")
KEPT = 2
SHARE = 0.05  # of a run's time at most, unless a checkpoint is asked for every few rounds


class Checkpoints:
    """The checkpoints of one run, in a directory of its own."""

    def __init__(self, run: Prepared, state: RunState, folder: Path, every: float) -> None:
        self.run, self.state, self.folder, self.every = run, state, folder, every
        self._last, self._took = time.monotonic(), 0.0
        self._tables: list[Index] = []  # of the checkpoints kept, the newest last
        self._since = 0  # clients that took part from this round on have rows that are not in the file yet
        packing = Packing(run.algorithm.client_init(run.x0))
        self._file = run.store if run.store is not None and isinstance(run.store.slots, FileSlots) else None
        if shares.is_divided(run.engine.mesh):
            self._file = None  # the rows of its own clients; those of checkpoints are all clients'
        self._rows = self._file or Store(packing, run.plan.clients, FileSlots(folder / STATES, packing.size))

    @functools.cached_property
    def fingerprint(self) -> dict[str, str]:
        """What identifies this run, from its `fedax.engine.fingerprint`."""
        return fingerprint(self.run)

    def due(self) -> bool:
        """Whether to write another checkpoint now; those that take long, of many large states, come less often."""
        wait = max(self.every, self._took / SHARE) if self.every else 0.0
        return time.monotonic() - self._last >= wait

    def save(self) -> None:
        """Write a checkpoint of the run as it is now, between two rounds."""
        state, began = self.state, time.monotonic()
        try:
            self._copy_rows()
            if not is_main_process():
                return
            name = self.folder / f"round-{state.round:08d}.ckpt"
            write_whole(name, sealed(self._content()))
        except OSError as error:
            kept = self._names()
            good = f"the last good one is of round {_round(kept[-1])}" if kept else "there is none yet"
            why = (error.strerror or str(error)).lower()
            raise FedaxError(f"the checkpoint of round {state.round} cannot be written: {why}; {good}") from error
        self._tables = [*self._tables, self._rows.table.copy()][-KEPT:]
        self._rows.keep(self._tables)
        for old in self._names()[:-KEPT]:
            old.unlink(missing_ok=True)
        self._last = time.monotonic()
        self._took = self._last - began

    def _copy_rows(self) -> None:
        """Write the states of clients that took part since the last checkpoint to the file, unless they are there."""
        run, state = self.run, self.state
        if is_main_process():
            self.folder.mkdir(parents=True, exist_ok=True)
        if self._rows.packing.size:
            if self._file is None and state.round > self._since:
                who = np.unique(run.engine.draws.cohorts(self._since, state.round))
                for part in np.array_split(who, 1 + run.plan.clients // 4096):
                    if not len(part):
                        continue
                    states = jax.device_get(run.engine.take(state.clients, part))  # by all processes together
                    if is_main_process():
                        self._rows.put(part, states)
            slots = self._rows.slots
            if is_main_process() and isinstance(slots, FileSlots) and slots.path.exists():
                slots.flush()
        self._since = state.round

    def _content(self) -> bytes:
        state, best = self.state, self.state.watch.best
        arrays = {f"server.{i}": leaf for i, leaf in enumerate(leaves(state.server))}
        arrays |= {"table": self._rows.table, "joined": state.joined}
        about: dict[str, Any] = {
            "round": state.round,
            "diagnostics": None if state.diagnostics is None else np.asarray(state.diagnostics, np.float64).tolist(),
            "rows": self._rows.checksum(),
            "history": list(state.history),
            "seconds": state.seconds,
            "counters": [state.gradients, state.floats_up, state.floats_down],
            "fingerprint": self.fingerprint,
        }
        if best is not None:
            arrays |= {f"best.{i}": leaf for i, leaf in enumerate(leaves(best.server))}
            about["best"] = {"round": best.round, "score": state.watch.score, "metrics": {}}
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
            self._since, self._last = self.state.round, time.monotonic()
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
        run, state = self.run, self.state
        compare(about["fingerprint"], self.fingerprint)
        self._rows.table = arrays["table"]
        if self._rows.checksum() != about["rows"]:
            raise FedaxError("clients' states are not those of this checkpoint")
        server = run.engine.place(unflatten("server", arrays, state.server))
        state.server, state.clients, state.round = jax.tree.map(jnp.copy, server), self._clients(), int(about["round"])
        state.diagnostics = None if about["diagnostics"] is None else np.float32(about["diagnostics"])
        state.history, state.joined, state.seconds = (
            History(about["history"]),
            arrays["joined"],
            float(about["seconds"]),
        )
        state.gradients, state.floats_up, state.floats_down = about["counters"]
        if "best" in about:
            best = about["best"]
            metrics = {
                part: {
                    n: Measurement(arrays[f"metric.{part}.{n}.values"], arrays[f"metric.{part}.{n}.rows"])
                    for n in names
                }
                for part, names in best["metrics"].items()
            }
            again = run.engine.place(unflatten("best", arrays, state.server))
            state.watch.best, state.watch.score = Snapshot(best["round"], again, metrics), best["score"]

    def _clients(self) -> Any:
        """Every client's state, unpacked from its row, put where the run keeps states."""
        run, state, rows = self.run, self.state, self._rows
        took = np.flatnonzero(rows.table >= 0)
        clients, mesh = state.clients, run.engine.mesh
        if isinstance(clients, Store):
            if clients is not rows:
                mine = took[np.isin(took % shares.processes(mesh), shares.held_here(mesh))]
                for part in np.array_split(mine, 1 + len(mine) // 4096):
                    clients.put(part, rows.take(part))
        elif shares.is_divided(mesh):
            clients = shares.divide(mesh, self._held_by)
        elif len(took):
            states = rows.take(took)
            clients = run.engine.place(jax.tree.map(lambda s, v: s.at[took].set(v), clients, states))
        return clients

    def _held_by(self, process: int) -> Any:
        """The part of the table of all clients' states that a process holds, unpacked from the rows."""
        run = self.run
        mine = np.arange(process, run.plan.clients, shares.processes(run.engine.mesh))
        room = shares.share(run.engine.mesh, run.plan.clients)
        return self._rows.take(np.resize(mine, room))

    def clear(self) -> None:
        """Remove all checkpoints: the run is over and saved."""
        store = self.run.store
        if store is not None and store is not self._file and isinstance(store.slots, FileSlots):
            store.slots.remove()
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
