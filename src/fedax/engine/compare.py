"""`compare`: several methods on one problem, over several seeds, in one call."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedax import notebook
from fedax.algorithms.base import Algorithm
from fedax.engine.api import simulate
from fedax.engine.result import Result
from fedax.errors import FedaxError
from fedax.problem import Problem
from fedax.report.columns import parse
from fedax.runs.files import EXPERIMENT, RUNS, claim, slug, versions, write_json

_COUNTED = ("round", "seconds", "time")


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison:
    """The runs of a comparison: `results` has each method's, by its label, in the order of the seeds."""

    results: dict[str, list[Result]]
    seeds: tuple[int, ...]

    def table(self) -> dict[str, dict[str, tuple[float, float | None]]]:
        """Each method's last metrics: mean and deviation over the seeds; no deviation for a single one."""
        found: dict[str, dict[str, tuple[float, float | None]]] = {}
        for label, results in self.results.items():
            last = [result.history[-1] for result in results]
            shared = [key for key in last[0] if key not in _COUNTED and all(_number(row.get(key)) for row in last)]
            found[label] = {key: _spread([row[key] for row in last]) for key in shared}
        return found

    def __repr__(self) -> str:
        lines = [f"Comparison of {len(self.results)} methods, seeds {', '.join(map(str, self.seeds))}"]
        for label, row in self.table().items():
            lines.append(f"  {label}: " + ", ".join(f"{key} {_text(*value)}" for key, value in row.items()))
        return "\n".join(lines)

    def plot(self, metric: str | None = None, against: str = "round") -> Any:
        """A plotly figure of a metric over the rounds, as `fedax.plot.compare` draws it."""
        from fedax import plot

        return plot.compare(self, metric=metric, against=against)

    def _repr_html_(self) -> str:
        """The methods' last metrics, for a notebook."""
        found = self.table()
        plain = {key: about for row in found.values() for key in row if (about := parse(key)) and not about.statistic}
        keys = sorted(plain, key=lambda key: (plain[key].personal, plain[key].order))
        head = ("method", *(plain[key].heading for key in keys))
        rows = [(label, *(_text(*row[key]) if key in row else "–" for key in keys)) for label, row in found.items()]
        seeds = f"Mean over the seeds {', '.join(map(str, self.seeds))}, ± the deviation."
        return notebook.table(f"Comparison of {len(found)} methods", rows, head, seeds if len(self.seeds) > 1 else "")


def compare(
    problem: Problem,
    federation: Any,
    methods: Iterable[Algorithm],
    *,
    rounds: int,
    seeds: Sequence[int] = (0, 1, 2),
    out: str | Path | None = None,
    **options: Any,
) -> Comparison:
    """Run several methods over several seeds, as `fedax compare` does.

    rounds, options: as `simulate` takes them.
    out: a new directory for the comparison, each run in `runs/<method>-seed<seed>`.

    >>> import numpy as np, jax.numpy as jnp, fedax
    >>> mean = fedax.Problem(loss=lambda w, b: jnp.mean((b["x"] - w) ** 2) / 2, init=lambda key: jnp.zeros(()))
    >>> clients = fedax.Federation.from_clients([{"x": np.float32([1, 3])}, {"x": np.float32([6])}])
    >>> found = compare(mean, clients, [fedax.FedAvg(lr=0.5), fedax.SCAFFOLD(lr=0.5)], rounds=3, seeds=(0, 1))
    >>> list(found.results), len(found.results["FedAvg"])
    (['FedAvg', 'SCAFFOLD'], 2)
    """
    lists: dict[str, object] = {"methods": methods, "seeds": seeds}
    for name, given in lists.items():
        if not isinstance(given, Iterable):
            raise FedaxError(f"{name} is {given!r}: it must be a list")
    chosen, tried = list(methods), tuple(seeds)
    if not chosen or not all(isinstance(method, Algorithm) for method in chosen):
        raise FedaxError(f"methods is {chosen!r}: it must be a list of methods such as [FedAvg(lr=0.1)]")
    if not tried or len(set(tried)) < len(tried):
        raise FedaxError(f"seeds is {tried}: it must be one or more numbers that differ")
    if "seed" in options:
        raise FedaxError(f"seed is {options['seed']}: a comparison has seeds, such as seeds=(0, 1, 2)")
    labels = _labels(chosen)
    names = {(label, seed): f"{slug(label)}-seed{seed}" for label in labels for seed in tried}
    home = None if out is None else Path(out)
    if home is not None:
        claim(home)
        write_json(
            home / EXPERIMENT, {"rounds": rounds, "seeds": tried, "runs": [*names.values()], "versions": versions()}
        )
    results: dict[str, list[Result]] = {label: [] for label in labels}
    for label, method in zip(labels, chosen, strict=True):
        for seed in tried:
            where = None if home is None else home / RUNS / names[label, seed]
            results[label].append(
                simulate(problem, federation, method, rounds=rounds, seed=seed, out=where, label=label, **options)
            )
    return Comparison(results, tried)


def _labels(methods: Sequence[Algorithm]) -> list[str]:
    """The methods' names; a repeated name gets a number, from 2 on."""
    labels: list[str] = []
    for method in methods:
        name, number = type(method).__name__, 1
        label = name
        while slug(label) in map(slug, labels):
            number += 1
            label = f"{name} {number}"
        labels.append(label)
    return labels


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _spread(values: Sequence[float]) -> tuple[float, float | None]:
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def _text(mean: float, deviation: float | None) -> str:
    return f"{mean:.4g}" if deviation is None else f"{mean:.4g} ± {deviation:.2g}"
