"""`fedax leaderboard`: which method is best, on many tasks, at equal cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedax.cli.options import Debug, Quiet

if TYPE_CHECKING:
    from fedax.leaderboard.standing import Board
    from fedax.leaderboard.tasks import Task

app = typer.Typer(
    name="leaderboard", help="Methods on many tasks, at equal cost.", rich_markup_mode="rich", no_args_is_help=True
)

Suite = Annotated[str, typer.Option("--suite", metavar="quick|full", help="quick: bundled and generated data alone.")]
Folder = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="The directory that results are read from and added to.")
]
Names = Annotated[str | None, typer.Option("--tasks", metavar="A,B", help="Only these tasks, or TOML files of tasks.")]
HERE = Path("leaderboard")


@app.command()
def run(
    suite: Suite = "quick",
    tasks: Names = None,
    methods: Annotated[
        str | None, typer.Option("--methods", metavar="A,B", help="Only these methods, with commas between.")
    ] = None,
    out: Folder = HERE,
    minutes: Annotated[
        float | None, typer.Option("--minutes", metavar="N", min=0, help="Stop after N minutes.")
    ] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run a suite: every method of each task's track. The same command goes on with what was stopped.

    \b
    fedax leaderboard run --suite quick
    fedax leaderboard run --suite full --minutes 30
    fedax leaderboard run --tasks a9a,fmri --methods FedAvg,SCAFFOLD
    """
    from fedax.cli.console import console, say
    from fedax.cli.ending import INTERRUPTED, Ended, fail
    from fedax.cli.progress import watch
    from fedax.experiments.interrupts import Stopped
    from fedax.leaderboard.page import all_boards
    from fedax.leaderboard.rules import SEEDS
    from fedax.leaderboard.running import run as play
    from fedax.leaderboard.saved_tasks import read
    from fedax.leaderboard.standing import complete

    chosen = _tasks(suite, tasks)
    try:
        with watch(console(), quiet) as progress:
            play(chosen, _split("--methods", methods), SEEDS[suite], out, progress, minutes=minutes)
    except Stopped:
        raise Ended(fail(f"stopped; what is done is in {out}, and the same command goes on", INTERRUPTED)) from None
    found = [read(task, out) for task in chosen]
    for board in all_boards(found):
        _show(board)
    for saved in found:
        if saved.task.missing() is None and not complete(saved):
            have = f"{len(saved.entries)} of {len(saved.task.methods)} methods have results in {out}"
            words = f"{saved.task.name}: {have}, so it is not on a board yet"
            say(words)


@app.command()
def add(
    method: Annotated[str, typer.Argument(metavar="module:Class", help="A method of your own, or file.py:Class.")],
    suite: Suite = "quick",
    tasks: Names = None,
    out: Folder = HERE,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Check a method of your own, run it under the same rules, and place it on a copy of the board.

    \b
    fedax leaderboard add mymodule:MyMethod
    fedax leaderboard add mine.py:Mine --suite full

    It writes DIR/submission-NAME.json: versions, hashes of the tasks, seeds and results.
    """
    from fedax.cli.console import console
    from fedax.cli.ending import INTERRUPTED, Ended, fail
    from fedax.cli.progress import watch
    from fedax.experiments.interrupts import Stopped
    from fedax.leaderboard.page import all_boards
    from fedax.leaderboard.playing import label
    from fedax.leaderboard.submission import add as submit

    try:
        with watch(console(), quiet) as progress:
            copy, path = submit(method, _tasks(suite, tasks), suite, out, progress)
    except Stopped:
        raise Ended(fail(f"stopped; what is done is in {out}, and the same command goes on", INTERRUPTED)) from None
    for board in all_boards(copy):
        _show(board, label(method))
    console().print(f"{path}: the submission", markup=False, soft_wrap=True)


@app.command()
def verify(
    results: Annotated[Path, typer.Argument(metavar="FILE", help="A submission, or the results of a task.")],
    tasks: Annotated[str | None, typer.Option("--tasks", metavar="A,B", help="The tasks to run again.")] = None,
    methods: Annotated[str | None, typer.Option("--methods", metavar="A,B", help="The methods to run again.")] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Check that results kept the rules, and run a part of them again: those that are named, or the two quickest.

    \b
    fedax leaderboard verify leaderboard/submission-MyMethod.json
    fedax leaderboard verify submission.json --tasks lasso
    fedax leaderboard verify leaderboard/lasso.json --methods FedAvg

    The method of a submission must be importable here.
    """
    from fedax.cli.console import console
    from fedax.cli.ending import FAILED, Ended
    from fedax.cli.progress import watch
    from fedax.leaderboard.submission import verify as verified

    failed = False
    with watch(console(), quiet) as progress:
        for subject, holds, words in verified(
            results, _split("--tasks", tasks), _split("--methods", methods), progress
        ):
            progress.say(f"{'holds ' if holds else 'FAILS '} {subject}: {words}")
            failed |= not holds
    if failed:
        raise Ended(FAILED)


@app.command()
def page(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page; its pictures are beside it.")] = Path(
        "leaderboard.md"
    ),
    results: Annotated[
        Path | None, typer.Option("--results", metavar="DIR", help="A run's results. Default: those in Fedax.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Write the page and its pictures from saved results.

    \b
    fedax leaderboard page
    fedax leaderboard page --results leaderboard --out leaderboard.md
    """
    from fedax.leaderboard.diagrams import draw, shown
    from fedax.leaderboard.page import all_boards
    from fedax.leaderboard.page import page as written
    from fedax.leaderboard.saved_tasks import read
    from fedax.runs.files import write_whole

    if results is not None and not results.is_dir():
        from fedax.errors import FedaxError

        raise FedaxError(f"--results is {results}: there is no such directory")
    found = [read(task, results) for task in _tasks("full", None)]
    boards = all_boards(found)
    if boards:
        draw(boards, out.parent / out.stem)
    write_whole(out, written(found, shown(boards), out.stem).encode())
    print(out)


def _show(board: Board, mine: str | None = None) -> None:
    """A board on the screen."""
    from fedax.cli.console import console, table

    rows = []
    for label, rank in board.mean_ranks.items():
        near = sum(one.near_best(label) for one in board.tables) / len(board.tables)
        tied = "=" if label in board.first and len(board.first) > 1 else ""
        name = f"> {label}" if label == mine else label
        rows.append([f"{rank:.1f}{tied}", name, str(board.wins[label]), f"{100 * near:.0f} %"])
    tasks = ", ".join(one.task.name for one in board.tables)
    title = f"{board.track} track, equal {board.budget}: {tasks}; = marks those within noise of the first"
    names = ["mean rank", "method", "wins", "settings near the best"]
    console().print(table(title, names, rows, right=["mean rank", "wins", names[3]], whole=["mean rank", "method"]))


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
