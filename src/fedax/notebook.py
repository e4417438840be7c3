"""How objects show themselves in a notebook: tables of HTML, and a bar that follows a run."""

from __future__ import annotations

import html
import sys
from collections.abc import Callable, Iterable
from typing import Any


def table(title: str, rows: Iterable[tuple[object, ...]], head: tuple[str, ...] = (), note: str = "") -> str:
    """A small table of HTML with a title; every cell is escaped.

    >>> table("a < b", [("rows", 3)])
    '<div><strong>a &lt; b</strong><table><tbody><tr><td>rows</td><td>3</td></tr></tbody></table></div>'
    """
    top = f"<thead><tr>{''.join(f'<th>{html.escape(name)}</th>' for name in head)}</tr></thead>" if head else ""
    lines = "".join(f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    below = f"<p>{html.escape(note)}</p>" if note else ""
    return f"<div><strong>{html.escape(title)}</strong><table>{top}<tbody>{lines}</tbody></table>{below}</div>"


def shell() -> Any:
    """IPython's shell if this is a notebook, else None."""
    ipython = sys.modules.get("IPython")
    found = ipython.get_ipython() if ipython is not None else None
    return found if type(found).__name__ == "ZMQInteractiveShell" else None


def progress(title: str, rounds: int) -> Callable[[int], None] | None:
    """What shows the rounds done as a bar below the cell; None outside a notebook.

    >>> progress("FedAvg", 10)
    """
    if shell() is None:
        return None
    from IPython.display import HTML, display

    shown: Any = None

    def advance(done: int) -> None:
        nonlocal shown
        bar = f"<progress value='{done}' max='{rounds}'></progress> {done} of {rounds} rounds, {html.escape(title)}"
        if shown is None:
            shown = display(HTML(bar), display_id=True)
        else:
            shown.update(HTML(bar))

    return advance
