"""`fedax advise` and `fedax theory`: the theorems on an experiment, and their pictures."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedax.cli.options import Debug
from fedax.errors import FedaxError
from fedax.outside import beside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedax.algorithms import Algorithm
    from fedax.experiments import Experiment
    from fedax.papers.theory import Constants, Proposal, Work
    from fedax.papers.theory.trial import Trial

File = Annotated[Path, typer.Argument(help="The experiment, a TOML file.", show_default=False)]


def advise(
    experiment: File,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write a copy of the experiment with the proposed values.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The copy's file. Default: <name>-advised.toml beside it."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Estimate the constants of the theorems on an experiment, and propose step sizes and local steps by them.

    \b
    fedax advise experiment.toml
    fedax advise experiment.toml --apply
    fedax advise experiment.toml --apply --out better.toml
    """
    from fedax.cli.console import console, say
    from fedax.engine.prepare import in_memory
    from fedax.experiments import read
    from fedax.experiments.building import prepare
    from fedax.papers.theory import estimate
    from fedax.papers.theory.advice import with_theorem
    from fedax.runtime import configure

    configure()

    if out is not None and not apply:
        raise FedaxError(f"--out is {out}: it goes with --apply")
    target = out or experiment.parent / f"{experiment.stem}-advised.toml"
    if apply and target.exists():
        raise FedaxError(f"{target} already exists: choose another with --out")
    asked = read(experiment)
    own = methods_of(asked)
    if apply and not any(own):
        raise FedaxError(f"no method of {experiment} has a theorem to apply: {', '.join(with_theorem())} have one")
    problem, federation = prepare(asked)
    shown = in_memory(federation)
    with console().status("estimating L, mu, sigma, zeta and B"):
        constants = estimate(problem, shown, batch_size=asked.batch_size, seed=asked.seeds[0])
    work = work_of(asked, federation)
    mine = [method for method in own if method is not None]
    others = [name for name in with_theorem() if name not in {type(method).__name__ for method in mine}]
    found, refused = proposals(constants, work, [*mine, *others])
    show_constants(constants)
    show_proposals(found, refused, work)
    with console().status("trying both on training rows"):
        tried = [_tried(method, problem, shown, asked, constants, work) for method in own]
    for method, one in zip(own, tried, strict=True):
        if method is not None and one is not None:
            say(f"{type(method).__name__}: {one.why}")
    if (one := next(filter(None, tried), None)) is not None:
        say(f"These runs use training rows alone, and so short a run as {one.rounds} rounds favours large rates.")
    if apply:
        _write(experiment, target, own, tried, work, constants)


