"""The `fedax` command. Only what shows help is loaded at once; JAX is loaded by the commands that need it."""

from __future__ import annotations

from fedax.cli.app import invoke, main

__all__ = ["invoke", "main"]
