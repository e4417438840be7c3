"""optax, loaded at the first use of any of it: a fifth of a second that listing the methods does not need."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    import optax

    return getattr(optax, name)
