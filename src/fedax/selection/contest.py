"""Successive halving: many settings of many methods get a small part of the budget, the better ones the rest.

stage 1     every setting of every method, a ninth of the rounds; each method keeps the better third of its settings
stage 2     a third of the rounds; each method keeps its best setting, and the better half of the methods go on
stage 3     all rounds, one setting a method; the best few are the finalists
final       the finalists with seeds of their own, and for the first time test rows beside validation rows

The yardstick, FedAvg or training alone, goes through all stages, so that the final says what the others add to it.

Every method has as many settings as any other. Every stage is judged on validation rows, by a seed that no final uses.
Of equal scores the one with the smaller validation loss is better, and a setting that diverges ranks behind all others.
Runs start over in each stage, because a schedule of rates must see the rounds that it is made for. Each attempt is
saved when it is done, so that the same search goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedax.algorithms import Algorithm
from fedax.engine.result import Result
from fedax.engine.sweeps import Settings, sweep
from fedax.errors import FedaxError
from fedax.experiments.events import Progress, Run
from fedax.experiments.interrupts import deferred
from fedax.report.columns import better
from fedax.runs.files import write_whole
from fedax.selection.candidates import Candidate, Numbers
from fedax.selection.clock import Clock

STAGES = (9, 3, 1)  # the divisors of the rounds
FINAL = len(STAGES) + 1


def going(stage: int, count: int, finalists: int) -> int:
    """How many of some methods go on after a stage, but for the yardstick."""
    if stage == 1:
        return count
    return min(count, finalists if stage == len(STAGES) else max(finalists, math.ceil(count / 2)))


def work(count: int, *, trials: int, finalists: int, seeds: int, batched: bool, stage: int = 1) -> tuple[int, float]:
    """The programs that a search of some methods compiles from a stage on, and how many whole runs its rounds come to.

    batched: whether settings are lanes of one program, of which there are always as many.

    >>> work(16, trials=9, finalists=4, seeds=5, batched=False)  # 16 + 16 + 8 + 20 runs
    (20, 60.0)
    """
    programs, runs = count if stage < FINAL else 0, 0.0
    for number, part in enumerate(STAGES, start=1):
        if number >= stage:
            runs += count * (trials if batched else math.ceil(trials / 3 ** (number - 1))) / part
            count = going(number, count, finalists)
    return programs + count, runs + count * seeds


@dataclasses.dataclass(frozen=True)
class Entrant:
    """A candidate, its rounds, and how it is simulated."""

    candidate: Candidate
    rounds: int
    how: Mapping[str, Any]

    @property
    def label(self) -> str:
        return self.candidate.label


@dataclasses.dataclass(frozen=True)
class Attempt:
    """A setting that was run: its stage, its score on validation rows, and its last row; None where it diverged."""

    label: str
    stage: int
    seed: int
    numbers: Numbers
    rounds: int
    score: float | None
    last: dict[str, Any]

    @property
    def about(self) -> tuple[Any, ...]:
        """The fields that identify the attempt."""
        return self.label, self.stage, self.seed, self.rounds, tuple(sorted(self.numbers.items()))


class Notes:
    """The attempts that are done, in a file if there is one; another search's file is refused."""

    def __init__(self, path: Path | None, asked: Mapping[str, Any]) -> None:
        self.path, self.asked = path, json.loads(json.dumps(asked, default=str))
        self.done: dict[tuple[Any, ...], Attempt] = {}
        if path is None or not path.exists():
            return
        try:
            first, *rest = (json.loads(line) for line in path.read_text().splitlines())
            was, attempts = first["asked"], [Attempt(**line) for line in rest]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FedaxError(f"{path} cannot be read: {error}") from None
        for name in sorted({*was, *self.asked}, key=lambda name: (name != "budget", name)):
            if was.get(name) != self.asked.get(name):
                raise FedaxError(f"{path} is of another search: {name} was {was.get(name)}, not {self.asked.get(name)}")
        self.done = {attempt.about: attempt for attempt in attempts}

    @staticmethod
    def gradients(path: Path | None, budget: str) -> float | None:
        """What a time limit came to when a search began; another measurement would be the start of another search."""
        try:
            asked = json.loads(path.read_text().partition("\n")[0])["asked"] if path is not None else {}
            return float(asked["gradients"]) if asked.get("budget") == budget else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def keep(self, attempts: Sequence[Attempt]) -> None:
        """Add attempts to the file, which is written whole or not at all."""
        self.done |= {attempt.about: attempt for attempt in attempts}
        if self.path is not None:
            lines = [{"asked": self.asked}, *(dataclasses.asdict(attempt) for attempt in self.done.values())]
            write_whole(self.path, "".join(json.dumps(line) + "\n" for line in lines).encode())


