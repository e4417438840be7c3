"""The commands, and the one line that a mistake gets."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import fedax
from fedax.cli.data import app as data_app
from fedax.cli.ending import BAD_INPUT, FAILED, INTERRUPTED, Ended, conclude, conclude_sweep, fail
from fedax.cli.export import export
from fedax.cli.figures import figures
from fedax.cli.flower import app as flower_app
from fedax.cli.reproduce import reproduce
from fedax.cli.resume import resume
from fedax.cli.theory import advise, theory
from fedax.cli.tune import WithTune, tune_first
from fedax.errors import FedaxError

app = typer.Typer(
    name="fedax",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(data_app, name="data")
app.add_typer(flower_app, name="flower")
app.command()(resume)
app.command()(reproduce)
app.command()(export)
app.command()(figures)
app.command()(advise)
app.command()(theory)

File = Annotated[Path, typer.Argument(help="The experiment, a TOML file.", show_default=False)]
Set = Annotated[
    list[str],
    typer.Option("--set", metavar="FIELD=VALUE", help="Set a field anew, such as algorithm.lr=0.05; repeatable."),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="A new directory for the results. Default: runs/<name>."),
]
Log = Annotated[
    list[str],
    typer.Option("--log", metavar="TRACKER", help="Log to tensorboard, mlflow or wandb as well; repeatable."),
]
Budget = Annotated[
    str | None,
    typer.Option(
        "--state-budget",
        metavar="SIZE",
        help="Memory for clients' states, such as 2GiB (the default); what does not fit is kept on disk.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Plain lines instead of progress bars.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def main() -> None:
    """The `fedax` program."""
    gc.set_threshold(100_000)  # what is imported is not garbage: looking for it costs a tenth of the start
    code = invoke(sys.argv[1:])
    gc.freeze()  # nor is it at the end
    sys.exit(code)


def invoke(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code: 0, 1 a run failed, 2 bad input, 130 interrupted.

    >>> invoke(["--version"])
    fedax 0.1.0
    0
    """
    command = typer.main.get_command(app)
    try:
        code = command.main(list(arguments) or ["--help"], prog_name="fedax", standalone_mode=False)
    except Ended as ended:
        return ended.code
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception as error:
        if "--debug" in arguments:
            traceback.print_exc()
        return fail(*_explain(error))
    if code == INTERRUPTED:  # before the first run began, or by a second Ctrl-C
        return fail("interrupted", INTERRUPTED)
    return code if isinstance(code, int) else 0


def _explain(error: Exception) -> tuple[str, int]:
    if isinstance(error, FedaxError):
        return str(error), BAD_INPUT
    if hasattr(error, "format_message"):  # typer's own: a wrong command, option or argument
        return str(error.format_message()), BAD_INPUT
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{(error.strerror or str(error)).lower()}", FAILED
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
    [bold]fedax demo[/bold]                               four methods on handwritten digits
    [bold]fedax list[/bold]                               methods, datasets, models, partitions, regularizers
    [bold]fedax data list[/bold]                          datasets, and which of them are on this machine
    [bold]fedax data preview digits[/bold]                who holds what, before any training
    [bold]fedax run experiment.toml[/bold]                one method
    [bold]fedax compare experiment.toml[/bold]            several methods, several seeds
    [bold]fedax resume runs/first[/bold]                  go on with what was stopped or killed
    [bold]fedax sweep experiment.toml[/bold]              the best of many settings of each method
    [bold]fedax export RUN --to table.tex[/bold]          CSV, Parquet, LaTeX, or a model with its card
    [bold]fedax figures RUN[/bold]                        curves, clients and heat maps for a paper
    [bold]fedax reproduce[/bold]                          the papers' experiments, their figures beside ours
    [bold]fedax advise experiment.toml[/bold]             step sizes, with the theorem they come from
    [bold]fedax theory bias[/bold]                        a theorem measured and drawn
    [bold]fedax flower new DIR[/bold]                     the same over a real network, on Flower
    [bold]fedax check module:Class[/bold]                 is a method of your own what it says it is?
    """


@app.command()
def run(
    experiment: File,
    settings: Set = [],  # noqa: B006
    out: Out = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Run this seed alone.")] = None,
    state_budget: Budget = None,
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
    The engine chooses how clients are run and says so in experiment.json; to choose yourself:
    fedax run experiment.toml --set executor=looped --set devices=1
    fedax run experiment.toml --set executor=batched --set chunk=50

    \b
    On two machines, the same on each, with FEDAX_PROCESS=1 on the second:
    FEDAX_COORDINATOR=host:port FEDAX_PROCESSES=2 FEDAX_PROCESS=0 fedax run ...

    \b
    The smallest experiment.toml:
        rounds = 100
        data.name = "digits"
        data.partition = { name = "Dirichlet", clients = 20, alpha = 0.3 }
        model = { name = "mlp", hidden = \\[64] }
        algorithm = { name = "FedAvg", lr = 0.1 }
    """
    overrides = _overrides(settings, log, state_budget)
    if seed is not None:
        overrides.append(("seeds", f"[{seed}]"))
    from fedax.experiments import read

    asked = read(experiment, overrides)
    if len(asked.algorithm) > 1:
        raise FedaxError(
            f"{experiment} has {len(asked.algorithm)} [[algorithm]] tables: `fedax run` takes one, "
            "`fedax compare` takes several"
        )
    _carry_out(asked, out, quiet)


