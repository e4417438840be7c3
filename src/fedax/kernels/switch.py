"""The one switch of this room: the forms that are fast on a CPU, or XLA's own."""

from __future__ import annotations

import os

from fedax import platforms
from fedax.errors import FedaxError

VARIABLE = "FEDAX_KERNELS"


def wanted() -> bool:
    """Whether the user leaves the switch on; any word but on and off is refused."""
    chosen = os.environ.get(VARIABLE, "")
    if chosen not in ("", "on", "off"):
        raise FedaxError(f"{VARIABLE} is {chosen!r}: it must be on or off")
    return chosen != "off"


def enabled() -> bool:
    """Whether programs take this room's forms: on a CPU, unless FEDAX_KERNELS=off. Asked when a program is traced.

    >>> enabled() == (platforms.kind() == "cpu" and os.environ.get("FEDAX_KERNELS") != "off")
    True
    """
    return wanted() and platforms.current().kernels
