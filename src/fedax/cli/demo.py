"""`fedax demo`: four methods on handwritten digits."""

from __future__ import annotations

from fedax.cli.carry_out import carry_out
from fedax.cli.options import Debug, Out, Quiet

ABOUT = (
    "Twenty clients hold 2 of the 10 handwritten digits each. A client trains on about nine rows, few on purpose: a "
    "client with little data gains from the others. FedAvg and SCAFFOLD train one shared model, APFL a personal model "
    "for each client besides; with LocalOnly each client trains alone: it is what federation has to beat."
)


def demo(out: Out = None, quiet: Quiet = False, debug: Debug = False) -> None:
    """Compare four methods on handwritten digits: 20 clients, each with 2 of the 10 digits.

    \b
    fedax demo
    fedax demo --out runs/my-demo
    """
    from importlib.resources import as_file, files

    from fedax.cli.console import console
    from fedax.experiments import read

    console().print(ABOUT, markup=False, highlight=False)
    with as_file(files("fedax.experiments") / "demo.toml") as path:
        experiment = read(path)
    carry_out(experiment, out, quiet)
