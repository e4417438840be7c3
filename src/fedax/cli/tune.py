"""`--tune` of `fedax compare`: tune each method before the runs, and show the settings found."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

from fedax.cli.ending import INTERRUPTED, Ended, fail
from fedax.errors import FedaxError, unknown

if TYPE_CHECKING:
    from fedax.experiments import Experiment

HOW = ("grid", "optuna")


class WithTune(TyperCommand):
    """A command whose `--tune` may stand without a value, which means "grid"."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        follows = [*args, ""][1:]
        whole = [
            "--tune=grid" if word == "--tune" and not _is_how(next_) else word
            for word, next_ in zip(args, follows, strict=True)
        ]
        return super().parse_args(ctx, whole)


def _is_how(word: str) -> bool:
    """Whether what follows is a value: not an option, not a file."""
    return bool(word) and not word.startswith("-") and "." not in word and "/" not in word


def tune_first(experiment: Experiment, out: Path, how: str, trials: int | None, quiet: bool) -> Experiment:
    """The experiment with each method tuned; says what was tuned."""
    from fedax import report
    from fedax.cli.console import console, say
    from fedax.cli.progress import watch
    from fedax.experiments.interrupts import Stopped
    from fedax.experiments.searching import optuna
    from fedax.experiments.tuning import tune

    if how not in HOW:
        raise unknown("--tune", how, HOW)
    if how == "grid" and trials is not None:
        raise FedaxError(f"--trials is {trials}: it goes with --tune optuna, for a grid has its own number")
    if how == "optuna":
        optuna()
        trials = 30 if trials is None else trials
    try:
        with watch(console(), quiet) as progress:
            tuned, _ = tune(experiment, out, trials=trials, progress=progress)
    except Stopped:
        again = f"the same command with --out {shlex.quote(str(out))} goes on"
        raise Ended(fail(f"interrupted while tuning; {again}", INTERRUPTED)) from None
    for sentence in report.tuned(out):
        say(sentence)
    return tuned
