"""Names from outside: "mymodule:Name" and "path/to/file.py:Name" stand for classes and functions of the user's own.

A module is looked for in the current directory too. A file is imported once, under a module name that follows from its
path: naming it again gives the same classes and functions, so compiled programs are reused.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from fedax.errors import FedaxError, unknown
from fedax.own_code import place, words


def is_outside(name: object) -> bool:
    """Whether a name is of the form "module:Name" or "file.py:Name".

    >>> is_outside("mymodule:MyMethod"), is_outside("FedAvg")
    (True, False)
    """
    return isinstance(name, str) and ":" in name


def load(name: str, kind: str, check: Callable[[Any], bool], advice: str) -> Any:
    """The object that a name from outside stands for; a FedaxError of one sentence if it is missing or of another kind.

    kind: the kind of object that is needed, in one word.
    check: a function that says whether an object is of that kind.
    advice: what an object of that kind must be, for the error.

    >>> load("math:sqrt", "function", callable, "it must be callable")(4.0)
    2.0
    >>> load("math:sqr", "function", callable, "it must be callable")
    Traceback (most recent call last):
    fedax.errors.FedaxError: unknown function of math 'sqr': did you mean 'sqrt'? Allowed: acos, ...
    >>> load("math:pi", "function", callable, "it must be callable")
    Traceback (most recent call last):
    fedax.errors.FedaxError: math:pi is no function: it must be callable
    """
    home, _, inside = name.rpartition(":")
    if not home or not inside:
        raise FedaxError(f"{name!r} is no {kind}: it must be written module:Name or path/to/file.py:Name")
    module = _file(home) if home.endswith(".py") else _module(home)
    if not hasattr(module, inside):
        here = {n: value for n, value in vars(module).items() if not n.startswith("_") and _is_of(module, value)}
        likely = [n for n, value in here.items() if _checked(check, value)]
        if not likely:
            raise FedaxError(f"{home} has no {inside!r}, and no {kind} at all")
        raise unknown(f"{kind} of {home}", inside, likely)
    found = getattr(module, inside)
    if not _checked(check, found):
        raise FedaxError(f"{name} is no {kind}: {advice}")
    return found


def call(name: str, function: Callable[..., Any], options: Mapping[str, Any], **offered: Any) -> Any:
    """Call the object that a name stands for with a table's options, and with those offered arguments that it takes.

    >>> call("mine:make", lambda width, outputs: (width, outputs), {"width": 3}, outputs=2, seed=0)
    (3, 2)
    >>> call("mine:make", lambda width: width, {"widht": 3})
    Traceback (most recent call last):
    fedax.errors.FedaxError: unknown option of mine:make 'widht': did you mean 'width'? Allowed: width
    """
    taken = parameters(function)
    names = [p.name for p in taken if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    anything = any(p.kind is p.VAR_KEYWORD for p in taken)
    for given in options:
        if given not in names and not anything:
            raise unknown(f"option of {name}", given, names) if names else FedaxError(f"{name} has no options")
    values = {key: value for key, value in offered.items() if key in names or (anything and key == "outputs")}
    values |= {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    required = [p.name for p in taken if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    if missing := [needed for needed in required if needed not in values]:
        raise FedaxError(f"{name} needs {', '.join(missing)}")
    try:
        return function(**values)
    except FedaxError:
        raise
    except (Exception, SystemExit) as error:
        where = place(error)
        raise FedaxError(f"{name} fails{f' in {where}' if where else ''}: {words(error)}") from error


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The arguments that a function or a class takes; the fields that Flax adds to every module are left out.

    >>> [p.name for p in parameters(lambda a, b=1: a)]
    ['a', 'b']
    """
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    flax = hasattr(function, "init") and hasattr(function, "apply")
    return [p for p in found if not (flax and p.name in ("parent", "name"))]


def beside(table: Any, folder: Path) -> Any:
    """A table of an experiment file with each "file.py:Name" found from its directory, if not from the current one.

    >>> beside({"name": "FedAvg", "lr": 0.1}, Path("experiments"))
    {'name': 'FedAvg', 'lr': 0.1}
    """
    if isinstance(table, dict):
        return {key: beside(value, folder) for key, value in table.items()}
    if isinstance(table, list):
        return [beside(value, folder) for value in table]
    if is_outside(table) and "\n" not in table:
        home, _, inside = table.rpartition(":")
        if home.endswith(".py") and not Path(home).is_file() and (folder / home).is_file():
            return f"{(folder / home).resolve()}:{inside}"
    return table


def own_files(table: Any, folder: Path) -> dict[str, Path]:
    """The user's files that a table's names from outside stand for: where each is, by its path in the names.

    folder: that of the experiment file, where files are looked for after the current directory, as `beside` does. A
        module counts if it is one file of either directory; an installed package does not.

    >>> own_files({"name": "FedAvg", "lr": 0.1}, Path("experiments"))
    {}
    """
    if isinstance(table, dict):
        table = list(table.values())
    if isinstance(table, list):
        return {path: file for value in table for path, file in own_files(value, folder).items()}
    if not is_outside(table) or "\n" in table:
        return {}
    home = table.rpartition(":")[0]
    path = home if home.endswith(".py") else f"{home.replace('.', '/')}.py"
    found = next((file for file in (Path(path), folder / path) if file.is_file()), None)
    return {} if found is None else {path: found}


def portable(table: Any) -> Any:
    """A table whose names from outside have no folders, so that it is the same wherever the files are.

    >>> portable({"name": "/home/me/nets.py:Net", "hidden": [5]})
    {'name': 'nets.py:Net', 'hidden': [5]}
    """
    if isinstance(table, Mapping):
        return {key: portable(value) for key, value in table.items()}
    if isinstance(table, list | tuple):
        return [portable(value) for value in table]
    return Path(table).name if is_outside(table) and table.rpartition(":")[0].endswith(".py") else table


def _module(name: str) -> ModuleType:
    with _importing(f"the module {name!r}", Path.cwd()):
        importlib.invalidate_caches()
        return importlib.import_module(name)


def _file(name: str) -> ModuleType:
    path = Path(name).expanduser().resolve()
    if not path.is_file():
        raise FedaxError(f"the file {name!r} does not exist")
    own = f"fedax_outside_{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}_{path.stem}"
    if own in sys.modules:
        return sys.modules[own]
    with _importing(f"the file {name!r}", path.parent):
        spec = importlib.util.spec_from_file_location(own, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[own] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[own]
            raise
    return module


@contextmanager
def _importing(what: str, folder: Path) -> Iterator[None]:
    """Look for modules in a directory first; whatever an import raises becomes one sentence."""
    here = str(folder)
    sys.path.insert(0, here)
    try:
        yield
    except (Exception, SystemExit) as error:
        raise FedaxError(f"{what} cannot be imported: {words(error)}") from error
    finally:
        if here in sys.path:
            sys.path.remove(here)


def _is_of(module: ModuleType, value: Any) -> bool:
    """Whether an object's class or function comes from a module or a part of it, as far as that is known."""
    home = getattr(value, "__module__", None) or module.__name__
    return home == module.__name__ or home.startswith(module.__name__ + ".")


def _checked(check: Callable[[Any], bool], value: Any) -> bool:
    try:
        return bool(check(value))
    except Exception:
        return False
