"""`fedax figures`: pictures for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedax.cli.options import Debug
from fedax.errors import FedaxError


def figures(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Directories of runs, comparisons or sweeps.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the figures go.")] = Path("figures"),
    wide: Annotated[bool, typer.Option("--wide", help="As wide as a page (6.8 in), not a column (3.3 in).")] = False,
    debug: Debug = False,
) -> None:
    """Draw curves, clients and heat maps as PDF and PNG, sized for a paper.

    \b
    fedax figures runs/demo                             one comparison
    fedax figures runs/fedavg runs/scaffold --out figs  runs of the same problem
    fedax figures runs/grid --wide                      a sweep: its heat maps too

    \b
    test-accuracy-round.pdf       against rounds, gradients or floats sent
    clients.pdf                   each client, from the worst to the best
    sweep-fedavg.pdf              a method's settings
    """
    from fedax.report import groups, read_all
    from fedax.report.figures import draw, encode
    from fedax.report.recorded_sweep import read_sweep
    from fedax.report.sentences import apart
    from fedax.runs.files import slug, write_whole
    from fedax.runs.reading import run_folders

    found = groups(read_all(inside for run in runs for inside in run_folders(run)))
    if why := apart(found):
        raise FedaxError(why)
    sweep = read_sweep(runs[0], [group.runs[0].label for group in found]) if len(runs) == 1 else None
    made = draw(found, sweep, wide=wide)
    if not made:
        raise FedaxError(f"{runs[0]} has nothing to draw: none of its runs was evaluated twice")
    out.mkdir(parents=True, exist_ok=True)
    for name, figure in made.items():
        for kind in ("pdf", "png"):
            write_whole(out / f"{slug(name)}.{kind}", encode(figure, kind))
        print(out / f"{slug(name)}.pdf")
