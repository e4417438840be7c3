"""Names of hosts and addresses with a port, checked before anything is made for them or sent to them."""

from __future__ import annotations

import ipaddress
import re

from fedax.errors import FedaxError

_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
LONGEST = 253  # characters of a host's name, as DNS has it


def check_host(field: str, host: str) -> None:
    """Raise if text is neither a host's name nor an address.

    >>> check_host("--host", "fed.example.org"), check_host("--host", "::1")
    (None, None)
    >>> check_host("--host", "two words")
    Traceback (most recent call last):
    fedax.errors.FedaxError: --host is 'two words': it must be a host's name such as fed.example.org, or its ...
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        labels = host.removesuffix(".").split(".")
        numbers = all(label.isdecimal() for label in labels)  # an address that is none
        if len(host) > LONGEST or numbers or not all(_LABEL.fullmatch(label) for label in labels):
            shown = host if len(host) <= 60 else f"{host[:57]}..."
            allowed = "a host's name such as fed.example.org, or its address, without a port"
            raise FedaxError(f"{field} is {shown!r}: it must be {allowed}") from None


def check_address(field: str, address: str) -> None:
    """Raise if text is not HOST:PORT.

    >>> check_address("HOST:PORT", "127.0.0.1:8101")
    >>> check_address("HOST:PORT", "127.0.0.1:99999")
    Traceback (most recent call last):
    fedax.errors.FedaxError: HOST:PORT is '127.0.0.1:99999': its port must be a whole number from 1 to 65535
    """
    host, _, port = address.rpartition(":")
    shown = address if len(address) <= 60 else f"{address[:57]}..."
    if not host:
        raise FedaxError(f"{field} is {shown!r}: it must be HOST:PORT, such as 127.0.0.1:8101")
    if not (port.isascii() and port.isdecimal() and len(port) < 6 and 0 < int(port) < 65536):
        raise FedaxError(f"{field} is {shown!r}: its port must be a whole number from 1 to 65535")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise FedaxError(f"{field} is {shown!r}: an address with colons must be in brackets, such as [::1]:8101")
    check_host(f"the host of {field}", host.removeprefix("[").removesuffix("]"))
