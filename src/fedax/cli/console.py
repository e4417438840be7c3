"""Where the command line prints; by itself, so that what only prints loads nothing else."""

from __future__ import annotations

import sys

from rich.console import Console


def console() -> Console:
    """Standard output; wide enough for the tables where there is no terminal to fit."""
    return Console(width=None if sys.stdout.isatty() else 140)
