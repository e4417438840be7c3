"""The kinds of named datasets: rows that a partition divides, or a federation that comes divided."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from fedax.data.checks import Array
from fedax.data.datasets.fetching import Published, present
from fedax.data.federation import Federation
from fedax.data.storage.sharing import shared
from fedax.errors import FedaxError, unknown

REQUIRED = object()  # the default of an option that has none


@dataclass(frozen=True)
class Dataset:
    """A named dataset; `read` returns its flat arrays, `x` and `y`, and `read_test` those of its own test set. For a
    user's table `read` returns a checked `fedax.data.tables.table.Table`.

    rows, classes, test_rows: the published numbers; 0 where they depend on the files, no classes for a regression.
    files: what is downloaded.
    options: further arguments of `read`, with their defaults; `standardise` says whether `normalise` is used.
    normalise: mean and deviation of each channel, from 0 to 1, by which the literature scales the images.

    >>> from fedax.data import DATASETS
    >>> {key: (array.shape, str(array.dtype)) for key, array in DATASETS["digits"].read().items()}
    {'x': ((1797, 64), 'float32'), 'y': ((1797,), 'int32')}
    """

    name: str
    what: str
    read: Callable[..., Any]
    rows: int = 0
    classes: int = 0
    test_rows: int = 0
    read_test: Callable[..., dict[str, Array]] | None = None
    files: tuple[Published, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    normalise: Mapping[str, Sequence[float]] | None = None
    reference: str = ""

    @property
    def description(self) -> str:
        """One line about the set.

        >>> from fedax.data import DATASETS
        >>> DATASETS["iris"].description
        '4 features of flowers, standardised, 3 classes, 150 rows'
        """
        sizes = [f"{self.classes} classes"] * bool(self.classes) + [f"{self.rows} rows"] * bool(self.rows)
        return ", ".join([self.what, *sizes])

    @property
    def own(self) -> bool:
        """Whether the rows are a user's own, in a file that `path` names."""
        return "path" in self.options

    def resolved(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options with every default written out; a wrong one raises.

        >>> from fedax.data import DATASETS
        >>> DATASETS["csv"].resolved({"path": "cells.csv"})
        Traceback (most recent call last):
        fedax.errors.FedaxError: csv needs label: its options are path, label, client, features, categorical, ...
        """
        for name in options:
            if name not in self.options:
                raise unknown(f"option of {self.name}", name, [*self.options, "partition", "split", "seed", "test"])
        chosen = {**self.options, **options}
        for name, value in chosen.items():
            if value is REQUIRED:
                raise FedaxError(f"{self.name} needs {name}: its options are {', '.join(self.options)}")
            if name == "standardise" and not isinstance(value, bool):
                raise FedaxError(f"standardise is {value!r}: it must be true or false")
            if name in ("path", "label", "client", "subset", "weights", "task") and not isinstance(value, str | None):
                raise FedaxError(f"{name} is {value!r}: it must be text")
        return chosen

    def scale(self, options: Mapping[str, Any]) -> Mapping[str, Sequence[float]] | None:
        """The mean and deviation by which a model is to see the images, or None for pixels from 0 to 1.

        >>> from fedax.data import DATASETS
        >>> DATASETS["mnist"].scale({"standardise": True})
        {'mean': (0.1307,), 'std': (0.3081,)}
        """
        return self.normalise if options.get("standardise", True) else None

    def arrays(self, part: Literal["train", "test"], options: Mapping[str, Any]) -> dict[str, Array]:
        """The flat arrays, read-only; every call gives the same copy."""
        options = {name: value for name, value in options.items() if name != "standardise"}  # the bytes are the same
        if part == "train":
            return shared(self.key(part, options), lambda: self.read(**options))
        if self.read_test is None:
            raise FedaxError(f"test is 'official': {self.name} has no test set of its own, so it must be left out")
        read = self.read_test
        return shared(self.key(part, options), lambda: read(**options))

    def key(self, part: str, options: Mapping[str, Any]) -> Hashable:
        """A key of the rows: the same for the same rows, another one for another file at the same path."""
        places = [Path(options["path"]).expanduser()] if self.own else [present(file) for file in self.files]
        states = [path.stat() if path and path.exists() else None for path in places]
        return (
            self.name,
            part,
            repr(sorted(options.items())),
            tuple((str(p), s.st_size, s.st_mtime_ns) for p, s in zip(places, states, strict=True) if s),
        )


@dataclass(frozen=True)
class Divided:
    """A named dataset that comes divided among clients: `make` takes its options and returns the federation.

    presets: sizes by name, for a generated dataset; its options are `preset` and changes of the sizes.
    defaults: the other options.

    >>> from fedax.data import FEDERATIONS
    >>> FEDERATIONS["lasso"].resolved({"preset": "thesis-III", "rows": 16})["ones"]
    8
    """

    name: str
    description: str
    make: Callable[..., Federation]
    presets: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> list[str]:
        """The names of all options; generated data takes a seed besides."""
        sizes = ["preset", *(f.name for f in fields(next(iter(self.presets.values()))))] if self.presets else []
        return [*(name for name in sizes if name not in self.defaults), *self.defaults]

    def resolved(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options with every default written out; a wrong one raises.

        >>> from fedax.data import FEDERATIONS
        >>> FEDERATIONS["low_rank"].resolved({})
        Traceback (most recent call last):
        fedax.errors.FedaxError: low_rank needs preset, one of thesis-I, thesis-II, thesis-III, thesis-IV, pfedfbe
        """
        for name in options:
            if name not in self.options:
                raise unknown(f"option of {self.name}", name, [*self.options, *(["seed"] if self.presets else [])])
        own = {name: _like(name, options.get(name, default), default) for name, default in self.defaults.items()}
        if not self.presets:
            return own
        changes = {name: value for name, value in options.items() if name not in own}
        preset = changes.pop("preset", None)
        if preset is None:
            raise FedaxError(f"{self.name} needs preset, one of {', '.join(self.presets)}")
        if not isinstance(preset, str) or preset not in self.presets:
            raise unknown(f"{self.name} preset", preset, self.presets)
        return {"preset": preset, **asdict(replace(self.presets[preset], **changes)), **own}


def _like(name: str, value: Any, default: Any) -> Any:
    """A value of an option whose default is a number, or a tuple that a list of the same kind may replace."""
    if not isinstance(default, tuple):
        return value
    kind, words = (str, "names") if name == "classes" else (int, "whole numbers")
    if not isinstance(value, list | tuple) or not all(type(item) is kind for item in value):
        raise FedaxError(f"{name} is {value!r}: it must be a list of {words}")
    return tuple(value)
