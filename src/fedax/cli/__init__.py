"""The `fedax` command. Only what shows help is loaded at once; JAX is loaded by the commands that need it."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main() -> None:
    """The `fedax` program."""
    try:
        from fedax.cli.app import main as program

        program()
    except KeyboardInterrupt:  # while the commands are loaded, or at the very end
        print("error: interrupted", file=sys.stderr)
        sys.exit(130)


def invoke(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code: 0, 1 a run failed, 2 bad input, 130 interrupted.

    >>> invoke(["--version"])
    fedax 0.2.0
    0
    """
    from fedax.cli.app import invoke as carried_out

    return carried_out(arguments)
