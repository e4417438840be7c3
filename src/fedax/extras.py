"""Packages that an extra of Fedax brings, imported when they are first needed."""

from __future__ import annotations

import importlib
from typing import Any

from fedax.errors import FedaxError


def needed(package: str, extra: str, what: str) -> Any:
    """A package that some part of Fedax needs; where it is not installed, a sentence that names the extra.

    >>> needed("no_such_package", "tables", "a table")
    Traceback (most recent call last):
    fedax.errors.FedaxError: a table needs no_such_package: pip install 'fedax[tables]'
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise FedaxError(f"{what} needs {package}: pip install 'fedax[{extra}]'") from error
