"""`fedax reproduce`: a paper's experiment, our figures beside the printed ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedax.cli.ending import INTERRUPTED, Ended, fail
from fedax.cli.options import Debug, Quiet, Set, assignments
from fedax.errors import FedaxError, unknown

if TYPE_CHECKING:
    from fedax.papers.reproductions import Reproduction, Scale
    from fedax.papers.reproductions.verdict import Measured


def reproduce(
    name: Annotated[str, typer.Argument(metavar="[ID]", help="A reproduction; without one, all are listed.")] = "",
    scale: Annotated[
        str, typer.Option("--scale", metavar="SCALE", help="small, or paper: exactly as printed.")
    ] = "small",
    seeds: Annotated[
        int | None, typer.Option("--seeds", metavar="N", min=1, help="Run N seeds, not the reproduction's number.")
    ] = None,
    part: Annotated[
        list[str] | None,
        typer.Option("--part", metavar="NAME", help="Only this part, such as one cell of a table; repeatable."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", metavar="LABEL", help="Only this method; repeatable."),
    ] = None,
    settings: Set = [],  # noqa: B006
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="A directory for results. Default: runs/<id>-<scale>.")
    ] = None,
    save: Annotated[bool, typer.Option("--save", help="Keep the result with those that come with Fedax.")] = False,
    page: Annotated[
        Path | None,
        typer.Option(
            "--page", metavar="FILE", help="Write the page of all saved results and its pictures, and run nothing."
        ),
    ] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run an experiment of a paper, and show the paper's figures beside ours.

    \b
    fedax reproduce                                 all, and what came out
    fedax reproduce apfl-fig2                       at small scale: minutes
    fedax reproduce apfl-fig2 --scale paper         as printed: hours
    fedax reproduce apfl-fig2 --seeds 5
    fedax reproduce apfl-fig2 --part "2 classes"    one of several settings
    fedax reproduce apfl-fig2 --method SCAFFOLD --out runs/scaffold
    fedax reproduce apfl-fig2 --set algorithm.SCAFFOLD.lr=0.02 --out runs/what-if

    \b
    What was stopped goes on when the same command is given again.
    """
    from fedax.papers.reproductions import SCALES, load

    if page is not None and name:
        raise FedaxError(f"--page is {page}: it is about all reproductions, so the id {name!r} must be left out")
    if page is not None:
        _write_page(page)
        return
    chosen = next((known for known in SCALES if known == scale), None)
    if chosen is None:
        raise unknown("scale", scale, SCALES)
    if not name:
        if out is not None:
            raise FedaxError(f"--out is {out}: it goes with an id")
        show_all()
        return
    if save and settings:
        raise FedaxError(
            f"--set is {settings[0]!r}: a result with changed fields is not the paper's, so leave out --save"
        )
    where = out or Path("runs") / f"{name}-{chosen}"
    some = (part or [], method or [], assignments(settings))
    _carry_out(load(name), chosen, where, seeds, *some, save=save, quiet=quiet)


def _write_page(path: Path) -> None:
    from fedax.papers.reproductions.docs_page import page, pictures
    from fedax.runs.files import write_whole

    folder = path.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures().items():
        write_whole(folder / f"{name}.svg", picture.encode())
    write_whole(path, page(folder.name).encode())
    print(path)


def show_all() -> None:
    """All reproductions, and what is known of each."""
    from fedax.cli.console import console, table
    from fedax.papers.reproductions import SCALES, ids, load
    from fedax.papers.reproductions.docs_page import summary

    rows = []
    for one in map(load, ids()):
        found = [summary(one, scale).split(" (")[0] for scale in SCALES]
        where = f"{one.paper}, {one.where}"
        rows.append((one.id, one.title, where, ", ".join(one.data) or "none", f"{one.minutes:g}", *found))
    columns = ("id", "what", "where", "data", "minutes", *(f"saved, {scale}" for scale in SCALES))
    said = "minutes: roughly, at small scale, on two cores"
    listed = table(
        "Reproductions", columns, rows, right=["minutes"], whole=["id"], spare=["where", "data"], caption=said
    )
    console().print(listed)


def _carry_out(
    reproduction: Reproduction,
    scale: Scale,
    out: Path,
    seeds: int | None,
    parts: list[str],
    methods: list[str],
    changes: list[tuple[str, str]],
    *,
    save: bool,
    quiet: bool,
) -> None:
    """Run it with progress, write its reports, and show what came out."""
    from fedax.cli.console import console
    from fedax.cli.progress import watch
    from fedax.experiments import Progress
    from fedax.papers.reproductions.reproducing import Interrupted, carry_out
    from fedax.papers.reproductions.saving import keep
    from fedax.runs.files import REPORT

    def watched(title: str) -> AbstractContextManager[Progress]:
        if title:
            console().print(title, markup=False, highlight=False)
        return watch(console(), quiet)

    try:
        result, made = carry_out(
            reproduction, scale, out, seeds=seeds, parts=parts, methods=methods, changes=changes, watch=watched
        )
    except Interrupted:
        raise Ended(fail(f"interrupted: the same command goes on in {out}", INTERRUPTED)) from None
    pages = [folder / REPORT for folder, runs in made.items() if runs]
    show(reproduction, scale, result.measured, changes)
    for path in (*pages, out / "result.json"):
        console().print(f"Written: {path}", markup=False, highlight=False, soft_wrap=True)
    if save:
        keep(reproduction, result)


def show(
    reproduction: Reproduction,
    scale: Scale,
    measured: Mapping[str, Measured],
    changes: Sequence[tuple[str, str]] = (),
) -> None:
    """Figures and claims as far as they were measured, and departures."""
    from fedax.cli.console import console, table
    from fedax.papers.reproductions import judge
    from fedax.papers.reproductions.description import PAPERS
    from fedax.papers.reproductions.verdict import seeds
    from fedax.papers.reproductions.wording import HEADINGS, answer, behind, cells

    say, judgement = console(), judge(reproduction, scale, measured)
    say.print(
        f"{reproduction.title}. {PAPERS[reproduction.paper]}, {reproduction.where}.", markup=False, highlight=False
    )
    rows = [row for row in judgement.rows if row.ours is not None]
    claims = [one for one in judgement.claims if one.holds is not None]
    if rows:
        say.print(table("Figures", HEADINGS, map(cells, rows), right=HEADINGS[1:-1]))
    if claims:
        answers = [(one.claim.says, answer(one)) for one in claims]
        say.print(table("Claims", ("the paper says", "holds here"), answers))
    if numbers := behind(reproduction, scale, measured):
        say.print(table("Behind the claims", ("what", "ours"), numbers, right=["ours"]))
    departures = reproduction.departing(scale, seeds(measured))
    departures += [f"Changed: {field} = {value}." for field, value in changes]
    if departures:
        say.print("Departures from the paper:", style="bold")
    for words in departures:
        say.print(f"- {words}", markup=False, highlight=False)
    say.print(f"{reproduction.id}, {scale} scale: {judgement.verdict} ({judgement.counts})", style="bold")
