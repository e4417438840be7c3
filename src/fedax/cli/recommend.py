"""`fedax recommend`: which method for these data?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedax.cli.carry_out import overrides_of
from fedax.cli.options import Debug, File, Out, Quiet, Set
from fedax.errors import FedaxError

if TYPE_CHECKING:
    from fedax.selection import Recommendation

WINNER = "winner.toml"


def recommend(
    experiment: File,
    settings: Set = [],  # noqa: B006
    out: Out = None,
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="'N UNIT'", help="Gradients or floats of each run, or minutes of the search."),
    ] = None,
    methods: Annotated[
        str | None, typer.Option("--methods", metavar="A,B", help="Try these instead of all methods that fit.")
    ] = None,
    personal: Annotated[bool, typer.Option("--personal", help="Look for a model for each client.")] = False,
    by: Annotated[
        str | None, typer.Option("--by", metavar="METRIC", help="The metric that decides, such as auc or loss.")
    ] = None,
    trials: Annotated[
        int, typer.Option("--trials", metavar="N", min=1, help="How many settings of each method to try.")
    ] = 9,
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", min=1, help="How many seeds each finalist runs with.")
    ] = 5,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Try the methods that fit the file's data and model, and say which one to use.

    \b
    fedax recommend experiment.toml
    fedax recommend experiment.toml --budget '2e6 gradients'   each run
    fedax recommend experiment.toml --budget '1e8 floats'      each run
    fedax recommend experiment.toml --budget '10 minutes'      the whole search
    fedax recommend experiment.toml --personal                 own models
    fedax recommend experiment.toml --methods FedAvg,my.py:Mine --by auc

    Settings of each method are drawn from the ranges that its file declares, around the rates of the experiment.
    Successive halving on validation rows drops them one stage after the other; the finalists run with several seeds.
    The winner is written as an experiment file. The same command with --out DIR goes on after it was stopped.
    """
    from fedax.cli.console import console
    from fedax.cli.ending import INTERRUPTED, Ended, fail
    from fedax.cli.progress import watch
    from fedax.experiments import read
    from fedax.experiments.building import options, prepare
    from fedax.experiments.interrupts import Stopped
    from fedax.runs.files import fresh
    from fedax.selection import recommend as search
    from fedax.selection.candidates import track_of

    overrides = overrides_of(settings)
    if by is not None:
        overrides.append(("tune.metric", repr(by)))
    asked = read(experiment, overrides)
    folder = out or fresh(Path("runs"), f"{asked.name}-recommendation")
    problem, federation = prepare(asked)
    given = {table.name: table.options for table in asked.algorithm}
    rates = [table.options["lr"] for table in asked.algorithm if isinstance(table.options.get("lr"), int | float)]
    own = track_of(problem, [table.build() for table in asked.algorithm]) == "personal"
    names = None if methods is None else [name.strip() for name in methods.split(",") if name.strip()]
    if names is not None and (not names or len(set(names)) < len(names)):
        raise FedaxError(
            f"--methods is {methods!r}: it must be names with commas between, none twice, such as FedAvg,SCAFFOLD"
        )
    how = {
        k: v for k, v in options(asked, 0).items() if k not in ("rounds", "seed", "eval_every", "eval_on", "personal")
    }
    try:
        with watch(console(), quiet) as progress:
            found = search(
                problem,
                federation,
                rounds=asked.rounds,
                budget=budget,
                methods=names,
                lr=rates[0] if rates else 0.1,
                given=given,
                personal=personal or own,
                metric=by,
                trials=trials,
                seeds=range(seeds),
                out=folder,
                progress=progress,
                **how,
            )
    except Stopped:
        again = f"the same command with --out {folder} goes on"
        raise Ended(fail(f"interrupted; {again}", INTERRUPTED)) from None
    show(found)
    target = folder / WINNER
    write_winner(experiment, overrides, found, target)
    console().print(f"{target}: the winner as an experiment, fedax run {target}", markup=False, soft_wrap=True)


