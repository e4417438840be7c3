"""Which clients are there in a round, who drops out in the middle of it, and who is slow.

A client may be there with a probability in every round (`share`, or one for each client), by a schedule of rounds on
and off that starts somewhere else for each client, or by a Markov chain. All of it is a function of (seed, round).
The cohort is drawn from the clients that are there; if they are fewer than the cohort, all of them take part. A client
that drops out changes nothing: its upload is lost, and its state stays as it was. A slow client takes a share of the
local steps.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le, Lt
from numpy.typing import NDArray

from fedax.errors import FedaxError
from fedax.options import Count, check_options

_THERE, _PHASE, _DROPS, _SLOW = range(101, 105)  # purposes
Mask = NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class Availability:
    """When clients are there, and what they manage.

    share: the probability that a client is there in a round, in (0, 1]; or one for each client.
    on, off: or a schedule: a client is there for `on` rounds, then away for `off`; clients start at different points.
    leave, come: or a Markov chain: the probability that a client who is there leaves before the next round, and that
    one who is away comes back.
    drop_out: the probability that a client of the cohort is gone before it has answered, in [0, 1).
    slow: the share of clients that are slow, in [0, 1]; speed: the share of the local steps that they take, in (0, 1].

    >>> Availability(on=3)
    Traceback (most recent call last):
    fedax.errors.FedaxError: on and off go together: rounds that a client is there, and rounds that it is away
    """

    share: float | tuple[float, ...] | None = None
    on: Count | None = None
    off: Count | None = None
    leave: Annotated[float, Gt(0), Lt(1)] | None = None
    come: Annotated[float, Gt(0), Lt(1)] | None = None
    drop_out: Annotated[float, Ge(0), Lt(1)] = 0.0
    slow: Annotated[float, Ge(0), Le(1)] = 0.0
    speed: Annotated[float, Gt(0), Le(1)] = 0.5

    def __post_init__(self) -> None:
        several: Any = self.share
        if isinstance(several, list):
            object.__setattr__(self, "share", tuple(several))
        check_options(self)
        for share in self.shares:
            good = isinstance(share, int | float) and not isinstance(share, bool) and 0 < share <= 1
            if not good:
                raise FedaxError(f"share must be a number above 0 and at most 1, not {share!r}")
        if (self.on is None) != (self.off is None):
            raise FedaxError("on and off go together: rounds that a client is there, and rounds that it is away")
        if (self.leave is None) != (self.come is None):
            raise FedaxError("leave and come go together: the probabilities of a Markov chain")
        if sum(given is not None for given in (self.share, self.on, self.leave)) > 1:
            raise FedaxError("share, on and off, leave and come are three ways to be there: give one of them")

    @property
    def shares(self) -> tuple[Any, ...]:
        return self.share if isinstance(self.share, tuple) else () if self.share is None else (self.share,)

    @property
    def sometimes(self) -> bool:
        """Whether a place of a cohort may be empty."""
        return self.drop_out > 0 or any(given is not None for given in (self.share, self.on, self.leave))

    def check(self, clients: int) -> None:
        """Raise if `share` lists probabilities for another number of clients."""
        if isinstance(self.share, tuple) and len(self.share) != clients:
            raise FedaxError(f"share has {len(self.share)} probabilities and there are {clients} clients that train")

    def steps(self, seed: int, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Each client's local steps, at least one, where slow ones take fewer.

        >>> sorted(Availability(slow=0.5, speed=0.3).steps(0, np.array([10, 10, 10, 10])).tolist())
        [3, 3, 10, 10]
        """
        order = np.random.default_rng([seed, _SLOW]).permutation(len(steps))
        slow = np.isin(np.arange(len(steps)), order[: round(self.slow * len(steps))])
        fewer = np.maximum(1, np.ceil(self.speed * steps - 1e-9)).astype(np.int64)
        return np.where(slow, fewer, steps)


class Presence:
    """Who is there in each round of a run."""

    def __init__(self, asked: Availability, seed: int, clients: int, *, needs_all: bool = False) -> None:
        """needs_all: a round whose cohort is not complete is passed over."""
        self.asked, self.seed, self.clients, self.needs_all = asked, seed, clients, needs_all
        self._chain: tuple[int, Mask] | None = None  # the Markov chain's state in a round

    def there(self, round: int) -> Mask:
        """Whether each client is there when a round begins.

        >>> turns = Presence(Availability(on=2, off=3), 0, 4)
        >>> {sum(turns.there(r)[0] for r in range(first, first + 5)) for first in range(9)} == {2}
        True
        """
        asked = self.asked
        if asked.on is not None and asked.off is not None:
            phase = np.random.default_rng([self.seed, _PHASE]).integers(0, asked.on + asked.off, self.clients)
            return (round + phase) % (asked.on + asked.off) < asked.on
        if asked.leave is not None:
            return self._markov(round)
        if asked.share is None:
            return np.ones(self.clients, bool)
        return self._uniform(_THERE, round) < np.asarray(asked.share)

    def stays(self, round: int) -> Mask:
        """Whether each client would stay to the end of a round."""
        return self._uniform(_DROPS, round) >= self.asked.drop_out

    def _markov(self, round: int) -> Mask:
        leave, come = self.asked.leave, self.asked.come
        assert leave is not None
        assert come is not None
        if self._chain is None or self._chain[0] > round:  # it begins in its stationary distribution
            self._chain = 0, self._uniform(_PHASE, 0) < come / (come + leave)
        at, there = self._chain
        while at < round:
            at += 1
            drawn = self._uniform(_THERE, at)
            there = np.where(there, drawn >= leave, drawn < come)
        self._chain = at, there
        return there

    def _uniform(self, purpose: int, round: int) -> NDArray[np.float64]:
        return np.random.default_rng([self.seed, purpose, round]).random(self.clients)

    def drawn(self, round: int, order: NDArray[np.int32], cohort: int) -> NDArray[np.int32]:
        """The first `cohort` clients of an order that are there; ~c for one that drops out, ~0 at places left over."""
        there = self.there(round)
        found = order[there[order]][:cohort]
        found = np.where(self.stays(round)[found], found, ~found)
        if self.needs_all and (len(found) < cohort or (found < 0).any()):
            found = found[:0]
        return np.concatenate([found, np.full(cohort - len(found), ~0, np.int32)]).astype(np.int32)
