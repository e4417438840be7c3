"""Which site a client's number belongs to: the site that held it first; no site has two numbers.

A site is known by its key or by its proof. The key is what Flower authenticated its node with; without authentication a
node has a new key after each start. The proof is a keyed hash of the run's name by a secret that the site keeps beside
its states: only a site with the secret can compute it, and it is of no use in another run. The server keeps hashes of
both in `network.json`. A site that has lost its secret and has no key of its own comes back when its number is removed
there and the server is started again.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from pathlib import Path

from fedax.flower.private_files import make_private, write_private
from fedax.flower.safe_log import log


class Owners:
    """The sites that hold the numbers of one run.

    >>> owners = Owners()
    >>> owners.refusal(0, b"key of A", "")  # A holds 0 from now on
    >>> owners.refusal(0, b"key of B", "")
    'client 0 belongs to the site that had this number first'
    >>> owners.refusal(1, b"key of A", "")
    'its key belongs to client 0'
    """

    def __init__(self, saved: Mapping[str, list[str]] | None = None) -> None:
        self._marks = {int(number): set(marks) for number, marks in (saved or {}).items()}

    @property
    def saved(self) -> dict[str, list[str]]:
        """What `network.json` keeps."""
        return {str(number): sorted(marks) for number, marks in sorted(self._marks.items())}

    def refusal(self, client: int, key: bytes, proof: str) -> str | None:
        """Why a node may not have a number, or None if it may: then it is known by this key and proof, too."""
        given = {_mark(kind, value) for kind, value in (("key", key), ("proof", proof.encode())) if value}
        held = self._marks.setdefault(client, set())
        if held and not held & given:
            return f"client {client} belongs to the site that had this number first"
        for other, marks in self._marks.items():
            if other != client and marks & given:
                return f"its key belongs to client {other}"
        held |= given
        return None


def _mark(kind: str, value: bytes) -> str:
    return f"{kind}:{hashlib.sha256(value).hexdigest()}"


def prove(folder: Path, client: int, run: str) -> str:
    """A site's proof that it is the client it was before in a run; a site without a secret makes one."""
    path = folder / f"client-{client}.secret"
    try:
        if not path.exists():
            make_private(folder)
            write_private(path, secrets.token_bytes(32))
        secret = path.read_bytes()
    except OSError as error:
        log.warning("%s cannot be kept, so this site is known by its node's key alone: %s", path, error)
        return ""
    return hmac.digest(secret, f"{run} client {client}".encode(), "sha256").hex()
