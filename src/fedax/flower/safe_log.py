"""The log of a federation: whatever a site sends becomes one line of printable text of limited length."""

from __future__ import annotations

import logging

LENGTH = 2000  # characters of a line


def printable(text: str) -> str:
    r"""The text with every character that is not printable written as an escape, cut where it is too long.

    >>> printable("all is well\n2026-01-01 INFO finished \x1b[2J")
    'all is well\\n2026-01-01 INFO finished \\x1b[2J'
    """
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[: LENGTH + 1])
    return shown if len(shown) <= LENGTH else f"{shown[:LENGTH]} ..."


class _Printable(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = printable(record.getMessage()), ()
        return True


log = logging.getLogger("flwr.fedax")
log.addFilter(_Printable())
