"""The reference of the command line: every command's help as a page."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer


def page() -> str:
    """The whole page."""
    from fedax.cli.app import app

    head = (
        "# Commands\n\n`fedax COMMAND --help` shows the same on the screen. Every command takes `--debug`, which shows "
        "a traceback with an error.\n"
    )
    lines = [head, *_command("fedax", typer.main.get_command(app))]
    return "\n".join(lines) + "\n"


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its whole name, groups too."""
    from fedax.cli.app import app

    def below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        yield name, command
        for sub, one in getattr(command, "commands", {}).items():
            yield from below(f"{name} {sub}", one)

    yield from below("fedax", typer.main.get_command(app))


def examples(command: Any) -> list[str]:
    """The command lines that a command's help shows; the words beside one become a comment."""
    _, _, block = inspect.cleandoc(command.help or "").partition("\b\n")
    lines = [re.sub(r"\[/?bold\]", "", line).strip() for line in block.splitlines()]
    return [re.sub(r"(\s{2,})(?!#)(?=\S)", r"\1# ", line, count=1) for line in lines if line.startswith("fedax ")]


def _command(name: str, command: Any) -> Iterator[str]:
    text, _, _ = inspect.cleandoc(command.help or "").partition("\b\n")
    if name != "fedax":
        yield f"\n{'#' * (1 + name.count(' '))} {name}\n"
    yield re.sub(r"\s+", " ", text).strip().replace("<", "&lt;").replace("[", "\\[") + "\n"
    if lines := examples(command):
        yield "\n".join(["```console", *lines, "```", ""])
    shown = [p for p in command.params if not getattr(p, "hidden", False) and p.name not in ("debug", "help")]
    if shown:
        yield "| argument or option | default | what |\n|---|---|---|"
        yield from map(_parameter, shown)
    for sub, one in getattr(command, "commands", {}).items():
        yield from _command(f"{name} {sub}", one)


def _parameter(parameter: Any) -> str:
    options = [*parameter.opts, *parameter.secondary_opts]
    metavar = parameter.metavar or ""
    if not options[0].startswith("-"):
        shown = f"`{metavar or parameter.name.upper()}`"
    else:
        taken = "" if getattr(parameter, "is_flag", False) else f" {metavar or parameter.type.name.upper()}"
        shown = ", ".join(f"`{one}{taken}`" for one in options)
    default = parameter.default
    told = "–" if default in (None, False, "", (), []) or callable(default) else f"`{default}`"
    told = "required" if parameter.required else told
    return f"| {shown} | {told} | {(parameter.help or '').replace('|', '/').replace('[', chr(92) + '[')} |"
