"""Checks of what sites send under secure aggregation, before Flower's workflow, which trusts it, sees it.

    setup                   two public keys, which nobody else has
    share_keys              a sealed share for each of the others
    collect_masked_vectors  a masked vector of the right length
    unmask                  shares of masks, each of a site of this round

A reply that does not have this form is left out, as if its site had not answered. A site without a good reply to the
first two has given no shares of its mask, so the sum could not be unmasked: `Absent` names it, and the others begin
again. What is inside a mask or a sealed share cannot be checked by anybody: a site that lies there spoils a round's
mean or makes it fail, and is not found.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from fedax.flower.safe_log import log

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.serverapp import Grid

CONFIGS, STAGE = "secaggplus_configs", "stage"
INDEX, BLOCK = 4, 16  # bytes of a share: its number, and of each of its blocks
HEADER = 1024  # bytes of an array's header, at most


class Absent(Exception):
    """Sites that the others must go on without."""

    def __init__(self, nodes: set[int]) -> None:
        self.nodes = nodes


class CheckedGrid:
    """A grid whose replies have been checked.

    length: the entries of a masked vector. round: shown in the log.
    """

    def __init__(self, grid: Grid, length: int, round: int) -> None:
        self._grid, self._length, self._round = grid, length, round
        self._keys: set[bytes] = set()
        self._members: set[int] = set()

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """The good replies."""
        asked = list(messages)
        nodes = {message.metadata.dst_node_id for message in asked}
        stage = str(asked[0].content[CONFIGS][STAGE]) if asked else ""
        self._members |= nodes
        replies = self._grid.send_and_receive(asked, timeout=timeout)
        good = [reply for reply in replies if not reply.has_error() and self._is_good(stage, reply, nodes)]
        absent = nodes - {reply.metadata.src_node_id for reply in good}
        if absent and stage in ("setup", "share_keys"):
            raise Absent(absent)
        return good

    def _is_good(self, stage: str, reply: Message, nodes: set[int]) -> bool:
        node = reply.metadata.src_node_id
        try:
            _need(node in nodes, "it was not asked")
            said = reply.content[CONFIGS]
            if stage == "setup":
                self._check_keys(said)
            elif stage == "share_keys":
                _check_sealed(said, nodes - {node})
            elif stage == "collect_masked_vectors":
                _check_masked(said, reply.content, self._length)
            else:
                _check_shares(said, self._members)
        except Exception as error:  # whatever it sent
            log.warning("round %d: the message of node %d in %s is left out: %s", self._round, node, stage, error)
            return False
        return True

    def _check_keys(self, said: Any) -> None:
        from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, EllipticCurvePublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        keys = [said["pk1"], said["pk2"]]
        for key in map(load_pem_public_key, keys):
            good = isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP384R1)
            _need(good, "a key is not on the curve P-384")
        _need(keys[0] != keys[1] and not self._keys & set(keys), "a key is there twice")
        self._keys |= set(keys)


def _check_sealed(said: Any, others: set[int]) -> None:
    to, sealed = said["dsts"], said["ctxts"]
    _need(sorted(to) == sorted(others), "its shares are not for each of the others")
    _need(len(sealed) == len(to) and all(isinstance(text, bytes) for text in sealed), "shares are missing")


def _check_masked(said: Any, content: Any, length: int) -> None:
    from flwr.compat.common.recorddict_compat import recorddict_to_fitres

    arrays = said["masked_params"]
    _need(len(arrays) == 2, "it must be a weight and a vector")
    for array, size in zip(arrays, (1, length), strict=True):
        _need(len(array) <= 8 * size + HEADER, "it has too many bytes")
        _need(np.lib.format.read_magic(file := io.BytesIO(array)) == (1, 0), "it is no array")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        _need(shape == (size,) and dtype == np.int64, f"it has {dtype}{list(shape)} in place of int64[{size}]")
        _need(len(array) - file.tell() == 8 * size, "it has another number of bytes than it says")
    recorddict_to_fitres(content, True)


def _check_shares(said: Any, members: set[int]) -> None:
    owners, shares = said["nids"], said["shares"]
    _need(len(set(owners)) == len(owners) == len(shares) and members >= set(owners), "shares of other sites")
    for share in shares:
        _need(isinstance(share, bytes) and len(share) > INDEX and not (len(share) - INDEX) % BLOCK, "no share")
        _need(1 <= int.from_bytes(share[:INDEX], "little") <= len(members), "a share of nobody")


def _need(good: bool, why: str) -> None:
    if not good:
        raise ValueError(why)
