"""What a server waits for: how many clients a round begins with, how many answers it needs, and how long."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fedax.errors import FedaxError
from fedax.flower.agreement import Setting

LONGEST = 10_000_000  # seconds of a round: four months


@dataclasses.dataclass(frozen=True)
class Quorum:
    """The numbers of clients and answers, and the seconds, that a server waits for.

    min_clients: connected clients that a round begins with; the cohort unless given.
    min_answers: answers that a round needs; half the cohort unless given, and the whole cohort for a method that needs
        all.
    round_timeout: seconds that clients have for a round.
    """

    min_clients: int
    min_answers: int
    round_timeout: float = 600.0

    @classmethod
    def of(cls, setting: Setting, config: Mapping[str, Any]) -> Quorum:
        """From Flower's run configuration.

        >>> import fedax, jax.numpy as jnp
        >>> loss = fedax.Problem(loss=lambda w, b: jnp.mean((b["x"] - w) ** 2), init=lambda key: jnp.zeros(()))
        >>> Quorum.of(Setting(loss, fedax.FedAvg(lr=0.5), rounds=1, clients=5), {"round-timeout": 60})
        Quorum(min_clients=5, min_answers=3, round_timeout=60.0)
        """
        cohort, clients = setting.cohort, setting.clients
        assert cohort is not None
        assert clients is not None
        begin = whole_number("min-clients", config.get("min-clients") or cohort, clients)
        need = whole_number("min-answers", config.get("min-answers") or (cohort + 1) // 2, cohort)
        limit = config.get("round-timeout") or 600.0
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit <= LONGEST:
            raise FedaxError(f"round-timeout is {limit!r}: it must be a number of seconds above 0, at most {LONGEST:,}")
        if setting.algorithm.needs_all:
            need = cohort
        return cls(max(begin, need), need, float(limit))


def whole_number(name: str, value: Any, most: int) -> int:
    """A whole number of the run configuration, from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise FedaxError(f"{name} is {value!r}: it must be a whole number from 1 to {most}")
    return value
