"""`fedax sweep`: the best of many settings of each method."""

from __future__ import annotations

from typing import Annotated

import typer

from fedax.cli.carry_out import carry_out_sweep, overrides_of
from fedax.cli.options import Budget, Debug, File, Out, Processes, Quiet, Set
from fedax.errors import FedaxError


def sweep(
    context: typer.Context,
    experiment: File,
    settings: Set = [],  # noqa: B006
    out: Out = None,
    methods: Annotated[
        list[str],
        typer.Option("--method", metavar="LABEL", help="Sweep this method of the file alone; repeatable."),
    ] = [],  # noqa: B006
    by: Annotated[
        str | None, typer.Option("--by", metavar="METRIC", help="The metric that decides, such as auc, rmse or loss.")
    ] = None,
    state_budget: Budget = None,
    processes: Processes = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run every setting of the \\[sweep] table, method by method; report on the best of each.

    Settings are kept as they are done, and `fedax resume` goes on after an interruption.

    \b
    fedax sweep experiment.toml
    fedax sweep experiment.toml --method FedDualAvg --set rounds=100
    fedax sweep experiment.toml --set "sweep.lr=\\[0.01, 0.1]"
    fedax sweep experiment.toml --by auc

    \b
    The \\[sweep] table:
        lr = \\[0.01, 0.03, 0.1]           a list for each hyper-parameter
        server_lr = \\[0.3, 1.0, 3.0]
        metric = "test_accuracy"         what decides; any column of metrics.jsonl
        goal = "max"                     or "min"
        over = 100                       its mean over the last 100 rounds
        target = 0.9                     report the first round that reaches it
        mode = "sequence"                or "batched"; default by the model's size
    """
    from fedax.cli.launch import launched
    from fedax.experiments import read

    overrides = overrides_of(settings, (), state_budget)
    if by is not None:
        overrides.append(("sweep.metric", repr(by)))
    asked = read(experiment, overrides, grid="sweep").only(methods)
    if asked.sweep is None:
        raise FedaxError(f"{experiment} has no [sweep] table: it must have one with a list such as lr = [0.01, 0.1]")
    if not launched(context.obj, processes):
        carry_out_sweep(asked, out, quiet)
