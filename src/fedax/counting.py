"""How many gradients a method really takes: counted while its functions are traced, not declared.

A gradient on b rows counts b, a Hessian-vector product twice that.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator


@dataclasses.dataclass
class Tally:
    """Gradients taken on minibatches and on all of a client's rows."""

    minibatch: int = 0
    full: int = 0
    factor: int = 1


_ACTIVE: contextvars.ContextVar[Tally | None] = contextvars.ContextVar("tally", default=None)


def active() -> Tally | None:
    """The current tally, or None."""
    return _ACTIVE.get()


def took(gradients: int, *, full: bool) -> None:
    """Add gradients to the current tally, if there is one."""
    tally = _ACTIVE.get()
    if tally is None:
        return
    if full:
        tally.full += gradients * tally.factor
    else:
        tally.minibatch += gradients * tally.factor


@contextlib.contextmanager
def counted() -> Iterator[Tally]:
    """Count the gradients taken within the block.

    >>> with counted() as tally:
    ...     took(1, full=False)
    >>> tally.minibatch
    1
    """
    tally = Tally()
    token = _ACTIVE.set(tally)
    try:
        yield tally
    finally:
        _ACTIVE.reset(token)


@contextlib.contextmanager
def times(factor: int) -> Iterator[None]:
    """Gradients taken within the block count `factor` times."""
    tally = _ACTIVE.get()
    assert tally is not None
    tally.factor *= factor
    try:
        yield
    finally:
        tally.factor //= factor
