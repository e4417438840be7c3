"""A federation that is never whole in memory: a client's rows are made when it takes part."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from fedax.data.checks import check_count
from fedax.data.datasets.registry import FEDERATIONS
from fedax.data.federation import Federation, Rows
from fedax.data.generators.base import Generator
from fedax.errors import FedaxError

SHOWN = 1000  # clients that are evaluated, unless another number is given


@dataclass(frozen=True)
class Lazy:
    """Clients that are functions of their numbers; `shown` of them, from the first on, are evaluated.

    >>> from fedax.data import ClusterClients
    >>> million = Lazy(ClusterClients(clients=1_000_000, rows=20), shown=50)
    >>> million.clients, million.shown_clients.clients
    (1000000, 50)
    """

    generator: Generator
    seed: int = 0
    shown: int = SHOWN

    def __post_init__(self) -> None:
        if not isinstance(self.generator, Generator):
            raise FedaxError(f"generator must be a Generator such as SyntheticClients(), not {self.generator!r}")
        check_count("shown", self.shown, 1)

    @property
    def clients(self) -> int:
        """The number of clients."""
        return self.generator.clients

    @functools.cached_property
    def train(self) -> Rows:
        """The number of each client's training rows."""
        count = self.generator.sizes(self.seed)[:, 0]
        return Rows(np.zeros_like(count), count)

    @functools.cached_property
    def shown_clients(self) -> Federation:
        """The clients that are evaluated, in memory."""
        return self.generator.federation(self.seed, first=self.shown)

    def make(self, number: Any, rows: int) -> dict[str, Any]:
        """A client's first rows, inside a compiled program."""
        import jax

        return self.generator.client(jax.random.key(np.uint32(self.seed)), number, rows)

    def __hash__(self) -> int:
        return hash((self.generator, self.seed, self.shown))


def lazily(name: str, *, seed: int = 0, shown: int = SHOWN, **options: Any) -> Lazy:
    """A generated dataset by name, its clients made as they are needed; options are those of `fedax.data.divided`.

    >>> lazily("clusters", preset="plain", clients=1_000_000, shown=50).clients
    1000000
    """
    able = [n for n, entry in FEDERATIONS.items() if any(isinstance(p, Generator) for p in entry.presets.values())]
    if name not in able:
        others = f"{', '.join(able[:-1])} and {able[-1]}"
        raise FedaxError(f"{name} cannot make its clients as they are needed: {others} can")
    chosen = FEDERATIONS[name].resolved(options)
    kind = FEDERATIONS[name].presets[chosen["preset"]]
    return Lazy(replace(kind, **{f.name: chosen[f.name] for f in fields(kind)}), seed, shown)
