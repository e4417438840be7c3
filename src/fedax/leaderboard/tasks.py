"""Tasks: TOML files beside this module, each an experiment without a method, its track and its metric."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from fedax.data import DATASETS
from fedax.data.datasets.fetching import present
from fedax.data.federation import Federation, Rows
from fedax.errors import FedaxError, unknown
from fedax.experiments import parse
from fedax.experiments.building import options, prepare
from fedax.experiments.schema import Experiment
from fedax.leaderboard.rules import PARTS, SEEDS
from fedax.selection.candidates import Track, fitting

_FIELDS = ("title", "about", "suites", "track", "metric", "unequal", "lr", "validation", "minutes", "experiment")
_OPTIONAL = {"validation": 0.0, "unequal": True, "minutes": 0.0}


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """A task: what is learnt, from whom, and how it is scored.

    lr: the rate around which every method's ranges lie. unequal: whether clients differ. validation: the share of each
    client's training rows that is kept for validation, where the data come without. minutes: of one core for all
    methods, estimated.
    """

    name: str
    title: str
    about: str
    suites: tuple[str, ...]
    track: Track
    metric: str
    unequal: bool
    lr: float
    validation: float
    minutes: float
    experiment: Experiment
    hash: str

    @property
    def methods(self) -> list[str]:
        """The methods of its track."""
        return fitting(self.track)

    @property
    def rounds(self) -> int:
        """FedAvg's rounds, which set both budgets."""
        return self.experiment.rounds

    def column(self, part: str) -> str:
        """The score in a row of a history."""
        return f"{'personal_' if self.track == 'personal' else ''}{part}_{self.metric}"

    def how(self) -> dict[str, Any]:
        """How its runs are simulated, but for rounds, seed and evaluation."""
        left = ("seed", "eval_every", "eval_on", "personal", "rounds")
        asked = {key: value for key, value in options(self.experiment, 0).items() if key not in left}
        return {**asked, "personal": self.track == "personal", "protocol": False}

    def missing(self) -> str | None:
        """How to get the data, if they are not on this machine."""
        name = self.experiment.data.name
        published = DATASETS[name].files if name in DATASETS else ()
        if all(present(file) for file in published):
            return None
        return f"task {self.name} needs {name}, which is not here: fedax data fetch {name}"

    def build(self) -> tuple[Any, Any]:
        """The problem and the federation, with validation rows."""
        if (missing := self.missing()) is not None:
            raise FedaxError(missing)
        problem, federation = prepare(self.experiment)
        if self.validation:
            federation = hold_out(federation, self.validation)
        if not federation.validation.count.sum():
            raise FedaxError(f"task {self.name} has no validation rows: data.split or validation must leave some")
        if federation.clients < 2:
            raise FedaxError(f"task {self.name} has one client: every method is then training alone")
        return problem, federation


def hold_out(federation: Federation, share: float) -> Federation:
    """The federation with the last part of each client's training rows for validation.

    >>> federation = Federation.from_clients([{"y": list(range(10))}, {"y": [1]}])
    >>> hold_out(federation, 0.2)
    Federation(2 clients, 11 rows of y int64[]; rows a client: train 1-8, validation 0-2, test 0)
    """
    rows = federation.train
    held = np.minimum(np.round(share * rows.count).astype(np.int64), rows.count - 1)
    train, validation = Rows(rows.start, rows.count - held), Rows(rows.start + rows.count - held, held)
    return dataclasses.replace(federation, train=train, validation=validation)


def names(suite: str | None = None) -> list[str]:
    """The tasks of a suite, or all, the cheapest first.

    >>> len(names("full")) >= 10
    True
    """
    if suite not in (None, *SEEDS):
        raise unknown("suite", str(suite), SEEDS)
    every = sorted(map(load, _known()), key=lambda task: (task.minutes, task.name))
    return [task.name for task in every if suite is None or suite in task.suites]


def load(name: str) -> Task:
    """The task of that name, or in a TOML file of one's own.

    >>> load("digits-iid").track
    'shared'
    """
    own = Path(name) if name.endswith(".toml") else None
    path: Any = own or _folder() / f"{name}.toml"
    if not path.is_file():
        raise unknown("task", name, _known())
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FedaxError(f"{name} cannot be read: {error}") from None
    return made(own.stem if own else name, table)


def made(name: str, table: dict[str, Any]) -> Task:
    """The task in a table as TOML gives it; its hash is of what is learnt, not of how the file is written."""
    for field in table:
        if field not in _FIELDS:
            raise unknown(f"field of task {name}", field, _FIELDS)
    for field in _FIELDS:
        if field not in table and field not in _OPTIONAL:
            raise FedaxError(f"task {name} has no {field}: its fields are {', '.join(_FIELDS)}")
    asked = {**table["experiment"], "name": name, "algorithm": {"name": "FedAvg", "lr": table["lr"]}}
    experiment = parse(asked)
    if experiment.rounds % PARTS:
        raise FedaxError(f"task {name}: rounds is {experiment.rounds}: it must be a multiple of {PARTS}")
    learnt = {key: value for key, value in table.items() if key not in ("title", "about", "suites", "minutes")}
    digest = hashlib.sha256(json.dumps(learnt, sort_keys=True).encode()).hexdigest()[:16]
    given = {key: value for key, value in table.items() if key != "experiment"}
    given = {**_OPTIONAL, **given, "suites": tuple(table["suites"])}
    return Task(name=name, experiment=experiment, hash=digest, **given)


def _known() -> list[str]:
    return sorted(path.name.removesuffix(".toml") for path in _folder().iterdir() if path.name.endswith(".toml"))


def _folder() -> Any:
    return files("fedax.leaderboard") / "tasks"
