"""A short run on training rows: the losses of a theorem's rates, and those of a few multiples of the method's own rate.

A theorem's rate is safe for every problem with its constants, and often far below what this problem takes. So both are
tried: the theorem's settings, and the method as it is asked for at multiples of its rate (`RATE`, what tuning tries).
Only training rows are looked at, and only part of the rounds are run, which favours large rates: the sentence says so.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from fedax.algorithms import Algorithm
from fedax.algorithms.base import RATE
from fedax.engine.sweeps import sweep
from fedax.schedules import Schedule, schedule

SHARE, LEAST = 5, 10  # a trial runs a fifth of the rounds, but at least ten if there are ten
CLOSE = 1.05  # a loss that is at most 1.05 times the best counts as equally good


@dataclasses.dataclass(frozen=True)
class Trial:
    """What a short run found: rounds, the two training losses (infinite where it diverged), and what is taken.

    factor: the best multiple of the rate asked for, and `found` that rate, of a schedule the first.
    theorem: whether the theorem's settings are taken.
    """

    rounds: int
    by_theorem: float
    by_found: float
    factor: float
    found: float
    theorem: bool

    @property
    def why(self) -> str:
        """The choice with its reason, in a sentence."""
        losses = f"training loss {_loss(self.by_theorem)} by the theorem, {_loss(self.by_found)} with lr = {self.words}"
        if self.theorem:
            return f"the theorem's settings are taken: after {self.rounds} rounds, {losses}"
        return f"lr = {self.words} is taken: after {self.rounds} rounds, {losses}"

    @property
    def words(self) -> str:
        """The rate that was found."""
        return f"{self.found:.3g}"


def trial(
    problem: Any, federation: Any, asked: Algorithm, settings: Mapping[str, Any], rounds: int, **options: Any
) -> Trial:
    """Run a method with a theorem's settings and with multiples of its own rate, and say which to take.

    options: how it is simulated, as `simulate` takes them.

    >>> import jax.numpy as jnp, numpy as np, fedax
    >>> mean = fedax.Problem(loss=lambda w, b: jnp.mean((b["x"] - w) ** 2) / 2, init=lambda key: jnp.zeros(()))
    >>> clients = fedax.Federation.from_clients([{"x": np.float32([1, 2, 3])}, {"x": np.float32([2])}])
    >>> made = trial(mean, clients, fedax.FedAvg(lr=0.1), {"lr": 0.001}, rounds=50)
    >>> made.theorem, made.words, made.rounds
    (False, '1', 10)
    """
    short = min(rounds, max(LEAST, rounds // SHARE))
    how = {**options, "rounds": short, "eval_every": short, "eval_on": ["train"], "protocol": False}
    given: Any = asked
    own = [dataclasses.replace(given, lr=_times(given.lr, factor)) for factor in RATE.factors]
    losses = [_train_loss(result) for result in sweep(problem, federation, own, **how)]
    best = min(range(len(own)), key=lambda n: losses[n])
    made = {name: schedule(**value) if isinstance(value, Mapping) else value for name, value in settings.items()}
    (stated,) = sweep(problem, federation, [dataclasses.replace(given, **made)], **how)
    by_theorem = _train_loss(stated)
    taken = by_theorem <= CLOSE * losses[best]
    rate = own[best].lr
    first = rate.initial if isinstance(rate, Schedule) else rate
    return Trial(short, by_theorem, losses[best], RATE.factors[best], float(first), taken)


def _times(lr: Any, factor: float) -> Any:
    if isinstance(lr, Schedule):
        return dataclasses.replace(lr, initial=_times(lr.initial, factor))
    return float(f"{lr * factor:.12g}")  # 0.9, and not 0.8999999999999999


def _train_loss(result: Any) -> float:
    """What is minimised, at the last round; of clients' own models where there are any. Infinite if it diverged."""
    if "diverged" in result.info:
        return math.inf
    last = result.history[-1]
    names = ("personal_train_objective", "personal_train_loss", "train_objective", "train_loss")
    value = next(last[name] for name in names if name in last)
    return value if math.isfinite(value) else math.inf


def _loss(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "none, for it diverged,"
