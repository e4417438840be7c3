"""How a table's columns become a model's inputs: computed from training rows, and saved with the model."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedax.data.checks import Array
from fedax.data.tables.applying import encode, feature_names, first_row, numbers, parse, texts, unseen
from fedax.data.tables.fitting import Ask, fit
from fedax.data.tables.labels import Task
from fedax.data.tables.table import Table, refuse
from fedax.errors import FedaxError

log = logging.getLogger("fedax")


@dataclasses.dataclass(frozen=True, eq=False)
class Preparation:
    """Columns with their fill values, scales and categories; the label's values; the clients.

    `fedax.data.from_table` makes it, as `federation.info["preparation"]`.

    >>> import pandas
    >>> from fedax.data import IID, from_table
    >>> table = pandas.DataFrame({"age": [30, 50, None], "city": ["oslo", "bodo", "oslo"], "ill": ["no", "yes", "no"]})
    >>> made = from_table(table, label="ill", split=None, missing="fill", partition=IID(1))
    >>> preparation = made.info["preparation"]
    >>> preparation.features
    ['age', 'city = bodo', 'city = oslo']
    >>> preparation.transform(pandas.DataFrame({"age": [None], "city": ["narvik"]})).tolist()
    [[0.0, 0.0, 0.0]]
    """

    columns: tuple[dict[str, Any], ...]
    label: str
    task: Task
    labels: tuple[Any, ...] | None = None  #: the classes' values, in the order of their numbers
    client: str | None = None
    clients: tuple[str, ...] = ()
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)  #: columns that no model sees, and why

    @classmethod
    def of(cls, table: Table, ask: Ask, clients: tuple[str, ...]) -> Preparation:
        """The preparation of a checked table; `ask` puts questions to those who hold training rows."""
        classes = None if table.labels is None else tuple(table.labels)
        columns = tuple(fit(table.columns, ask))
        return cls(columns, table.label, table.task, classes, table.client, clients, table.left_out)

    @property
    def features(self) -> list[str]:
        """The names of a model's inputs."""
        return feature_names(self.columns)

    def transform(self, frame: Any, owner: str = "the table", also: Sequence[str] = ()) -> Array:
        """A model's inputs for a pandas table's rows, [rows, features]; the label column may be absent.

        also: problems that the caller has found, to be raised together with the table's own.
        """
        cells, problems = parse(self.columns, frame)
        refuse(owner, [*problems, *also])
        for sentence in unseen(self.columns, cells):
            log.warning("%s: %s", owner, sentence)
        made: Array = encode(self.columns, cells)
        return made

    def arrays(self, frame: Any, owner: str = "the table") -> dict[str, Array]:
        """The arrays `x` and `y` of a place's own table with labels, for a client that brings its rows to a network."""
        x, given = self.transform(frame, owner), frame[self.label] if self.label in frame.columns else None
        if given is None:
            raise FedaxError(f"{owner} has no label column {self.label!r}")
        values, bad = numbers(given) if self.labels is None else _coded(given, self.labels)
        wrong = bad | np.isnan(values)
        if wrong.any():
            allowed = "a number" if self.labels is None else f"one of {', '.join(map(str, self.labels))}"
            shown = str(given.iloc[int(wrong.argmax())])
            raise FedaxError(
                f"{owner}: the label {self.label!r} has {shown!r} at row {first_row(wrong)}: it must be {allowed} "
                f"({int(wrong.sum()):,} of {len(wrong):,} rows)"
            )
        return {"x": x, "y": np.asarray(values).astype(np.float32 if self.labels is None else np.int32)}

    def as_json(self) -> dict[str, Any]:
        """As plain lists, numbers and texts."""
        return dataclasses.asdict(self) | {"columns": list(self.columns), "features": self.features}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Preparation:
        """What `as_json` gave."""
        try:
            labels = None if content["labels"] is None else tuple(content["labels"])
            given = (tuple(content["columns"]), content["label"], content["task"], labels, content["client"])
            return cls(*given, tuple(content["clients"]), content["left_out"])
        except (KeyError, TypeError) as error:
            raise FedaxError(f"the preparation cannot be read: {error}") from None


def _coded(column: Any, labels: Sequence[Any]) -> tuple[Array, Array]:
    """The numbers of a column's classes, NaN for a value that is no class."""
    place = {str(label): float(i) for i, label in enumerate(labels)}
    code = np.array([place.get(str(value), np.nan) for value in texts(column)[0]])
    return code, np.isnan(code)
