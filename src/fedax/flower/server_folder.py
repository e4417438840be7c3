"""What the server leaves on disk: a run directory like a simulation's, and a checkpoint a round to go on from.

Beside what `fedax.runs.folder` lists there is `network.log`, who came, went, failed or was refused, and
`network.json`: the name under which clients keep their states, how often the server was started, and by which keys the
clients are known (`fedax.flower.owners`). There are no personal models: they stay with the clients.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import secrets
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import save

from fedax import report
from fedax.engine.checkpoint import KEPT, opened, sealed
from fedax.engine.result import Result
from fedax.errors import FedaxError
from fedax.flower.agreement import Setting, compare
from fedax.flower.messages import Hello
from fedax.flower.owners import Owners
from fedax.flower.private_files import write_private
from fedax.flower.safe_log import log
from fedax.runs.files import (
    CHECKPOINTS,
    CLIENTS,
    EXPERIMENT,
    HISTORY,
    STATUS,
    History,
    refuse_taken,
    slug,
    versions,
    write_json,
    write_whole,
)
from fedax.runs.folder import RunFolder, describe_clients

NETWORK, LOG, SECRET = "network.json", "network.log", "cohorts.secret"


class ServerFolder:
    """The directory of one run over a network."""

    def __init__(self, path: Path, setting: Setting) -> None:
        self.path, self.setting = path, setting
        self.checkpoints = path / CHECKPOINTS
        self._folder = RunFolder(path, setting.rounds, {})
        self.lost = 0  #: rounds whose checkpoints were damaged
        self.run, self.start = self._open()

    def _open(self) -> tuple[str, int]:
        """The run's name and how often it was started, this time included."""
        about = self._about()
        if about is None:
            refuse_taken(self.path)
            about = {"run": f"{slug(self.setting.name)[:80]}-{uuid.uuid4().hex[:12]}", "start": 0}
        elif (status := self._status()) in ("finished", "diverged"):
            raise FedaxError(f"out is {str(self.path)!r}: it holds a run that has {status}, choose another directory")
        self.owners = Owners(about.get("owners"))
        run, start = about["run"], int(about["start"]) + 1
        self._guarded(self._begin, run, start)
        return run, start

    def _begin(self, run: str, start: int) -> None:
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        write_json(self.path / NETWORK, {"run": run, "start": start, "owners": self.owners.saved})

    def _about(self) -> dict[str, Any] | None:
        try:
            about: dict[str, Any] = json.loads((self.path / NETWORK).read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise FedaxError(f"{self.path / NETWORK} cannot be read: {error}") from None
        return about

    def _status(self) -> str:
        try:
            return str(json.loads((self.path / STATUS).read_text())["status"])
        except (OSError, ValueError, KeyError):
            return "unknown"

    @contextlib.contextmanager
    def logged(self) -> Iterator[None]:
        """Write the network's log lines to the run's own log, too."""
        handler = logging.FileHandler(self.path / LOG)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
        level, log.level = log.level, logging.INFO
        try:
            yield
        finally:
            log.level = level
            log.removeHandler(handler)
            handler.close()

    def describe(self, clients: Mapping[int, Hello]) -> None:
        """Write what is known before the first round: the experiment, and who has how many rows."""
        setting = self.setting
        if setting.federation is not None:
            self._described = describe_clients(setting.federation)
        else:
            empty = (0, 0, 0)
            rows = [clients[n].rows if n in clients else empty for n in range(setting.clients or 0)]
            parts = {part: [row[i] for row in rows] for i, part in enumerate(("train", "validation", "test"))}
            names = [str(n) for n in range(setting.clients or 0)]
            self._described = {"names": names, "label_counts": None, "rows": parts, "zeta": None}
        content = {**setting.resolved, "executor": "flower", "fingerprint": setting.fingerprint, "versions": versions()}
        self._guarded(write_json, self.path / EXPERIMENT, content)

    def status(self, status: Any, round: int, message: str = "") -> None:
        """Say how far the run is; when it is over, write its report."""
        self._guarded(self._folder.status, status, round, message)
        if status in ("finished", "diverged"):
            try:
                report.write(self.path, [self.path])
            except FedaxError as error:  # the run has come to its end all the same
                log.warning(str(error))

    def evaluated(self, history: History, values: Mapping[str, Any]) -> None:
        """Write the metrics so far, and each client's last ones."""
        self._guarded(write_whole, self.path / HISTORY, history.lines())
        self._guarded(write_json, self.path / CLIENTS, {**self._described, "values": values})

    def save(self, server: Any, used: np.ndarray[Any, Any], about: Mapping[str, Any]) -> None:
        """Write the checkpoint after a round; the two newest are kept."""
        arrays = {f"server.{i}": np.asarray(leaf, order="C") for i, leaf in enumerate(jax.tree.leaves(server))}
        self._guarded(self._begin, self.run, self.start)  # whose numbers the clients' are
        whole = {**about, "fingerprint": self.setting.described}
        content = sealed(save({**arrays, "used": used}, {"about": json.dumps(whole)}))
        self._guarded(write_whole, self.checkpoints / f"round-{about['round']:08d}.ckpt", content)
        for old in self._names()[:-KEPT]:
            old.unlink(missing_ok=True)

    @functools.cached_property
    def secret(self) -> bytes:
        """The secret that secret cohorts are drawn with: kept so that the run can go on, removed when it is over."""
        path = self.path / SECRET
        if not path.exists():
            self._guarded(write_private, path, secrets.token_bytes(32))
        return path.read_bytes()

    def load(self, like: Any) -> tuple[Any, np.ndarray[Any, Any], dict[str, Any]] | None:
        """The newest sound checkpoint: the server's state, the rounds used of each client and the other counters."""
        for name in reversed(self._names()):
            try:
                arrays, about = opened(name)
                leaves, tree = jax.tree.flatten(like)
                server = jax.tree.unflatten(tree, [arrays[f"server.{i}"] for i in range(len(leaves))])
            except (FedaxError, OSError, ValueError, KeyError) as error:
                log.warning("%s is damaged and left out: %s", name.name, error)
                name.unlink(missing_ok=True)
                self.lost += 1
                continue
            if about["fingerprint"] != self.setting.described:
                apart = compare(self.setting.described, about["fingerprint"])
                raise FedaxError(f"the run in {self.path} cannot go on under another experiment: {apart}")
            return server, arrays["used"], about
        return None

    def finish(self, result: Result) -> None:
        """Write the model, and remove the checkpoints."""
        self._guarded(result.keep, self.path)
        for name in (*self._names(), self.path / SECRET):
            name.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.checkpoints.rmdir()

    def _names(self) -> list[Path]:
        return sorted(self.checkpoints.glob("round-*.ckpt"))

    def _guarded(self, write: Any, *arguments: Any) -> None:
        try:
            write(*arguments)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise FedaxError(f"out is {str(self.path)!r}, which cannot be written: {why}") from error
