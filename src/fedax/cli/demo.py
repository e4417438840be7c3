"""`fedax demo`: four methods on handwritten digits."""

from __future__ import annotations

from fedax.cli.carry_out import carry_out
from fedax.cli.options import Debug, Out, Quiet


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
    carry_out(experiment, out, quiet)
