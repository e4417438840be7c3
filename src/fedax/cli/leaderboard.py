"""`fedax leaderboard`: which method is best, on many tasks, at equal cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedax.cli.options import Debug, Quiet

if TYPE_CHECKING:
    from fedax.leaderboard import Task

app = typer.Typer(
    name="leaderboard", help="Methods on many tasks, at equal cost.", rich_markup_mode="rich", no_args_is_help=True
)

Suite = Annotated[str, typer.Option("--suite", metavar="quick|full", help="quick: bundled and generated data alone.")]
Folder = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where results are, and are added to.")]
Names = Annotated[str | None, typer.Option("--tasks", metavar="A,B", help="Some tasks alone, or TOML files of tasks.")]
HERE = Path("leaderboard")


@app.command()
def run(
    suite: Suite = "quick",
    tasks: Names = None,
    methods: Annotated[str | None, typer.Option("--methods", metavar="A,B", help="Some methods alone.")] = None,
    out: Folder = HERE,
    minutes: Annotated[float | None, typer.Option("--minutes", metavar="N", help="Stop after so many minutes.")] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run a suite: every method of each task's track. The same command goes on with what was stopped.

    \b
    fedax leaderboard run --suite quick
    fedax leaderboard run --suite full --minutes 30
    fedax leaderboard run --tasks a9a,fmri --methods FedAvg,SCAFFOLD
    """
    from fedax.cli.console import console
    from fedax.cli.ending import INTERRUPTED, Ended, fail
    from fedax.cli.progress import watch
    from fedax.experiments.interrupts import Stopped
    from fedax.leaderboard.rules import SEEDS
    from fedax.leaderboard.running import run as play

    chosen = _tasks(suite, tasks)
    try:
        with watch(console(), quiet) as progress:
            play(chosen, _split("--methods", methods), SEEDS[suite], out, progress, minutes=minutes)
    except Stopped:
        raise Ended(fail(f"stopped; what is done is in {out}, and the same command goes on", INTERRUPTED)) from None


def _tasks(suite: str, only: str | None) -> list[Task]:
    from fedax.leaderboard.tasks import load, names

    known = names(suite)
    return [load(name) for name in _split("--tasks", only) or known]


def _split(option: str, written: str | None) -> list[str] | None:
    """Names with commas between."""
    from fedax.errors import FedaxError

    if written is None:
        return None
    names = [name.strip() for name in written.split(",") if name.strip()]
    if not names or len(set(names)) < len(names):
        raise FedaxError(f"{option} is {written!r}: it must be names with commas between, none twice")
    return names
