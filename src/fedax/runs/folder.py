"""A run's directory as it is written: what was asked, how far it got, how each client fares; see `fedax.runs.files`."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from fedax.data import Federation, heterogeneity
from fedax.data.generators.lazy import Lazy
from fedax.errors import FedaxError
from fedax.runs.files import CLIENTS, EXPERIMENT, STATUS, versions, write_json

Status = Literal["running", "finished", "diverged", "interrupted", "failed"]
Values = Mapping[str, Mapping[str, list[float | None]]]


@dataclasses.dataclass(frozen=True)
class Record:
    """The content of a run's directory beside its history and models.

    experiment: the fields of an experiment file. rounds: the number asked for. clients: makes the table of clients as
    known before the first round. values: each client's last metrics, by part and name.
    """

    experiment: dict[str, Any]
    rounds: int
    clients: Callable[[], dict[str, Any]] = dict
    values: Values = dataclasses.field(default_factory=dict)
    status: Status = "finished"
    message: str = ""


class RunFolder:
    """Writes the files of one run beside its metrics log."""

    def __init__(self, path: Path, rounds: int, clients: dict[str, Any]) -> None:
        self.path, self.rounds, self._clients = path, rounds, clients
        self._written = -math.inf

    def begin(self, experiment: dict[str, Any], round: int, values: Values) -> None:
        """Write the experiment and the clients, as known before the first round."""
        write_json(self.path / EXPERIMENT, {"versions": versions(), **experiment})
        self.clients(values)
        self.status("running", round)

    def status(self, status: Status, round: int, message: str = "") -> None:
        """Say how far the run is."""
        about = {"status": status, "round": round, "rounds": self.rounds, "message": message}
        write_json(self.path / STATUS, about)
        self._written = time.monotonic()

    def still_running(self, round: int) -> None:
        """Say how far the run is, at most once a second."""
        if time.monotonic() - self._written > 1:
            self.status("running", round)

    def clients(self, values: Values, by_client: Mapping[str, Any] | None = None) -> None:
        """Write each client's metrics of the last evaluation, and those of all its models if they are known."""
        write_json(self.path / CLIENTS, {**self._clients, **(by_client or {}), "values": values})


def describe_clients(federation: Federation | Lazy) -> dict[str, Any]:
    """Names, rows, labels and gradient diversity of the clients; where clients are made as needed, of those that are
    evaluated.

    >>> from fedax.data import Federation
    >>> describe_clients(Federation.from_clients([{"y": [0, 1, 1]}, {"y": [0]}]))["label_counts"]
    [[1, 2], [1, 0]]
    """
    shown = federation.shown_clients if isinstance(federation, Lazy) else federation
    try:
        labels = shown.label_counts().tolist()
    except FedaxError:
        labels = None
    rows = {part: shown.part(part).count.tolist() for part in ("train", "validation", "test")}
    zeta = heterogeneity(shown).zeta
    return {"names": list(shown.names), "label_counts": labels, "rows": rows, "zeta": zeta}
