"""A client's state on its own disk: control variates, duals, its own model. It never leaves the client.

A round may end without a client's upload: the answer was lost, came too late, or the server fell. So the client does
not know whether the state that it made counts until the server says so, and it keeps versions, each named by the round
after which it holds (0 is the first state, which is never written). Each order names the version that the server's own
state goes with; the client works from that one, writes the new version beside it, and only then answers. A version that
the server never names was never used, and is dropped. The version before the named one stays too, for a server whose
newest checkpoint is damaged.

The versions are one file, sealed by a checksum and written whole or not at all, and a copy of it. Nobody else on the
machine may read them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import save

from fedax.engine.checkpoint import opened, sealed
from fedax.errors import FedaxError
from fedax.flower.private_files import make_private, write_private
from fedax.flower.safe_log import log

NAMES = ("state.bin", "state.copy")


class ClientState:
    """The versions of one client's state in one run.

    first: the state before any round, a tree of arrays.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> state = ClientState(folder, {"c": np.zeros(2, np.float32)})
    >>> state.add({"c": np.ones(2, np.float32)}, version=1, base=0, seen=(1, 0))
    >>> again = ClientState(folder, {"c": np.zeros(2, np.float32)})
    >>> again.at(1)["c"].tolist(), again.at(0)["c"].tolist(), again.at(7)
    ([1.0, 1.0], [0.0, 0.0], None)
    """

    def __init__(self, folder: Path, first: Any) -> None:
        self.folder, self.first = folder, first
        self.empty = not jax.tree.leaves(first)  #: the method keeps nothing on clients
        self.seen = (0, -1)  #: start and round of the newest order
        self.damaged = ""  #: what was found broken on disk, in words
        self._note: tuple[str, int] = ("", 0)  # for the server, and the version that went with it
        self._versions: dict[int, list[Any]] = {}
        if not self.empty:
            self._load()

    def at(self, version: int) -> Any | None:
        """The state after a round, or None if it is not here."""
        if version == 0 or self.empty:
            return self.first
        leaves = self._versions.get(version)
        return None if leaves is None else jax.tree.unflatten(jax.tree.structure(self.first), leaves)

    def note(self, found: str, *, version: int, used: int) -> str:
        """The sentence for the server's log that goes with this answer. It is sent again with every answer until the
        server has used one of them.

        found: a new sentence, or nothing; used: the version that the server's own state goes with.
        """
        if found:
            self._note = (found, version)
        elif used >= self._note[1]:
            self._note = ("", 0)
        return self._note[0]

    def add(self, state: Any, *, version: int, base: int, seen: tuple[int, int]) -> None:
        """Write the state that follows from version `base`; it counts once the server names it."""
        self.seen = seen
        if self.empty:
            return
        before = max((v for v in self._versions if v < base), default=None)
        kept = {v: leaves for v, leaves in self._versions.items() if v in (before, base)}
        self._versions = {**kept, version: [np.asarray(leaf) for leaf in jax.tree.leaves(state)]}
        arrays = {f"{v}.{i}": leaf for v, leaves in self._versions.items() for i, leaf in enumerate(leaves)}
        about = json.dumps({"versions": sorted(self._versions), "seen": list(seen), "note": list(self._note)})
        content = sealed(save({k: np.asarray(a, order="C") for k, a in arrays.items()}, {"about": about}))
        try:
            make_private(self.folder)
            self.folder.chmod(0o700)  # one of an earlier version was open
            for name in NAMES:
                write_private(self.folder / name, content)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise FedaxError(f"the client's state cannot be written to {self.folder}: {why}") from error

    def _load(self) -> None:
        for name in NAMES:
            path = self.folder / name
            if not path.is_file():
                continue
            try:
                arrays, about = opened(path)
                count = len(jax.tree.leaves(self.first))
                self._versions = {v: [arrays[f"{v}.{i}"] for i in range(count)] for v in about["versions"]}
                self.seen = (about["seen"][0], about["seen"][1])
                said, version = about.get("note", ("", 0))
                self._note = (str(said), int(version))
                return
            except (FedaxError, OSError, ValueError, KeyError) as error:
                self.damaged = f"{path} is damaged and left out: {error}"
                log.warning(self.damaged)
