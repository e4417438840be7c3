"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedax.errors import FedaxError

File = Annotated[Path, typer.Argument(help="The experiment, a TOML file.", show_default=False)]
Set = Annotated[
    list[str],
    typer.Option("--set", metavar="FIELD=VALUE", help="Change a field, such as algorithm.lr=0.05; repeatable."),
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
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        metavar="N",
        help="Divide the clients over N processes on this machine, their rows and states with them.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Plain lines instead of progress bars.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def assignments(settings: list[str]) -> list[tuple[str, str]]:
    """The fields and values of `--set`.

    >>> assignments(["algorithm.lr = 0.05"])
    [('algorithm.lr', '0.05')]
    """
    pairs = []
    for setting in settings:
        field, equals, value = setting.partition("=")
        if not equals:
            raise FedaxError(f"--set is {setting!r}: it must be FIELD=VALUE, such as algorithm.lr=0.05")
        pairs.append((field.strip(), value.strip()))
    return pairs
