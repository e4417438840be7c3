"""`fedax advise` and `fedax theory`: the theorems on an experiment, and their pictures."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedax.cli.options import Debug
from fedax.errors import FedaxError
from fedax.outside import beside, is_outside

if TYPE_CHECKING:
    from fedax.experiments import Experiment
    from fedax.papers.theory import Constants, Proposal, Work

File = Annotated[Path, typer.Argument(help="The experiment, a TOML file.", show_default=False)]


def advise(
    experiment: File,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write the experiment anew, with the proposed hyper-parameters.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where to. Default: <name>-advised.toml beside it.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Estimate the constants of the theorems on an experiment, and propose step sizes and local steps by them.

    \b
    fedax advise experiment.toml
    fedax advise experiment.toml --apply
    fedax advise experiment.toml --apply --out better.toml
    """
    from fedax.cli.console import console
    from fedax.engine.prepare import in_memory
    from fedax.experiments import read
    from fedax.experiments.building import prepare
    from fedax.papers.theory import estimate
    from fedax.papers.theory.advice import with_theorem
    from fedax.runtime import configure

    configure()

    if out is not None and not apply:
        raise FedaxError(f"--out is {out}: it goes with --apply")
    target = out or experiment.with_name(f"{experiment.stem}-advised.toml")
    if apply and target.exists():
        raise FedaxError(f"{target} already exists: choose another with --out")
    asked = read(experiment)
    own = methods_of(asked)
    if apply and not any(own):
        raise FedaxError(f"no method of {experiment} has a theorem to apply: {', '.join(with_theorem())} have one")
    problem, federation = prepare(asked)
    with console().status("estimating L, mu, sigma, zeta and B"):
        constants = estimate(problem, in_memory(federation), batch_size=asked.batch_size, seed=asked.seeds[0])
    work = work_of(asked, federation)
    found, refused = proposals(constants, work, [*with_theorem(), *filter(is_outside, dict.fromkeys(own))])
    show_constants(constants)
    show_proposals(found, refused, work)
    if apply:
        applied = proposals(constants, work, [name for name in dict.fromkeys(own) if name])[0]
        _write(experiment, target, own, common_work(applied, work), constants)


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


def methods_of(experiment: Experiment) -> list[str]:
    """The name of each of an experiment's methods that has a theorem; an empty one for each that has none."""
    from fedax.papers.theory.advice import has_theorem

    made = [(table.name, type(table.build())) for table in experiment.algorithm]
    return [(name if is_outside(name) else cls.__name__) if has_theorem(cls) else "" for name, cls in made]


def proposals(constants: Constants, work: Work, methods: list[str]) -> tuple[list[Proposal], list[str]]:
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
        print(f"local_steps is one field for all methods: {fewest}, the smallest of the proposals ({each})")
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
    from fedax.cli.console import console, table

    title = f"Proposals for {work.K} local steps, {work.R} rounds, {work.m} of {work.n} clients"
    rows = []
    for proposal in found:
        bound = proposal.bound
        settings = ", ".join(f"{key} = {_value(value, 4)}" for key, value in proposal.settings.items())
        cells = (proposal.method, settings, bound.theorem, f"{bound.total:.3g}", bound.dominant)
        rows.append((*cells, str(proposal.local_steps)))
    columns = ("method", "settings", "theorem", "bound", "largest term", "local steps*")
    console().print(table(title, columns, rows))
    print(
        f"* the largest number a round, at the same {work.K * work.R} local steps in all, whose bound is at most twice "
        "that of one local step a round, and at most half of which comes of averaging rarely"
    )
    for proposal in found:
        for words in proposal.unmet:
            print(f"{proposal.method}: {words}")
    for words in refused:
        print(f"no proposal for {words}")


def _write(source: Path, target: Path, methods: list[str], work: Work, constants: Constants) -> None:
    """The experiment with the proposals for this work in its algorithm tables, its local steps and its rounds."""
    from fedax.experiments.reading import parse
    from fedax.runs.files import write_whole

    found = {name: p for name in dict.fromkeys(methods) if name for p in proposals(constants, work, [name])[0]}
    if not found:
        raise FedaxError(f"no theorem of the methods of {source} holds on this problem: there is nothing to apply")
    table = tomllib.loads(source.read_text(encoding="utf-8"))
    if target.resolve().parent != source.resolve().parent:
        table = beside(table, source.parent)
    table.setdefault("name", source.stem)
    table.pop("local_epochs", None)
    table |= {"rounds": work.R, "local_steps": work.K}
    if table.get("eval_every", 1) > work.R:
        table["eval_every"] = work.R
    own = table["algorithm"] if isinstance(table["algorithm"], list) else [table["algorithm"]]
    for settings, method in zip(own, methods, strict=True):
        settings |= found[method].settings if method in found else {}
    swept = sorted({name for p in found.values() for name in p.settings} & set(table.get("sweep", {})))
    if swept:
        print(f"[sweep] goes over {', '.join(swept)}: its values take the place of the proposals")
    try:
        parse(beside(table, source.parent))
    except FedaxError as error:
        raise FedaxError(f"{source} cannot have {work.K} local steps and {work.R} rounds: {error}") from None
    notes = [f"Step sizes and local steps by `fedax advise {source.name} --apply`"]
    notes += [f"{proposal.method}: {proposal.bound.theorem}" for proposal in found.values()]
    write_whole(target, "".join([*(f"# {words}\n" for words in notes), to_toml(table)]).encode())
    print(f"{target}: local_steps = {work.K}, rounds = {work.R}")


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
