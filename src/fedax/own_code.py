"""Exceptions in a user's own functions: one sentence with the function's name and the line in the user's file.

Losses, models, methods, metrics and callbacks are called from many places. Whatever one of them raises is recognised
by its traceback: the innermost frame that is neither Fedax's nor a library's is the user's.
"""

from __future__ import annotations

import inspect
import os
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from fedax.errors import FedaxError

_HERE = str(Path(__file__).parent) + os.sep
_LIBRARIES = tuple(
    {_HERE, "<frozen ", "<attrs "}
    | {os.path.join(sysconfig.get_path(kind), "") for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
)


@contextmanager
def telling_whose() -> Iterator[None]:
    """Within the block, an exception of a user's own function or a lack of memory becomes one sentence that names it.

    >>> def mine():
    ...     raise KeyError("weights")
    >>> with telling_whose():
    ...     mine()
    Traceback (most recent call last):
    fedax.errors.FedaxError: mine (<doctest ...>, line 2) raises KeyError: 'weights'
    """
    try:
        yield
    except FedaxError:
        raise
    except (Exception, SystemExit) as error:
        if (where := place(error)) is not None:
            raise FedaxError(f"{where} raises {words(error)}") from error
        if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
            raise FedaxError(f"there is not enough memory for this: {words(error)}") from error
        raise


def place(error: BaseException) -> str | None:
    """The user's function and line that an exception comes from, or None if no code of the user's took part.

    >>> try:
    ...     int("x")
    ... except ValueError as error:
    ...     place(error)
    '<module> (<doctest ...>, line 2)'
    """
    found = None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(_LIBRARIES):
            found = f"{_plain(code.co_qualname)} ({code.co_filename}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return found


def defined(function: Callable[..., Any]) -> str:
    """A user's function, and where it is defined.

    >>> def mine():
    ...     return 1
    >>> defined(mine)
    'mine (<doctest ...>, line 1)'
    """
    plain = inspect.unwrap(getattr(function, "__func__", function))
    name = _plain(getattr(plain, "__qualname__", type(plain).__name__))
    code = getattr(plain, "__code__", None)
    return name if code is None else f"{name} ({code.co_filename}, line {code.co_firstlineno})"


def _plain(name: str) -> str:
    """A qualified name without the functions that it is defined in.

    >>> _plain("test.<locals>.Mine.step")
    'Mine.step'
    """
    return name.rpartition("<locals>.")[2]


def words(error: BaseException) -> str:
    """The type of an exception and the first line of its message.

    >>> words(ValueError("no such thing\\nat all"))
    'ValueError: no such thing'
    """
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