def show(found: Recommendation) -> None:
    """The ranking, what decided, what it costs, what was dropped when, the conclusion."""
    from fedax.cli.console import console, say, table
    from fedax.selection.recommendation import in_words

    screen, words = console(), in_words(found.metric)
    screen.print("The data and the rounds", style="bold")
    for line in found.facts:
        screen.print(line, markup=False, highlight=False)
    rows = [
        [
            f"{place.rank}{'=' if place.tied else ''}",
            place.label,
            _interval(found.metric, place.mean, place.half),
            "" if place.rank == 1 and place.behind == 0 else _interval(found.metric, place.behind, place.behind_half),
            _mean(found.metric, found.test[place.label]),
            *_costs(found.costs[place.label]),
            _words(found.diagnostics[place.label].get("drift")),
            _words(found.diagnostics[place.label].get("diversity")),
        ]
        for place in found.standings
    ]
    columns = ["rank", "method", words, "behind", "on test rows", "rounds", "gradients", "floats", "kept"]
    screen.print(
        table(
            f"Finalists, {len(next(iter(found.test.values())))} seeds each; = marks ties within noise",
            [*columns, "drift", "diversity"],
            rows,
            right=[*columns[2:], "drift", "diversity"],
            whole=["rank", "method"],
            caption=_limit(found),
            spare=["rounds", "gradients", "drift", "diversity"],
        )
    )
    others = [
        [label, f"stage {stage}", _one(found.metric, found.scores[label]), *_costs(found.costs[label])]
        for label, stage in found.dropped.items()
    ]
    if others:
        names = ["method", "dropped after", words, "rounds", "gradients", "floats", "kept"]
        screen.print(table("Dropped on validation rows", names, others, right=names[2:], spare=["gradients"]))
    for label, why in found.left_out.items():
        say(f"{label} left out: {why}")
    screen.print(f"{found.budget}, {found.attempts} runs in {found.seconds:.0f} s", markup=False, highlight=False)
    say(found.sentence())


def _limit(found: Recommendation) -> str | None:
    """What the validation rows can show at all."""
    if not found.least:
        return None
    return f"{found.rows:,} validation rows: a difference below {100 * found.least:.1f} points is a tie"


def write_winner(source: Path, overrides: Any, found: Recommendation, target: Path) -> None:
    """The experiment with the recommended method and its rounds, checked."""
    import tomllib

    from fedax.cli.theory import to_toml
    from fedax.experiments.reading import override, parse
    from fedax.outside import beside
    from fedax.runs.files import write_whole

    table = tomllib.loads(source.read_text(encoding="utf-8"))
    for name, value in overrides:
        override(table, name, value)
    table = beside(table, source.parent)
    for name in ("sweep", "tune", "budget"):
        table.pop(name, None)
    rounds = int(found.costs[found.best]["rounds"])
    table |= {"rounds": rounds, "algorithm": [{k: v for k, v in found.winner.items() if v is not None}]}
    table["eval_every"] = min(table.get("eval_every", max(1, rounds // 20)), rounds)
    parse(table)
    note = f"# {found.sentence()} By `fedax recommend {source.name}`.\n"
    write_whole(target, (note + to_toml(table)).encode())


def _costs(cost: dict[str, float]) -> list[str]:
    return [f"{cost['rounds']:,.0f}", *(_big(cost[name]) for name in ("gradients", "floats", "kept"))]


def _big(value: float) -> str:
    return f"{value:,.0f}" if value < 1e5 else f"{value:.2g}"


def _words(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _one(metric: str, value: float | None) -> str:
    if value is None:
        return "diverged"
    return f"{100 * value:.1f} %" if "accuracy" in metric else f"{value:.4g}"


def _mean(metric: str, values: list[float]) -> str:
    return _one(metric, sum(values) / len(values))


def _interval(metric: str, mean: float, half: float) -> str:
    if half != half:
        return _one(metric, mean) if mean == mean else "diverged"
    return f"{100 * mean:.1f} ± {100 * half:.1f} %" if "accuracy" in metric else f"{mean:.4g} ± {half:.2g}"
