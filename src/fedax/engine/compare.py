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
from fedax.report.columns import PARTS, MetricColumn, parse
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
        found = self.table()
        keys = self._columns(("", "worst"))
        lines = [["", *keys, "floats_up"]]
        lines += [
            [label, *(_text(*row[key]) if key in row else "-" for key in keys), f"{row['floats_up'][0]:.4g}"]
            for label, row in found.items()
        ]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        seeds = f"{', mean ± deviation over' if len(self.seeds) > 1 else ','} seeds {', '.join(map(str, self.seeds))}"
        return "\n".join([f"Comparison of {len(found)} methods{seeds}; table() has every column", *padded])

    def _columns(self, statistics: Sequence[str]) -> dict[str, MetricColumn]:
        """The metrics on test rows, or on the best part that was evaluated, in the order to show them."""
        keys = {key for row in self.table().values() for key in row}
        known = {key: about for key in keys if (about := parse(key)) and about.statistic in statistics}
        part = next((part for part in PARTS if any(about.part == part for about in known.values())), None)
        chosen = [(key, about) for key, about in known.items() if about.part == part]
        return dict(sorted(chosen, key=lambda one: (one[1].personal, one[1].order)))

    def plot(self, metric: str | None = None, against: str = "round") -> Any:
        """A plotly figure of a metric over the rounds, as `fedax.plot.compare` draws it."""
        from fedax import plot

        return plot.compare(self, metric=metric, against=against)

    def _repr_html_(self) -> str:
        """The methods' last metrics, for a notebook."""
        found, columns = self.table(), self._columns(("",))
        head = ("method", *(about.heading for about in columns.values()))
        rows = [
            (label, *(_shown(row.get(key), about) for key, about in columns.items())) for label, row in found.items()
        ]
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
    >>> found
    Comparison of 2 methods, mean ± deviation over seeds 0, 1; table() has every column
              train_loss  train_loss_worst  floats_up
    FedAvg    2.125 ± 0   3.125 ± 0         6
    SCAFFOLD  2.125 ± 0   3.125 ± 0         12
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
        about = {"source": "python", "rounds": rounds, "seeds": tried, "runs": [*names.values()]}
        write_json(home / EXPERIMENT, {**about, "versions": versions()})
    results: dict[str, list[Result]] = {label: [] for label in labels}
    bar = None
    if options.get("on_progress") is None:
        words = f"{len(chosen)} methods, {len(tried)} seeds"
        bar = notebook.progress(words, rounds * len(names))  # one for all runs
    for label, method in zip(labels, chosen, strict=True):
        for seed in tried:
            where = None if home is None else home / RUNS / names[label, seed]
            if bar is not None:
                before = rounds * sum(map(len, results.values()))
                options["on_progress"] = lambda done, before=before: bar(before + done)
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


def _shown(value: tuple[float, float | None] | None, about: MetricColumn) -> str:
    """A mean and its deviation on one line."""
    if value is None:
        return "–"
    return "\u00a0±\u00a0".join(about.shown(one).replace(" ", "\u00a0") for one in value if one is not None)


def _text(mean: float, deviation: float | None) -> str:
    return f"{mean:.4g}" if deviation is None else f"{mean:.4g} ± {deviation:.2g}"