@app.command(cls=WithTune)
def compare(
    experiment: File,
    settings: Set = [],  # noqa: B006
    out: Out = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="0,1,2", help="Run these seeds instead of the file's.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="gradients|floats|rounds", help="What every method has the same of."),
    ] = None,
    tune: Annotated[
        str | None,
        typer.Option("--tune", metavar="[grid|optuna]", help="Tune each method first, on validation rows alone."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", metavar="N", min=1, help="Settings of each method that Optuna tries.")
    ] = None,
    state_budget: Budget = None,
    log: Log = [],  # noqa: B006
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run every method of the file with every seed; write one report on all of them.

    \b
    fedax compare experiment.toml --seeds 0,1,2
    fedax compare experiment.toml --set algorithm.lr=0.05      every \\[\\[algorithm]] table
    fedax compare experiment.toml --set algorithm.0.lr=0.05    the first one alone

    \b
    Every method with what the first one uses in the file's rounds:
    fedax compare experiment.toml --budget gradients           as many gradients of single rows
    fedax compare experiment.toml --budget floats              as many floats sent, up and down

    \b
    Every method at its best, by validation rows and a seed that is not reported on:
    fedax compare experiment.toml --tune                       over a grid; \\[tune] has values of your own
    fedax compare experiment.toml --tune optuna --trials 50    in the ranges that the grid spans

    \b
    The \\[tune] table:
        lr = \\[0.01, 0.03, 0.1]           for every method that has it
        FedProx.mu = \\[0.01, 0.1, 1]      for one method, by its label
        seed = 100                       default the least that is not reported on
    """
    overrides = _overrides(settings, log, state_budget)
    if budget is not None:
        overrides.append(("budget", f'"{budget}"'))
    if seeds is not None:
        parts = [part.strip() for part in seeds.split(",")]
        if not all(part.isdecimal() for part in parts):
            raise FedaxError(f"--seeds is {seeds!r}: it must be whole numbers with commas between, such as 0,1,2")
        overrides.append(("seeds", f"[{', '.join(str(int(part)) for part in parts)}]"))
    from fedax.experiments import read

    asked = read(experiment, overrides)
    if tune is None:
        if trials is not None:
            raise FedaxError(f"--trials is {trials}: it goes with --tune optuna")
        _carry_out(asked, out, quiet)
        return
    from fedax.experiments.folder import fresh

    folder = out or fresh(Path("runs"), asked.name)
    _carry_out(tune_first(asked, folder, tune, trials, quiet), folder, quiet, tuned=True)


@app.command()
def sweep(
    experiment: File,
    settings: Set = [],  # noqa: B006
    out: Out = None,
    methods: Annotated[
        list[str],
        typer.Option("--method", metavar="LABEL", help="Sweep this method of the file alone; repeatable."),
    ] = [],  # noqa: B006
    state_budget: Budget = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run every setting of the \\[sweep] table, method by method; report on the best of each.

    Settings are kept as they are done, and `fedax resume` goes on after an interruption.

    \b
    fedax sweep experiment.toml
    fedax sweep experiment.toml --method FedDualAvg --set rounds=100
    fedax sweep experiment.toml --set "sweep.lr=\\[0.01, 0.1]"

    \b
    The \\[sweep] table:
        lr = \\[0.01, 0.03, 0.1]           a list for each hyper-parameter
        server_lr = \\[0.3, 1.0, 3.0]
        metric = "test_accuracy"         what decides; any column of metrics.jsonl
        goal = "max"                     or "min"
        over = 100                       its mean over the last 100 rounds, not its last value
        target = 0.9                     report the first round that reaches it
        mode = "sequence"                or "batched"; default by the model's size
    """
    from fedax.experiments import read

    asked = read(experiment, _overrides(settings, (), state_budget)).only(methods)
    if asked.sweep is None:
        raise FedaxError(f"{experiment} has no [sweep] table: it must have one with a list such as lr = [0.01, 0.1]")
    _carry_out_sweep(asked, out, quiet)


@app.command()
def demo(out: Out = None, quiet: Quiet = False, debug: Debug = False) -> None:
    """Compare four methods on handwritten digits: 20 clients, each with 2 of the 10 digits.

    \b
    fedax demo
    fedax demo --out runs/my-demo
    """
    from importlib.resources import as_file, files

    from fedax.experiments import read

    with as_file(files("fedax.experiments") / "demo.toml") as path:
        experiment = read(path)
    _carry_out(experiment, out, quiet)


@app.command("list")
def list_(
    kind: Annotated[
        str, typer.Argument(help="algorithms, datasets, models, partitions or regularizers; all if left out.")
    ] = "",
) -> None:
    """Show what an experiment can name: methods, datasets, models, partitions, regularizers.

    \b
    fedax list
    fedax list algorithms
    """
    from fedax.cli.listing import show

    show(kind)


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

    chosen = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise FedaxError(f"--set takes FIELD=VALUE, not {setting!r}")
        chosen[name.strip()] = parse_value(value)
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
        typer.Option("--out", metavar="FILE", help="The page on all of them. Default, of several: report.html here."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Write report.html of runs and comparisons anew, finished or not; of several, one page on all of them as well.

    \b
    fedax report runs/demo
    fedax report runs/first runs/second --out both.html
    """
    from fedax.cli.results import write_all_reports

    for page in write_all_reports(runs, out):
        print(page)


def _overrides(settings: list[str], log: Sequence[str] = (), state_budget: str | None = None) -> list[tuple[str, str]]:
    pairs = [("log", f"[{', '.join(map(repr, log))}]")] if log else []
    if state_budget is not None:
        pairs.append(("state_budget", repr(state_budget)))
    for setting in settings:
        field, equals, value = setting.partition("=")
        if not equals:
            raise FedaxError(f"--set is {setting!r}: it must be FIELD=VALUE, such as algorithm.lr=0.05")
        pairs.append((field.strip(), value.strip()))
    return pairs


def _carry_out(experiment: Any, out: Path | None, quiet: bool, *, tuned: bool = False) -> None:
    """Run an experiment with progress, write its reports, show its table, and exit as it ended."""
    from fedax.cli.console import console
    from fedax.cli.progress import watch
    from fedax.devices import first
    from fedax.experiments import run as run_experiment
    from fedax.experiments.folder import fresh

    folder = out or fresh(Path("runs"), experiment.name)
    with watch(console(), quiet) as progress:
        outcome = run_experiment(experiment, folder, progress=progress, tuned=tuned)
    if first():
        conclude(outcome)


def _carry_out_sweep(experiment: Any, out: Path | None, quiet: bool) -> None:
    """Run a sweep with progress, write its report, show the best settings, and exit as it ended."""
    from fedax.cli.console import console
    from fedax.cli.progress import watch
    from fedax.experiments import sweep as sweep_experiment
    from fedax.experiments.folder import fresh

    folder = out or fresh(Path("runs"), experiment.name)
    with watch(console(), quiet) as progress:
        swept = sweep_experiment(experiment, folder, progress=progress)
    conclude_sweep(swept)
