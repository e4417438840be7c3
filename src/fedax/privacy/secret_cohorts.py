"""Cohorts that nobody can foresee: drawn by a secret that the server alone has, and keeps for when it goes on."""

from __future__ import annotations

import hmac
from collections.abc import Collection


def secret_draw(secret: bytes, round: int, cohort: int, present: Collection[int]) -> list[int]:
    """`cohort` of the clients that are present: those with the smallest keyed hashes of client and round.

    >>> drawn = secret_draw(b"s" * 32, 3, 4, range(10))
    >>> drawn == secret_draw(b"s" * 32, 3, 4, range(10)), drawn == secret_draw(b"t" * 32, 3, 4, range(10))
    (True, False)
    """

    def rank(client: int) -> bytes:
        return hmac.digest(secret, f"{round} {client}".encode(), "sha256")

    return sorted(sorted(present, key=rank)[:cohort])
