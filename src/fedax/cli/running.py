"""The commands that run an experiment: `fedax run`, `compare`, `sweep` and `demo`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedax.cli.ending import conclude, conclude_sweep
from fedax.cli.options import Budget, Debug, File, Log, Out, Quiet, Set, assignments
from fedax.cli.tune import tune_first
from fedax.errors import FedaxError


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
    The engine chooses how clients are run, and says so; to choose yourself:
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
    fedax compare experiment.toml --set algorithm.lr=0.05        every method
    fedax compare experiment.toml --set algorithm.FedProx.mu=1   one, by its label

    \b
    Every method with what the first one uses in the file's rounds:
    fedax compare experiment.toml --budget gradients   of single rows
    fedax compare experiment.toml --budget floats      sent, up and down

    \b
    Every method at its best, by validation rows and a seed that is not reported:
    fedax compare experiment.toml --tune                       over a grid
    fedax compare experiment.toml --tune optuna --trials 50    in its ranges

    \b
    A grid of your own, in the \\[tune] table:
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
    from fedax.runs.files import fresh

    folder = out or fresh(Path("runs"), asked.name)
    _carry_out(tune_first(asked, folder, tune, trials, quiet), folder, quiet, tuned=True)


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
        over = 100                       its mean over the last 100 rounds
        target = 0.9                     report the first round that reaches it
        mode = "sequence"                or "batched"; default by the model's size
    """
    from fedax.experiments import read

    asked = read(experiment, _overrides(settings, (), state_budget)).only(methods)
    if asked.sweep is None:
        raise FedaxError(f"{experiment} has no [sweep] table: it must have one with a list such as lr = [0.01, 0.1]")
    _carry_out_sweep(asked, out, quiet)


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


def _overrides(settings: list[str], log: Sequence[str] = (), state_budget: str | None = None) -> list[tuple[str, str]]:
    pairs = [("log", f"[{', '.join(map(repr, log))}]")] if log else []
    if state_budget is not None:
        pairs.append(("state_budget", repr(state_budget)))
    return pairs + assignments(settings)


def _carry_out(experiment: Any, out: Path | None, quiet: bool, *, tuned: bool = False) -> None:
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


def _carry_out_sweep(experiment: Any, out: Path | None, quiet: bool) -> None:
    """Run a sweep with progress, write its report, show the best settings, and exit as it ended."""
    from fedax.cli.console import console
    from fedax.cli.progress import watch
    from fedax.experiments import sweep as sweep_experiment
    from fedax.runs.files import fresh

    folder = out or fresh(Path("runs"), experiment.name)
    with watch(console(), quiet) as progress:
        swept = sweep_experiment(experiment, folder, progress=progress)
    conclude_sweep(swept)
