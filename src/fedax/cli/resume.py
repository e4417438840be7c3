"""`fedax resume`: go on with runs that were stopped or killed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedax.cli.ending import conclude, conclude_sweep
from fedax.cli.options import Debug, Processes, Quiet


def resume(
    context: typer.Context,
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The directory of a run, a comparison or a sweep.", show_default=False)
    ],
    processes: Processes = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Go on from the last checkpoint with what did not finish; the results are the same to the bit.

    \b
    fedax resume runs/first            a run that was stopped, or killed
    fedax resume runs/demo             a comparison: runs that never began, too
    fedax resume runs/grid             a sweep: settings that are done are kept
    fedax resume runs/large --processes 4    as many processes as it began with

    \b
    How often a run writes a checkpoint, in the experiment:
        checkpoint_every = 60            seconds; 0 for every few rounds
    """
    from fedax.cli.launch import launched

    if launched(context.obj, processes):
        return
    from fedax.cli.console import console
    from fedax.cli.progress import watch
    from fedax.experiments import resume as go_on
    from fedax.experiments import resume_sweep
    from fedax.experiments.resuming import is_sweep
    from fedax.runtime import is_main_process

    swept = is_sweep(run)
    with watch(console(), quiet) as progress:
        outcome: Any = (resume_sweep if swept else go_on)(run, progress=progress)
    if not is_main_process():
        return
    if not outcome.worked:
        print(f"{run} has come to its end: only its report is written again")
    (conclude_sweep if swept else conclude)(outcome)
