"""`fedax flower`: an app folder for Flower from an experiment, keys for a test federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedax.cli.flower_keys import check, keys
from fedax.cli.options import Debug

app = typer.Typer(help="Run a method over a real network, on Flower.", no_args_is_help=True, rich_markup_mode="rich")
app.command()(keys)
app.command()(check)


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new directory for the app.", show_default=False)],
    experiment: Annotated[
        Path, typer.Option("--from", metavar="FILE", help="The experiment, a TOML file.", show_default=False)
    ],
    debug: Debug = False,
) -> None:
    """Write an app folder that `flwr run` takes: the experiment, a server and a client.

    \b
    fedax flower new hospitals --from experiment.toml
    flower-superlink --insecure --disable-runtime-dependency-installation
    flower-supernode --insecure --superlink 127.0.0.1:8000 --port 8101 \\
        --node-config 'partition-id=0'
    flwr run hospitals
    """
    from fedax.flower import require
    from fedax.flower.app_folder import new as write

    require()
    for path in write(folder, experiment):
        print(path)


@app.command()
def worker(
    address: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="The SuperNode's address: its --host and --port.")
    ],
    root_certificates: Annotated[
        Path | None,
        typer.Option(
            "--root-certificates", metavar="FILE", help="The authority's certificate, if the SuperNode uses TLS."
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Carry out a SuperNode's messages in one process, which keeps JAX, the rows and the compiled programs.

    \b
    flower-supernode --insecure --isolation process --port 8101 \\
        --node-config 'partition-id=0'
    fedax flower worker 127.0.0.1:8101
    """
    from fedax.flower import require
    from fedax.flower.addresses import check_address
    from fedax.flower.certificates import check_certificate
    from fedax.flower.worker_process import keep

    check_address("HOST:PORT", address)
    if root_certificates is not None:
        check_certificate("--root-certificates", root_certificates)
    require()
    keep(address, None if root_certificates is None else str(root_certificates))
