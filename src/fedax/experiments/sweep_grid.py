"""The settings of one method with one seed: which are done, and how the others are run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fedax.engine import Result
from fedax.engine.state import Metrics
from fedax.engine.sweeps import Settings
from fedax.experiments.building import options
from fedax.experiments.file_tables import AlgorithmTable
from fedax.experiments.judging import Judge
from fedax.experiments.schema import Experiment
from fedax.experiments.trials import TriedSetting, recall_trial
from fedax.problem import Problem


class Grid:
    """One method's settings with one seed: those that are done, and how the others are run."""

    def __init__(
        self,
        experiment: Experiment,
        table: AlgorithmTable,
        seed: int,
        on: tuple[Problem, Any],
        judge: Judge,
        folder: Path,
    ) -> None:
        """on: the problem and the federation; folder: where settings are kept, a directory of its number for each."""
        assert experiment.sweep is not None
        self.judge, self.label, self.seed, self.folder = judge, str(table.label), seed, folder
        self.values, methods = zip(*experiment.sweep.settings(table), strict=True)
        self.settings: Any = Settings(*on, methods, mode=experiment.sweep.mode, **options(experiment, seed))
        self.mode = self.settings.mode
        self.every = experiment.checkpoint_every
        same = self.settings.fingerprint()
        self.fingerprints = [{**same, "algorithm": repr(method)} for method in methods]
        self.trials: dict[int, TriedSetting] = {}
        for number, setting in enumerate(self.values):
            found = recall_trial(
                self.folder / f"{number:04d}", self.label, seed, setting, self.fingerprints[number], self.judge
            )
            if found is not None:
                self.trials[number] = found

    @property
    def done(self) -> bool:
        """Whether all settings are done."""
        return len(self.trials) == len(self.values)

    def run(self, advance: Callable[[int], None]) -> Iterator[list[TriedSetting]]:
        """Run what is left, block by block, and yield the settings of each that were not done before."""
        for block in self.settings.blocks:
            if all(number in self.trials for number in block):
                continue
            new: list[TriedSetting] = []

            def keep(number: int, result: Result, metrics: Metrics, new: list[TriedSetting] = new) -> None:
                if number not in self.trials:
                    setting = self.values[number]
                    self.trials[number] = TriedSetting.of(self.label, self.seed, setting, result, metrics, self.judge)
                    self.trials[number].save(self.folder / f"{number:04d}", self.fingerprints[number])
                    new.append(self.trials[number])

            self.settings.run(block, keep=keep, say=advance, folder=self.folder, every=self.every)
            yield new

    @property
    def best(self) -> TriedSetting | None:
        """The best setting so far; None if all diverged."""
        whole = [trial for trial in self.trials.values() if not math.isnan(trial.score)]
        return min(whole, key=lambda trial: self.judge.order([trial.score], [trial.reached]), default=None)
