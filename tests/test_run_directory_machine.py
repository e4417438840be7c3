"""A run's directory under everything that can befall it, in any order: start, kill, resume, damage, copy, report.

Hypothesis draws the order. Whatever happened before, each action ends in what it should or in one FedaxError, and a run
that comes to its end has the bits of one that was never disturbed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import fedax
from conftest import LEAST_SQUARES, regression, vector
from fedax.errors import FedaxError
from fedax.report import read
from fedax.report.writing import write_reports

ROUNDS = 6
DATA, METHOD = regression(sizes=(5, 7, 6)), fedax.SCAFFOLD(lr=0.05)
HOW: dict[str, Any] = {"rounds": ROUNDS, "cohort": 2, "batch_size": 3, "seed": 1, "executor": "batched"}
FILES = ("status.json", "metrics.jsonl", "experiment.json", "clients.json", "checkpoint")


class Killed(BaseException):
    """The end of a process, as far as its run can tell: nothing tidies up after it."""


def run(out: Path | None, stop: int = ROUNDS + 1, **options: Any) -> Any:
    """A run with a checkpoint after every round, which is killed after `stop` of them."""

    def advance(rounds: int) -> None:
        if rounds >= stop:
            shutil.copytree(out, f"{out}.killed")  # as the kill leaves it, before anybody tidies up
            raise Killed

    kept = {} if out is None else {"out": out, "checkpoint_every": 0, "on_progress": advance}
    return fedax.simulate(LEAST_SQUARES, DATA, METHOD, **HOW, **kept, **options)


class Directory(RuleBasedStateMachine):
    """One directory at a time; what is known of it is only whether it holds a run, and whether that is over."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="fedax-machine-"))
        self.numbers = itertools.count()
        self.out, self.damaged = self._new(), False

    def _new(self) -> Path:
        return self.home / f"run-{next(self.numbers)}"

    @property
    def there(self) -> bool:
        return (self.out / "experiment.json").is_file()

    def _killed(self, stop: int, **options: Any) -> None:
        try:
            result = run(self.out, stop, **options)
        except Killed:
            shutil.rmtree(self.out)
            Path(f"{self.out}.killed").rename(self.out)
        except FedaxError:
            assert self.damaged, "an undisturbed directory is refused"
        else:
            self._whole(result)

    def _whole(self, result: Any) -> None:
        np.testing.assert_array_equal(vector(result.model), WHOLE)
        assert [row["round"] for row in result.history] == list(range(ROUNDS + 1))
        assert read(self.out).finished
        self.damaged = False

    @initialize(stop=st.integers(1, ROUNDS + 1))
    def start(self, stop: int) -> None:
        self._killed(stop)

    @rule(stop=st.integers(1, ROUNDS + 1))
    def resume(self, stop: int) -> None:
        self._killed(stop, resume=True)

    @precondition(lambda self: self.there)
    @rule()
    def a_second_start_is_refused(self) -> None:
        before = contents(self.out)
        with pytest.raises(FedaxError, match="already holds something"):
            run(self.out)
        assert contents(self.out) == before

    @rule(name=st.sampled_from(FILES), how=st.sampled_from(["cut", "garbage", "gone", "empty"]), at=st.floats(0, 1))
    def damage(self, name: str, how: str, at: float) -> None:
        found = sorted(self.out.glob("checkpoints/*.ckpt")) if name == "checkpoint" else [self.out / name]
        for path in found[-1:]:
            if path.is_file():
                self.damaged = True
                raw = path.read_bytes()
                new = {"cut": raw[: int(at * len(raw))], "garbage": os.urandom(40), "empty": b""}.get(how)
                path.unlink() if new is None else path.write_bytes(new)

    @rule()
    def copy(self) -> None:
        """A copy of a directory is a directory."""
        other = self._new()
        if self.out.is_dir():
            shutil.copytree(self.out, other)
            self.out = other

    @rule()
    def report(self) -> None:
        try:
            page = write_reports(self.out, [self.out])
            assert page.is_file()
        except FedaxError:
            assert self.damaged or not self.there

    @invariant()
    def reading_never_fails_but_in_one_sentence(self) -> None:
        with contextlib.suppress(FedaxError):
            read(self.out)

    def teardown(self) -> None:
        shutil.rmtree(self.home)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("[!.]*") if path.is_file()}


WHOLE = vector(run(None).model)
TestDirectory = Directory.TestCase
TestDirectory.settings = hypothesis.settings(
    max_examples=20,
    stateful_step_count=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(hypothesis.HealthCheck),
)
