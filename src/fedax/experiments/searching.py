"""Searching ranges with Optuna: a tree-structured Parzen estimator, seeded, whose trials are kept in a file."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedax.errors import FedaxError

END = 0.05  # share of a range at either end; a best value within it counts as at the end


def optuna() -> Any:
    """The package, which is the user's to install."""
    try:
        import optuna
    except ImportError:
        raise FedaxError("--tune optuna needs Optuna: pip install 'fedax[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class Search:
    """A study over the ranges that some values span; it goes on from its file.

    A range whose values are all above 0 and span a factor of ten or more is searched on a log scale.
    """

    def __init__(
        self, values: Mapping[str, Sequence[float]], path: Path, seed: int, goal: str, done: Sequence[Mapping[str, Any]]
    ) -> None:
        package = optuna()
        self._state = package.trial.TrialState
        self._ranges = {name: (min(of), max(of), logarithmic(of)) for name, of in values.items()}
        backend = package.storages.journal.JournalFileBackend(str(path))
        # a study that goes on has a new sampler: the same seed would ask for the same settings again
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sampler = package.samplers.TPESampler(seed=seed + len(done), multivariate=True)
            self._study = package.create_study(
                study_name="tuning",
                storage=package.storages.JournalStorage(backend),
                sampler=sampler,
                direction="maximize" if goal == "max" else "minimize",
                load_if_exists=True,
            )

    def ask(self) -> dict[str, float]:
        """The next setting to try."""
        self._trial = self._study.ask()
        return {
            name: float(self._trial.suggest_float(name, low, high, log=log))
            for name, (low, high, log) in self._ranges.items()
        }

    def tell(self, score: float | None) -> None:
        """Tell the study a setting's score; None where it diverged."""
        if score is None:
            self._study.tell(self._trial, state=self._state.PRUNED)  # worse than any that finished
        else:
            self._study.tell(self._trial, score)


def logarithmic(values: Sequence[float]) -> bool:
    """Whether a range goes over orders of magnitude.

    >>> logarithmic([0.01, 1.0]), logarithmic([0.25, 0.75])
    (True, False)
    """
    return min(values) > 0 and max(values) >= 10 * min(values)


def near_end(value: float, values: Sequence[float], *, searched: bool) -> bool:
    """Whether the best value is at an end of those that were tried.

    >>> near_end(0.1, [0.1, 1.0, 10.0], searched=False), near_end(1.0, [0.1, 1.0, 10.0], searched=False)
    (True, False)
    >>> near_end(9.9, [0.1, 10.0], searched=True)
    True
    """
    low, high = min(values), max(values)
    if not searched or low == high:
        return low < high and value in (low, high)
    if logarithmic(values):
        low, high, value = math.log(low), math.log(high), math.log(value)
    return not END <= (value - low) / (high - low) <= 1 - END
