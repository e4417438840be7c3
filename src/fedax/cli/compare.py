"""`fedax compare`: several methods, several seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedax.cli.carry_out import carry_out, overrides_of
from fedax.cli.options import Budget, Debug, File, Log, Out, Processes, Quiet, Set
from fedax.cli.tune import tune_first
from fedax.errors import FedaxError


def compare(
    context: typer.Context,
    experiment: File,
    settings: Set = [],  # noqa: B006
    out: Out = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="0,1,2", help="Run these seeds instead of the file's.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="gradients|floats|rounds", help="The cost that is equal for all methods."),
    ] = None,
    tune: Annotated[
        str | None,
        typer.Option("--tune", metavar="[grid|optuna]", help="Tune each method first, on validation rows alone."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", metavar="N", min=1, help="Settings of each method that Optuna tries.")
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", metavar="METRIC", help="The metric to tune by, such as auc, rmse or loss.")
    ] = None,
    state_budget: Budget = None,
    processes: Processes = None,
    log: Log = [],  # noqa: B006
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run every method of the file with every seed; write one report on all of them.

    \b
    fedax compare experiment.toml --seeds 0,1,2
    fedax compare experiment.toml --set algorithm.lr=0.05        every method
    fedax compare experiment.toml --set algorithm.FedProx.mu=1   one, by its label

    \b
    Every method may spend what the first one spends in the file's rounds:
    fedax compare experiment.toml --budget gradients   gradients of single rows
    fedax compare experiment.toml --budget floats      floats sent, up and down

    \b
    Every method tuned first, on validation rows and an unreported seed:
    fedax compare experiment.toml --tune                       over a grid
    fedax compare experiment.toml --tune optuna --trials 50    in its ranges
    fedax compare experiment.toml --tune --by auc              by any metric

    \b
    A grid of your own, in the \\[tune] table:
        lr = \\[0.01, 0.03, 0.1]           for every method that has it
        FedProx.mu = \\[0.01, 0.1, 1]      for one method, by its label
        seed = 100                       default: the smallest unreported one
    """
    overrides = overrides_of(settings, log, state_budget)
    if budget is not None:
        overrides.append(("budget", f'"{budget}"'))
    if by is not None:
        if tune is None:
            raise FedaxError(f"--by is {by!r}: it goes with --tune")
        overrides.append(("tune.metric", repr(by)))
    if seeds is not None:
        parts = [part.strip() for part in seeds.split(",")]
        if not all(part.isdecimal() for part in parts):
            raise FedaxError(f"--seeds is {seeds!r}: it must be whole numbers with commas between, such as 0,1,2")
        overrides.append(("seeds", f"[{', '.join(str(int(part)) for part in parts)}]"))
    from fedax.cli.launch import launched
    from fedax.experiments import read
    from fedax.runtime import process_count

    asked = read(experiment, overrides, grid=None if tune is None else "tune")
    if tune is None:
        if trials is not None:
            raise FedaxError(f"--trials is {trials}: it goes with --tune optuna")
        if not launched(context.obj, processes):
            carry_out(asked, out, quiet)
        return
    if (count := processes or process_count()) > 1:
        raise FedaxError(f"--tune runs in one process, not in {count}")
    from fedax.runs.files import fresh

    folder = out or fresh(Path("runs"), asked.name)
    carry_out(tune_first(asked, folder, tune, trials, quiet), folder, quiet, tuned=True)