@dataclasses.dataclass(frozen=True)
class Outlook:
    """The outcome of a contest: every attempt, the finalists, and where the others were dropped."""

    attempts: list[Attempt]
    chosen: dict[str, Numbers]  #: each method's best setting when it was last seen, best method first
    dropped: dict[str, int]  #: the stage after which a method was dropped
    finalists: list[str]


class Contest:
    """The methods that take part, and what judges them."""

    def __init__(
        self,
        problem: Any,
        federation: Any,
        entrants: Sequence[Entrant],
        *,
        trials: int,
        seed: int,
        seeds: Sequence[int],
        finalists: int,
        notes: Notes,
        metric: str,
        yardstick: str,
        batched: bool,
        progress: Progress,
    ) -> None:
        self.on, self.entrants, self.notes, self.progress = (problem, federation), entrants, notes, progress
        self.trials, self.seed, self.seeds, self.most, self.metric = trials, seed, seeds, finalists, metric
        self.yardstick, self.batched = yardstick, batched
        self.sign = -1.0 if better(metric) == "max" else 1.0
        self.loss = f"{metric.rpartition('validation_')[0]}validation_loss"
        self.clock, self.compiled = Clock(0, 0), set[str]()

    def run(self) -> Outlook:
        """All stages and the final. Ctrl-C stops after a round, and raises `Stopped`."""
        with deferred(self.progress.stopping) as interrupt:
            return self._run(interrupt.check)

    def _run(self, pause: Callable[[], None]) -> Outlook:
        self.pause = pause
        self.progress.begin([], 0)
        playing = list(self.entrants)
        settings = {entrant.label: entrant.candidate.draw(self.trials) for entrant in playing}
        dropped: dict[str, int] = {}
        best: dict[str, Attempt] = {}
        for stage, part in enumerate(STAGES, start=1):
            last = stage == len(STAGES)
            self._announce(stage, playing, settings)
            for entrant in playing:
                found = sorted(self._tried(entrant, stage, part, settings[entrant.label]), key=self._order)
                keep = 1 if last else math.ceil(len(found) / 3)
                settings[entrant.label] = [attempt.numbers for attempt in found[:keep]]
                best[entrant.label] = found[0]
            playing.sort(key=lambda entrant: self._order(best[entrant.label]))
            places = going(stage, len(playing), self.most)
            alive = [
                entrant
                for place, entrant in enumerate(playing)
                if (place < places or entrant.label == self.yardstick) and best[entrant.label].score is not None
            ]
            dropped |= {entrant.label: stage for entrant in playing if entrant not in alive}
            playing = alive
            if not playing:
                raise FedaxError("every setting of every method diverged: the rate to search around must be smaller")
        self._announce(FINAL, playing, settings)
        for entrant in playing:
            self._final(entrant, settings[entrant.label][0])
        order = [entrant.label for entrant in playing] + sorted(dropped, key=lambda label: -dropped[label])
        chosen = {label: best[label].numbers for label in order}
        return Outlook(list(self.notes.done.values()), chosen, dropped, [entrant.label for entrant in playing])

    def _order(self, attempt: Attempt) -> tuple[float, float]:
        if attempt.score is None:
            return math.inf, math.inf
        return self.sign * attempt.score, attempt.last.get(self.loss, 0.0)

    def _set_clock(self, stage: int, playing: Sequence[Entrant]) -> None:
        """What is still to be run from a stage on; who goes on is not known, so all count with their mean rounds."""
        programs, runs = work(
            len(playing),
            trials=self.trials,
            finalists=self.most,
            seeds=len(self.seeds),
            batched=self.batched,
            stage=stage,
        )
        known = sum(entrant.label in self.compiled for entrant in playing) if stage < FINAL else 0
        mean = sum(entrant.rounds for entrant in playing) / len(playing)
        self.clock.programs, self.clock.rounds = programs - known, runs * mean

    def _begin(self, run: Run) -> None:
        self.progress.start(run)
        self.clock.begin()

    def _advance(self, rounds: int) -> None:
        self.clock.advance(rounds)
        self.progress.advance(rounds)
        self.progress.expect(self.clock.left)
        self.pause()

    def _announce(self, stage: int, playing: Sequence[Entrant], settings: Mapping[str, Sequence[Numbers]]) -> None:
        self._set_clock(stage, playing)
        self.progress.expect(self.clock.left)
        if stage == FINAL:
            many = f"{len(self.seeds)} seed{'s' if len(self.seeds) > 1 else ''}"
            self.progress.say(f"final: {', '.join(entrant.label for entrant in playing)}, {many} each")
            return
        part = {9: "a ninth of the", 3: "a third of the", 1: "all"}[STAGES[stage - 1]]
        what = _settings(max(len(settings[entrant.label]) for entrant in playing))
        methods = f"{len(playing)} method{'s' if len(playing) > 1 else ''}"
        self.progress.say(f"stage {stage} of {len(STAGES)}: {methods}, {what} each, {part} rounds")

    def _tried(self, entrant: Entrant, stage: int, part: int, settings: Sequence[Numbers]) -> list[Attempt]:
        """Run one method's attempts in one stage; returns all of them, those of an earlier search too."""
        rounds = max(1, math.ceil(entrant.rounds / part))
        asked = [Attempt(entrant.label, stage, self.seed, numbers, rounds, None, {}) for numbers in settings]
        waiting = [attempt for attempt in asked if attempt.about not in self.notes.done]
        self.pause()
        if not waiting:
            self.clock.left_out(rounds * (self.trials if self.batched else len(settings)))
        else:
            self._run_settings(entrant, waiting, rounds)
        return [self.notes.done[attempt.about] for attempt in asked]

    def _run_settings(self, entrant: Entrant, waiting: Sequence[Attempt], rounds: int) -> None:
        """Run settings of one method, and save each."""
        how = {**entrant.how, "eval_on": ["validation"], "eval_every": rounds, "seed": self.seed}
        settings = self._lined_up([entrant.candidate.make(attempt.numbers) for attempt in waiting], rounds, how)
        title = f"{entrant.label}, {_settings(len(waiting))}"
        run = Run(entrant.label, self.seed, Path(), rounds=rounds * len(settings.algorithms), title=title)
        self._begin(run)

        def keep(number: int, result: Result, _: Any) -> None:
            if number < len(waiting):
                self.notes.keep([self._judged(waiting[number], result)])

        for block in settings.blocks:
            settings.run(block, keep=keep, say=self._advance)
        best = min((self.notes.done[attempt.about] for attempt in waiting), key=self._order)
        ended: Any = "finished" if best.score is not None else "diverged"
        self.progress.end(dataclasses.replace(run, status=ended, round=rounds, metrics=best.last))
        self.clock.end(run.rounds, compiled=entrant.label not in self.compiled)
        self.compiled.add(entrant.label)

    def _lined_up(self, methods: Sequence[Algorithm], rounds: int, how: Mapping[str, Any]) -> Settings:
        """Settings as lanes of one program where that is faster; filled up, so that later stages compile nothing."""
        settings = Settings(*self.on, methods, rounds=rounds, **how)
        if settings.mode == "batched" and len(methods) < self.trials:
            filled = [methods[lane % len(methods)] for lane in range(self.trials)]
            settings = Settings(*self.on, filled, rounds=rounds, **how)
        return settings

    def _final(self, entrant: Entrant, numbers: Numbers) -> None:
        """One method with every seed that is reported on, evaluated on test rows too, ten times on the way."""
        rounds, compiles = entrant.rounds, True
        for seed in self.seeds:
            asked = Attempt(entrant.label, FINAL, seed, numbers, rounds, None, {})
            self.pause()
            if asked.about in self.notes.done:
                self.clock.left_out(rounds)
                continue
            run = Run(entrant.label, seed, Path(), rounds=rounds)
            self._begin(run)
            how = {**entrant.how, "eval_on": ["validation", "test"], "eval_every": max(1, rounds // 10), "seed": seed}
            made = [entrant.candidate.make(numbers)]
            (result,) = sweep(*self.on, made, rounds=rounds, mode="sequence", on_progress=self._advance, **how)
            found = self._judged(asked, result)
            self.notes.keep([found])
            ended: Any = "finished" if found.score is not None else "diverged"
            self.progress.end(dataclasses.replace(run, status=ended, round=rounds, metrics=found.last))
            self.clock.end(rounds, compiled=compiles)
            compiles = False

    def _judged(self, attempt: Attempt, result: Result) -> Attempt:
        last = dict(result.history[-1]) if result.history else {}
        lost = "diverged" in result.info or last.get("round", 0) < attempt.rounds
        score = None if lost else last.get(self.metric)
        score = score if score is not None and math.isfinite(score) else None
        plain = {key: value for key, value in last.items() if isinstance(value, int | float) and math.isfinite(value)}
        return dataclasses.replace(attempt, score=score, last=plain)


def _settings(count: int) -> str:
    return f"{count} setting{'s' if count > 1 else ''}"
