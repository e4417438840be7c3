"""How often each row took part in a noisy gradient, and the epsilon that follows.

Minibatches follow from the seed, which everybody may know, so sampling does not amplify privacy: the row that was used
most decides. A row that is k times in one sum moves it by up to 2 k C; in Renyi differential privacy this costs as much
as k^2 sums with the row once in each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedax.client.cost import Cost
from fedax.client.draws import Draws, minibatches_program
from fedax.client.plan import Plan
from fedax.privacy.accounting import known_epsilon
from fedax.problem.row_privacy import RowPrivacy


class RowAccount:
    """Counts the uses of every client's rows, up to the round that was last asked for."""

    def __init__(
        self,
        asked: RowPrivacy,
        plan: Plan,
        draws: Draws,
        rows: NDArray[np.int64],
        steps: NDArray[np.int64],
        cost: Cost,
    ) -> None:
        """rows, steps: of each client; cost: the gradients that the method takes in a step and in `finish`."""
        self._asked, self._plan, self._draws = asked, plan, draws
        self._rows, self._steps, self._cost = rows, steps, cost
        self._uses: dict[int, NDArray[np.int64]] = {}
        self._rounds = 0

    def epsilon(self, rounds: int) -> float:
        """The epsilon of the busiest row after some rounds."""
        return known_epsilon(self._asked.noise, self._asked.delta, self.uses(rounds))

    def uses(self, rounds: int) -> int:
        """The number of noisy sums that the busiest row was in; a sum that had it k times counts k^2 times."""
        if rounds < self._rounds:
            self._uses, self._rounds = {}, 0
        if rounds > self._rounds:
            cohorts = self._draws.cohorts(self._rounds, rounds)
            for round, cohort in enumerate(cohorts, self._rounds):
                self._count(round, cohort[cohort >= 0])
            self._rounds = rounds
        return max((int(uses.max()) for uses in self._uses.values()), default=0)

    def _count(self, round: int, clients: NDArray[np.int32]) -> None:
        if not len(clients):
            return
        step, finish = self._cost.step, self._cost.finish
        drawn: Any = None
        if self._plan.batch is not None and (step.minibatch or finish.minibatch):
            counts = self._rows[clients].astype(np.int32)
            drawn = np.asarray(minibatches_program(self._plan)(self._draws.seed, round, clients, counts))
        for place, client in enumerate(clients.tolist()):
            rows, steps = int(self._rows[client]), int(self._steps[client])
            uses = self._uses.setdefault(client, np.zeros(rows, np.int64))
            uses += steps * step.full + finish.full
            if drawn is not None:
                squares = times_in_batches(drawn[place, :steps], rows) ** 2
                uses += step.minibatch * squares.sum(0) + finish.minibatch * squares[-1]


def times_in_batches(batches: NDArray[np.int32], rows: int) -> NDArray[np.int64]:
    """How often each row is in each batch.

    >>> times_in_batches(np.array([[0, 1], [2, 2]], np.int32), rows=3).tolist()
    [[1, 1, 0], [0, 0, 2]]
    """
    steps = len(batches)
    places = np.arange(steps)[:, None] * rows + batches
    return np.bincount(places.ravel(), minlength=steps * rows).reshape(steps, rows)
