"""The commands, and the one line that a mistake gets."""

from __future__ import annotations

import gc
import io
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import fedax
from fedax.cli.compare import compare
from fedax.cli.data import app as data_app
from fedax.cli.demo import demo
from fedax.cli.ending import BAD_INPUT, FAILED, INTERRUPTED, Ended, fail
from fedax.cli.export import export
from fedax.cli.figures import figures
from fedax.cli.flower import app as flower_app
from fedax.cli.leaderboard import app as leaderboard_app
from fedax.cli.options import Debug, assignments
from fedax.cli.predict import predict
from fedax.cli.recommend import recommend
from fedax.cli.reproduce import reproduce
from fedax.cli.resume import resume
from fedax.cli.run import run
from fedax.cli.sweep import sweep
from fedax.cli.theory import advise, theory
from fedax.cli.tune import WithTune
from fedax.errors import FedaxError, LostProcessError
from fedax.own_code import place, words

app = typer.Typer(
    name="fedax",
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(data_app, name="data")
app.add_typer(flower_app, name="flower")
app.add_typer(leaderboard_app, name="leaderboard")
app.command()(demo)
app.command()(run)
app.command(cls=WithTune)(compare)
app.command()(sweep)
app.command()(recommend)
app.command()(resume)
app.command()(predict)
app.command()(reproduce)
app.command()(export)
app.command()(figures)
app.command()(advise)
app.command()(theory)


def main() -> None:
    """The `fedax` program."""
    _screen()
    gc.set_threshold(100_000)  # what is imported is not garbage: looking for it costs a tenth of the start
    code = invoke(sys.argv[1:])
    gc.freeze()  # nor is it at the end
    sys.exit(code)


def _screen() -> None:
    """Let output go where there is no screen, and to one that lacks a letter."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # it was closed, as `>&-` does
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  (for the rest of the process)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def invoke(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code: see `fedax.cli.invoke`."""
    command = typer.main.get_command(app)
    try:
        # the words themselves, for `--processes`
        given = list(arguments)
        if any("\0" in word for word in given):
            raise FedaxError("the command line holds a null character")
        code = command.main(given or ["--help"], prog_name="fedax", standalone_mode=False, obj=given)
    except Ended as ended:
        return ended.code
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except (Exception, SystemExit) as error:
        if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader closed the pipe, as `| head` does
            return leave(FAILED)
        if isinstance(error, SystemExit) and _completes(arguments):
            return int(error.code or 0)
        if "--debug" in arguments:
            traceback.print_exc()
        return leave(fail(*_explain(error)))
    if code == INTERRUPTED:  # before the first run began, or by a second Ctrl-C
        return fail("interrupted", INTERRUPTED)
    return code if isinstance(code, int) else 0


def _completes(arguments: Sequence[str]) -> bool:
    """Whether the shell asks for completions, which typer answers and ends."""
    return "_FEDAX_COMPLETE" in os.environ or not {"--install-completion", "--show-completion"}.isdisjoint(arguments)


def leave(code: int) -> int:
    """The exit code after an error. One of several processes does not wait for the others, which may have ended."""
    from fedax.runtime import process_count

    if process_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _explain(error: Exception | SystemExit) -> tuple[str, int]:
    if isinstance(error, LostProcessError):
        return str(error), FAILED
    if isinstance(error, FedaxError):
        return str(error), BAD_INPUT
    if hasattr(error, "format_message"):  # typer's own: a wrong command, option or argument
        return str(error.format_message()), BAD_INPUT
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{(error.strerror or str(error)).lower()}", FAILED
    if "Out of memory" in str(error):  # JAX's, which has no class of its own
        return f"there is not enough memory: {words(error)}", FAILED
    if str(error).startswith("Unable to initialize backend"):
        return f"JAX_PLATFORMS is {os.environ.get('JAX_PLATFORMS')!r}: {words(error)}", FAILED
    if (whose := place(error)) is not None:
        return f"{whose} raises {words(error)}", FAILED
    return f"unexpected {type(error).__name__}: {error} (--debug shows where)", FAILED


def _version(asked: bool) -> None:
    if asked:
        print(f"fedax {fedax.__version__}")
        raise typer.Exit


@app.callback(epilog="New here? Start with [bold]fedax demo[/bold].")
def _fedax(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Federated optimisation: run methods on clients' data, compare them, read the report.

    \b
    [bold]fedax demo[/bold]                       four methods on handwritten digits
    [bold]fedax list[/bold]                       methods, datasets, models and more
    [bold]fedax data list[/bold]                  datasets, and which of them are here
    [bold]fedax data preview digits[/bold]        who holds what, before any training
    [bold]fedax run experiment.toml[/bold]        one method
    [bold]fedax compare experiment.toml[/bold]    several methods, several seeds
    [bold]fedax recommend experiment.toml[/bold]  which method for these data?
    [bold]fedax leaderboard run[/bold]            every method on many tasks, at equal cost
    [bold]fedax resume runs/first[/bold]          go on with what was stopped or killed
    [bold]fedax sweep experiment.toml[/bold]      the best of many settings of each method
    [bold]fedax predict RUN new.csv[/bold]        a model of your table on new rows
    [bold]fedax export RUN --to table.tex[/bold]  also CSV, Parquet, or a model
    [bold]fedax figures RUN[/bold]                curves, clients and heat maps for a paper
    [bold]fedax reproduce[/bold]                  the papers' figures beside ours
    [bold]fedax advise experiment.toml[/bold]     step sizes, with the theorem they come from
    [bold]fedax theory bias[/bold]                a theorem measured and drawn
    [bold]fedax flower new DIR[/bold]             the same over a real network, on Flower
    [bold]fedax check module:Class[/bold]         does your own method keep its claims?
    """


@app.command("list")
def list_(
    kind: Annotated[
        str,
        typer.Argument(
            help="algorithms, datasets, models, losses, partitions, regularizers, metrics, aggregations, schedules or "
            "gradients. Default: all of them."
        ),
    ] = "",
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[module:Name]...", help="Names of your own code, as in an experiment."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Show what an experiment can name: methods, datasets, models, losses, partitions, regularizers, metrics and more.

    \b
    fedax list
    fedax list algorithms
    fedax list metrics
    fedax list mymodule:MyMethod
    """
    from fedax.cli.listing import show

    show(kind, names or ())


@app.command()
def check(
    method: Annotated[
        str, typer.Argument(metavar="module:Class", help="A method of your own, or one of Fedax's by name.")
    ],
    settings: Annotated[
        list[str], typer.Option("--set", metavar="FIELD=VALUE", help="A hyper-parameter, such as lr=0.1; repeatable.")
    ] = [],  # noqa: B006
    debug: Debug = False,
) -> None:
    """Check a method against the contract and its own claims: purity, invariances, reductions, fixed points.

    \b
    fedax check mymodule:MyMethod --set lr=0.1
    fedax check SCAFFOLD
    """
    from fedax.cli.console import console
    from fedax.experiments.reading import parse_value
    from fedax.testing import check_target

    chosen = {name: parse_value(value) for name, value in assignments(settings)}
    with console().status(f"checking {method}"):
        found = check_target(method, **chosen)
    console().print(found.table())
    if not found.passed:
        raise Ended(FAILED)


@app.command()
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Directories of runs or comparisons.", show_default=False),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="A page on all of them. Default for several: ./report.html."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Write report.html again in each directory of a run or a comparison, whether it has finished or not.

    With several directories, write one page on all of them as well.

    \b
    fedax report runs/demo
    fedax report runs/first runs/second --out both.html
    """
    from fedax.cli.results import write_all_reports

    for page in write_all_reports(runs, out):
        print(page)