def theory(
    picture: Annotated[str, typer.Argument(help="bias, exponents, drift, instability or bounds.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="An SVG, PNG or PDF file. Default: <picture>.svg.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Draw a theorem: measure it, print the numbers, write the picture.

    \b
    fedax theory bias              SGD started at the optimum drifts away from it
    fedax theory exponents         by which powers of the rate and the steps
    fedax theory drift             and FedAvg with it, with identical clients
    fedax theory instability       AGD parts two close starts, FedAc does not
    fedax theory bounds            the rates of FedAvg and FedAc
    """
    from fedax.cli.console import console
    from fedax.papers.theory.drawings import draw
    from fedax.runtime import configure

    configure()

    path = out or Path(f"{picture}.svg")
    with console().status(f"measuring for {path}"):
        lines = draw(picture, path)
    print(*lines, path, sep="\n")


def work_of(experiment: Experiment, federation: Any) -> Work:
    """Clients, local steps and rounds of an experiment; epochs become the steps of a client of mean size."""
    import math

    from fedax.papers.theory import Work

    n = federation.clients
    if experiment.local_epochs is None:
        steps = experiment.local_steps or 1
    else:
        rows = float(federation.train.count.mean())
        steps = max(1, math.ceil(experiment.local_epochs * rows / min(experiment.batch_size or rows, rows)))
    return Work(n=n, m=experiment.cohort or n, K=int(steps), R=experiment.rounds)


def methods_of(experiment: Experiment) -> list[Algorithm | None]:
    """Each of an experiment's methods, with the choices of its table; None for each that has no theorem."""
    from fedax.papers.theory.advice import has_theorem

    made = [table.build() for table in experiment.algorithm]
    return [method if has_theorem(type(method)) else None for method in made]


def _tried(
    method: Algorithm | None, problem: Any, federation: Any, asked: Experiment, constants: Constants, work: Work
) -> Trial | None:
    """A short run of one of the experiment's methods; None where no theorem holds or it has no rate called lr."""
    from fedax.experiments.building import options
    from fedax.papers.theory.trial import trial

    if method is None or not hasattr(method, "lr") or not (found := proposals(constants, work, [method])[0]):
        return None
    how = {**options(asked, asked.seeds[0]), "unseen": 0.0, "patience": None, "stop_by": None}
    how = {name: value for name, value in how.items() if name not in ("rounds", "eval_every", "eval_on")}
    return trial(problem, federation, method, found[0].settings, asked.rounds, **how)


def proposals(constants: Constants, work: Work, methods: Sequence[str | Algorithm]) -> tuple[list[Proposal], list[str]]:
    """A proposal for each method, or one sentence why there is none."""
    from fedax.papers.theory import advise as ask

    found, refused = [], []
    for method in methods:
        try:
            found += ask(constants, work, [method])
        except FedaxError as error:
            refused.append(str(error))
    return found, refused


def common_work(found: list[Proposal], work: Work) -> Work:
    """The work with the local steps that the proposals agree on, else the smallest; rounds to match."""
    steps = {p.method: p.local_steps for p in found}
    if not steps:
        return work
    fewest = min(steps.values())
    if len(set(steps.values())) > 1:
        each = ", ".join(f"{method} {k}" for method, k in steps.items())
        from fedax.cli.console import say

        say(f"local_steps is one field for all methods: {fewest}, the smallest of the proposals ({each})")
    return work.with_steps(fewest)


def show_constants(constants: Constants) -> None:
    """The estimates, as a table."""
    from fedax.cli.console import console, table

    rows = [
        (name, f"{found.value:.4g}", f"{found.low:.4g} to {found.high:.4g}", found.how)
        for name, found in constants.shown().items()
    ]
    numbers = ("", "estimate", "range")
    console().print(table("Constants", (*numbers, "what it is"), rows, right=numbers))


def show_proposals(found: list[Proposal], refused: list[str], work: Work) -> None:
    """The proposals, as a table; below it what does not hold, and why a method has none."""
    from fedax.cli.console import console, say, table

    title = f"Proposals for {work.K} local steps, {work.R} rounds, {work.m} of {work.n} clients"
    rows = []
    for proposal in found:
        bound = proposal.bound
        settings = ", ".join(f"{key} = {_value(value, 4)}" for key, value in proposal.settings.items())
        cells = (proposal.method, settings, bound.theorem, f"{bound.total:.3g}", bound.dominant)
        rows.append((*cells, str(proposal.local_steps)))
    columns = ("method", "settings", "theorem", "bound", "largest term", "local steps*")
    console().print(table(title, columns, rows))
    say(
        f"* the most local steps a round, out of {work.K * work.R} in all, for which the bound is at most twice the "
        "bound with one local step a round, and at most half of it is due to averaging rarely"
    )
    for proposal in found:
        for words in proposal.unmet:
            say(f"{proposal.method}: {words}")
    for words in refused:
        say(f"no proposal for {words}")


def _write(
    source: Path,
    target: Path,
    methods: Sequence[Algorithm | None],
    tried: Sequence[Trial | None],
    asked: Work,
    constants: Constants,
) -> None:
    """The experiment with what is taken in its algorithm tables: the theorems' settings, or the rates that were found.

    Its local steps and rounds are the theorems' where all of its methods take their settings, and else as they were.
    """
    from fedax.cli.console import say
    from fedax.experiments.reading import parse
    from fedax.runs.files import write_whole

    first = [proposals(constants, asked, [method])[0] if method is not None else [] for method in methods]
    by_theorem = not any(one is not None and not one.theorem for one in tried)
    work = common_work([p for some in first for p in some], asked) if by_theorem else asked
    found = [proposals(constants, work, [method])[0] if method is not None else [] for method in methods]
    if not any(found):
        raise FedaxError(f"no theorem of the methods of {source} holds on this problem: there is nothing to apply")
    table = tomllib.loads(source.read_text(encoding="utf-8"))
    if target.resolve().parent != source.resolve().parent:
        table = beside(table, source.parent)
    table.setdefault("name", source.stem)
    if by_theorem:
        table.pop("local_epochs", None)
        table |= {"rounds": work.R, "local_steps": work.K}
    if table.get("eval_every", 1) > work.R:
        table["eval_every"] = work.R
    own = table["algorithm"] if isinstance(table["algorithm"], list) else [table["algorithm"]]
    changed = set()
    for settings, one, some in zip(own, tried, found, strict=True):
        new = dict(some[0].settings) if some else {}
        if one is not None and not one.theorem:
            new = {"lr": _multiplied(settings["lr"], one)}
        settings |= new
        changed |= set(new)
    swept = sorted(changed & set(table.get("sweep", {})))
    if swept:
        say(f"[sweep] goes over {', '.join(swept)}: its values take the place of the proposals")
    try:
        parse(beside(table, source.parent))
    except FedaxError as error:
        raise FedaxError(f"{source} cannot have {work.K} local steps and {work.R} rounds: {error}") from None
    notes = [f"Step sizes by `fedax advise {source.name} --apply`"]
    for some, one in zip(found, tried, strict=True):
        source_of = "a short run on training rows" if one is not None and not one.theorem else None
        notes += [f"{p.method}: {source_of or p.bound.theorem}" for p in some]
    write_whole(target, "".join([*(f"# {words}\n" for words in notes), to_toml(table)]).encode())
    as_they_were = "" if by_theorem else ", as they were"
    say(f"{target}: local_steps = {work.K}, rounds = {work.R}{as_they_were}")


def _multiplied(lr: Any, tried: Trial) -> Any:
    """The rate that a short run found, as the file writes it: a number, or a schedule's table."""
    return {**lr, "initial": tried.found} if isinstance(lr, dict) else tried.found


def to_toml(table: dict[str, Any], inside: str = "") -> str:
    """A table of an experiment file as TOML.

    >>> print(to_toml({"rounds": 3, "data": {"name": "a\\"b"}, "algorithm": [{"lr": 0.1}]}), end="")
    rounds = 3
    [data]
    name = "a\\"b"
    [[algorithm]]
    lr = 0.1
    """
    tables = {k: v for k, v in table.items() if isinstance(v, dict)}
    lists = {k: v for k, v in table.items() if isinstance(v, list) and v and all(isinstance(e, dict) for e in v)}
    lines = [f"{_key(k)} = {_value(v)}\n" for k, v in table.items() if k not in tables and k not in lists]
    for key, inner in tables.items():
        lines.append(f"[{inside}{_key(key)}]\n{to_toml(inner, f'{inside}{_key(key)}.')}")
    for key, many in lists.items():
        for inner in many:
            flat = "".join(f"{_key(k)} = {_value(v)}\n" for k, v in inner.items())
            lines.append(f"[[{inside}{_key(key)}]]\n{flat}")
    return "".join(lines)


def _key(key: str) -> str:
    import json

    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else json.dumps(key)


def _value(value: Any, digits: int | None = None) -> str:
    """A value as TOML writes it inline."""
    import json

    match value:
        case bool():
            return "true" if value else "false"
        case float() if digits is not None:
            return f"{value:.{digits}g}"
        case int() | float():
            return repr(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case dict():
            return "{ " + ", ".join(f"{_key(k)} = {_value(v, digits)}" for k, v in value.items()) + " }"
        case _:
            return "[" + ", ".join(_value(v, digits) for v in value) + "]"
