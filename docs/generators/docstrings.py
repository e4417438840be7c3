"""Fedax's docstrings as Markdown: examples in fences, lists of parameters as lists, formulas as they stand."""

from __future__ import annotations

import re

PARAMETER = re.compile(r"^([A-Za-z_]\w*(?:, [A-Za-z_]\w*)*) ?: (.+)$")


def markdown(text: str) -> str:
    """A docstring as Markdown.

    >>> markdown("Sum.\\n\\na: first\\nb: second,\\n    and last").splitlines()
    ['Sum.', '', '- **`a`**: first', '- **`b`**: second, and last']
    >>> markdown(">" + ">> 1 + 1\\n2").splitlines()
    ['```pycon', '>>> 1 + 1', '2', '```']
    """
    paragraphs = [part.strip("\n") for part in re.split(r"\n[ \t]*\n", text.strip("\n"))]
    return "\n\n".join(_paragraph(part) for part in paragraphs if part.strip())


def _paragraph(text: str) -> str:
    lines = text.splitlines()
    if lines[0].lstrip().startswith(">>>"):
        return "\n".join(
            ["```pycon", *(line.strip() if line.lstrip()[:3] in (">>>", "...") else line for line in lines), "```"]
        )
    if len(lines) > 1 and set(lines[1].strip()) == {"-"}:  # a heading in NumPy's way
        rest = _paragraph("\n".join(lines[2:])) if lines[2:] else ""
        return f"**{lines[0].strip()}**\n\n{rest}"
    if all(line.startswith("    ") for line in lines):
        return "\n".join(["```text", *(line[4:] for line in lines), "```"])
    indented = next((i for i, line in enumerate(lines) if i and line.startswith("  ")), None)
    if PARAMETER.match(lines[0]):
        return _parameters(lines)
    if indented is not None and all(line.startswith("  ") for line in lines[indented:]):
        return f"{_paragraph(chr(10).join(lines[:indented]))}\n\n" + "\n".join(
            ["```text", *(line.removeprefix("  ") for line in lines[indented:]), "```"]
        )
    if lines[0].startswith("- "):
        return "\n".join(map(_plain, lines))
    return "\n".join(_plain(line.strip()) for line in lines)


def _parameters(lines: list[str]) -> str:
    found: list[str] = []
    for line in lines:
        if match := PARAMETER.match(line):
            found.append(f"- **`{match[1]}`**: {_plain(match[2])}")
        else:
            found[-1] += " " + _plain(line.strip())
    return "\n".join(found)


def _plain(line: str) -> str:
    """A line whose signs Markdown would take for its own, but for those in backticks."""
    pieces = re.split(r"(`[^`]*`)", line)
    return "".join(
        p if p.startswith("`") else p.replace("<", "&lt;").replace("*", "\\*").replace("[", "\\[") for p in pieces
    )
