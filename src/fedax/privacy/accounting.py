"""The guarantee of clipping and Gaussian noise, as (epsilon, delta), by the accountant of the package dp-accounting.

Two federations are neighbours if one client is replaced by another, for the noise on uploads; or if one row of a client
is replaced by another, for the noise on gradients. Replacing moves a sum of clipped vectors by up to twice the bound S,
so noise of z S is a Gaussian mechanism of multiplier z / 2. Both are counted in Renyi differential privacy.

- "known" cohorts, the default: everybody knows the seed, and with it who takes part when. The client that took part
  most often decides, and sampling does not amplify privacy.
- "secret" cohorts: of a fixed size, drawn without replacement from randomness that only the server has. Wang, Balle and
  Kasiviswanathan (2019), Theorem 9. It holds against those who see the models and do not see who took part.
"""

from __future__ import annotations

import dataclasses
import math
from importlib.util import find_spec
from typing import Any, Literal

from fedax.errors import FedaxError

Cohorts = Literal["known", "secret"]
ORDERS: tuple[float, ...] = (*range(2, 65), *range(68, 257, 4), *range(272, 1025, 16))


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """The settings of a guarantee by noise on the mean of uploads.

    noise: the multiplier z. delta: of (epsilon, delta). cohorts: "known" or "secret".
    """

    noise: float
    delta: float
    cohorts: Cohorts = "known"

    def epsilon(self, *, uploads: int, rounds: int, cohort: int, clients: int) -> float:
        """The epsilon so far; infinite without noise.

        uploads: how many the client that took part most often has sent. clients: the smallest number that a cohort was
        drawn from.

        >>> asked = Guarantee(noise=4.0, delta=1e-5)
        >>> 11 < asked.epsilon(uploads=20, rounds=200, cohort=50, clients=1000) < 13
        True
        """
        if not self.noise:
            return math.inf
        if self.cohorts == "known":
            return known_epsilon(self.noise, self.delta, uploads)
        return secret_epsilon(self.noise, self.delta, rounds, min(cohort, clients), clients)


def known_epsilon(noise: float, delta: float, times: int) -> float:
    """The epsilon of a client, or of a row, that was part of this number of noisy sums.

    >>> known_epsilon(8.0, 1e-5, 0)
    0.0
    """
    accounting = load()
    return _spent(accounting.GaussianDpEvent(noise / 2), times, delta)


def secret_epsilon(noise: float, delta: float, rounds: int, cohort: int, clients: int) -> float:
    """The epsilon of a client after some rounds whose cohorts nobody but the server knows."""
    accounting = load()
    whole = accounting.GaussianDpEvent(noise / 2)
    some = accounting.SampledWithoutReplacementDpEvent(clients, cohort, whole)
    return _spent(whole if cohort == clients else some, rounds, delta)


def _spent(event: Any, times: int, delta: float) -> float:
    if times == 0:
        return 0.0
    accounting = load()
    accountant = accounting.rdp.RdpAccountant(ORDERS, accounting.NeighboringRelation.REPLACE_ONE)
    return float(accountant.compose(event, times).get_epsilon(delta))


def load() -> Any:
    """The package that does the accounting; one sentence where it is missing."""
    if find_spec("dp_accounting") is None:
        raise FedaxError(
            "noise needs the package dp-accounting, which counts what it guarantees: pip install 'fedax[privacy]'"
        )
    import dp_accounting

    return dp_accounting
