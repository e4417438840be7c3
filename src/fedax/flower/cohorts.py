"""Who takes part in a round over a network: a cohort is drawn from the connected clients that are available, and some
of its clients may leave before the round ends."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedax.client.availability import Presence
from fedax.flower.agreement import Setting
from fedax.flower.sampling import draw
from fedax.flower.secure_aggregation import FEWEST
from fedax.privacy.secret_cohorts import secret_draw


class Cohorts:
    """The cohorts of a run.

    secret: a function that gives the server's own secret, for secret cohorts.
    """

    def __init__(self, setting: Setting, secret: Callable[[], bytes]) -> None:
        assert setting.clients is not None
        self._setting, self._secret, self._clients = setting, secret, setting.clients
        asked = setting.availability
        self._presence: Presence | None = None
        if asked is not None and asked.sometimes:
            asked.check(setting.clients)
            self._presence = Presence(asked, setting.seed, setting.clients)

    def pool(self, round: int, connected: set[int]) -> set[int]:
        """The connected clients that are available in a round, by the experiment's [availability]."""
        if self._presence is None:
            return connected
        return connected & set(np.flatnonzero(self._presence.there(round)).tolist())

    def draw(self, round: int, pool: set[int]) -> list[int]:
        """The round's cohort; a secret cohort is drawn with the server's own secret."""
        setting, cohort = self._setting, self._setting.cohort
        assert cohort is not None
        if setting.privacy is not None and setting.privacy.cohorts == "secret":
            return secret_draw(self._secret(), round, cohort, pool)
        return draw(setting.seed, round, self._clients, cohort, pool)

    def staying(self, round: int, cohort: list[int], answers: int) -> tuple[list[int], int]:
        """The clients of a cohort that stay to the end of a round, and how many of them must answer.

        answers: how many must answer if nobody leaves.
        """
        if self._presence is None:
            return cohort, answers
        stays = self._presence.stays(round)
        staying = [client for client in cohort if stays[client]]
        fewest = (self._setting.cohort or 0) if self._setting.algorithm.needs_all else 0
        if len(staying) < max(fewest, 0 if self._setting.secure is None else FEWEST):
            staying = []
        return staying, min(answers, len(staying))
