"""`fedax run`: one method."""

from __future__ import annotations

from typing import Annotated

import typer

from fedax.cli.carry_out import carry_out, overrides_of
from fedax.cli.options import Budget, Debug, File, Log, Out, Processes, Quiet, Set
from fedax.errors import FedaxError


def run(
    context: typer.Context,
    experiment: File,
    settings: Set = [],  # noqa: B006
    out: Out = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Run this seed alone.")] = None,
    state_budget: Budget = None,
    processes: Processes = None,
    log: Log = [],  # noqa: B006
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run one method; write its metrics, models and report to a new directory.

    \b
    fedax run experiment.toml
    fedax run experiment.toml --set algorithm.lr=0.05 --set rounds=200
    fedax run experiment.toml --set algorithm.name=SCAFFOLD --seed 3
    fedax run experiment.toml --out runs/first
    fedax run experiment.toml --state-budget 4GiB

    \b
    The engine chooses how clients are run, and says so; to choose yourself:
    fedax run experiment.toml --set executor=looped --set devices=1
    fedax run experiment.toml --set executor=batched --set chunk=50

    \b
    Clients' rows and states divided over four processes of this machine:
    fedax run experiment.toml --processes 4
    Over two machines, the same on each, with FEDAX_PROCESS=1 on the second:
    FEDAX_COORDINATOR=host:port FEDAX_PROCESSES=2 FEDAX_PROCESS=0 fedax run ...
    Under Slurm: srun --ntasks 8 fedax run experiment.toml

    \b
    The smallest experiment.toml:
        rounds = 100
        data.name = "digits"
        data.partition = { name = "Dirichlet", clients = 20, alpha = 0.3 }
        model = { name = "mlp", hidden = \\[64] }
        algorithm = { name = "FedAvg", lr = 0.1 }
    """
    overrides = overrides_of(settings, log, state_budget)
    if seed is not None:
        overrides.append(("seeds", f"[{seed}]"))
    from fedax.cli.launch import launched
    from fedax.experiments import read

    asked = read(experiment, overrides)
    if len(asked.algorithm) > 1:
        raise FedaxError(
            f"{experiment} has {len(asked.algorithm)} [[algorithm]] tables: `fedax run` takes one, "
            "`fedax compare` takes several"
        )
    if not launched(context.obj, processes):
        carry_out(asked, out, quiet)
