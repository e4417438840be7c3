"""What the commands that run an experiment share: settings from options, progress, reports and the exit code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedax.cli.ending import conclude, conclude_sweep
from fedax.cli.options import assignments


def overrides_of(
    settings: list[str], log: Sequence[str] = (), state_budget: str | None = None
) -> list[tuple[str, str]]:
    """The settings that options stand for, in the order in which they are applied."""
    pairs = [("log", f"[{', '.join(map(repr, log))}]")] if log else []
    if state_budget is not None:
        pairs.append(("state_budget", repr(state_budget)))
    return pairs + assignments(settings)


def carry_out(experiment: Any, out: Path | None, quiet: bool, *, tuned: bool = False) -> None:
    """Run an experiment with progress, write its reports, show its table, and exit as it ended."""
    from fedax.cli.console import console
    from fedax.cli.progress import watch
    from fedax.experiments import run as run_experiment
    from fedax.runs.files import fresh
    from fedax.runtime import is_main_process

    folder = out or fresh(Path("runs"), experiment.name)
    with watch(console(), quiet) as progress:
        outcome = run_experiment(experiment, folder, progress=progress, tuned=tuned)
    if is_main_process():
        conclude(outcome)


def carry_out_sweep(experiment: Any, out: Path | None, quiet: bool) -> None:
    """Run a sweep with progress, write its report, show the best settings, and exit as it ended."""
    from fedax.cli.console import console
    from fedax.cli.progress import watch
    from fedax.experiments import sweep as sweep_experiment
    from fedax.runs.files import fresh
    from fedax.runtime import is_main_process

    folder = out or fresh(Path("runs"), experiment.name)
    with watch(console(), quiet) as progress:
        swept = sweep_experiment(experiment, folder, progress=progress)
    if is_main_process():
        conclude_sweep(swept)
