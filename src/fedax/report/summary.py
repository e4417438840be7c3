"""Runs gathered by algorithm, and their final metrics over seeds."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from fedax.evaluation.metrics import main
from fedax.report.columns import COUNTERS, PARTS, STRUCTURE, MetricColumn, number, parse
from fedax.runs.reading import RecordedRun, read

#: Fields that may differ between runs of one setting.
INCIDENTAL = (
    *("name", "versions", "out", "eval_every", "log"),
    *("metrics", "executor", "devices", "chunk", "checkpoint_every", "state_budget"),
)


class Spread(NamedTuple):
    """Mean and sample standard deviation over `runs` seeds; no deviation for a single one."""

    mean: float
    std: float | None
    runs: int

    @property
    def half(self) -> float | None:
        """The half-width of the mean's 95 % confidence interval by Student's t; None for a single seed.

        >>> round(Spread(2.0, 1.0, 3).half, 3)
        2.484
        """
        if self.std is None:
            return None
        from scipy.special import stdtrit  # a quarter of a second less than scipy.stats

        return float(stdtrit(self.runs - 1, 0.975)) * self.std / math.sqrt(self.runs)


@dataclasses.dataclass(frozen=True)
class Group:
    """The runs of one algorithm that differ in their seeds only.

    again: other directories of the same runs, which got no further; to count them would feign more seeds.
    """

    label: str
    runs: tuple[RecordedRun, ...]
    again: tuple[RecordedRun, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether every run came to its end."""
        return all(run.finished for run in self.runs)

    @property
    def status(self) -> str:
        """One word if the runs agree, else how many ended how.

        >>> ended = RecordedRun(Path("a"), (), state={"status": "finished"})
        >>> Group("A", (ended, RecordedRun(Path("b"), ()))).status
        '1 finished, 1 unknown'
        """
        counts = Counter(run.status for run in self.runs)
        if len(counts) == 1:
            return next(iter(counts))
        return ", ".join(f"{count} {status}" for status, count in counts.items())


def read_all(folders: Iterable[Path]) -> list[RecordedRun]:
    """Read runs, each directory once."""
    return [read(folder) for folder in {Path(f).resolve(): f for f in folders}.values()]


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested fields under dotted names.

    >>> flat({"data": {"name": "digits"}, "rounds": 3})
    {'data.name': 'digits', 'rounds': 3}
    """
    if not isinstance(value, dict) or not value:
        return {prefix: value} if prefix else {}
    inner: dict[str, Any] = {}
    for key, item in value.items():
        inner |= flat(item, f"{prefix}.{key}" if prefix else str(key))
    return inner


def setting(run: RecordedRun) -> dict[str, Any]:
    """The fields that make a run what it is, whatever its seed."""
    return {k: v for k, v in _fields(run).items() if k.split(".")[-1] != "seed"}


def _fields(run: RecordedRun) -> dict[str, Any]:
    """The fields that make a run what it is: runs that agree in all of them are the same run."""
    if not run.experiment:
        return {"folder": str(run.folder)}
    return {k: v for k, v in flat(run.experiment).items() if k.split(".")[0] not in INCIDENTAL}


def differing(settings: Iterable[dict[str, Any]]) -> list[str]:
    """The fields in which settings differ.

    >>> differing([{"a": 1, "b": 2}, {"a": 1, "b": 3}])
    ['b']
    """
    settings = list(settings)
    names = dict.fromkeys(name for one in settings for name in one)
    return [name for name in names if len({json.dumps(one.get(name)) for one in settings}) > 1]


def groups(runs: Iterable[RecordedRun]) -> list[Group]:
    """Runs by label; one label in several settings is told apart by the fields that differ."""
    labels: dict[str, dict[str, list[RecordedRun]]] = {}
    for run in runs:
        same = labels.setdefault(run.label, {})
        same.setdefault(json.dumps(setting(run), sort_keys=True), []).append(run)
    found = []
    for label, variants in labels.items():
        members = [_once(runs) for runs in variants.values()]
        names = _told_apart(label, [runs for runs, _ in members])
        found += [Group(name, *runs) for name, runs in zip(names, members, strict=True)]
    return found


def _once(runs: list[RecordedRun]) -> tuple[tuple[RecordedRun, ...], tuple[RecordedRun, ...]]:
    """The runs of one setting, each by the directory that got furthest, and the other directories."""
    kept: dict[str, RecordedRun] = {}
    for run in runs:
        same = json.dumps(_fields(run), sort_keys=True)
        if same not in kept or _got(run) > _got(kept[same]):
            kept[same] = run
    whole = tuple(kept.values())
    return whole, tuple(run for run in runs if run not in whole)


def _got(run: RecordedRun) -> tuple[bool, int]:
    return run.finished, -1 if run.round is None else run.round


def _told_apart(label: str, variants: list[tuple[RecordedRun, ...]]) -> list[str]:
    """One label in several settings, with the fields that differ; where those are many, the experiments' names do."""
    settings = [setting(runs[0]) for runs in variants]
    fields, names = differing(settings), [runs[0].get("name") for runs in variants]
    if not fields:
        return [label]
    if len(fields) > 3 and all(names) and len(set(names)) == len(names):
        return [f"{label} ({name})" for name in names]
    shown = [[f"{field.removeprefix('algorithm.')}={one.get(field)}" for field in fields] for one in settings]
    return [f"{label} ({', '.join(words)})" for words in shown]


def final(run: RecordedRun, key: str) -> float | None:
    """A metric in the last row that has it; NaN if that is not a finite number."""
    for row in reversed(run.rows):
        if key in row:
            return number(row[key])
    return None


def spread(values: Iterable[float | None]) -> Spread | None:
    """Mean and deviation of the given values. One NaN makes both NaN: a mean over the seeds that
    survived would flatter the method."""
    there = [value for value in values if value is not None]
    if not there:
        return None
    if any(math.isnan(value) for value in there):
        return Spread(math.nan, None, len(there))
    return Spread(statistics.fmean(there), statistics.stdev(there) if len(there) > 1 else None, len(there))


def columns(rows: list[dict[str, Any]]) -> dict[str, str]:
    """The metrics of a table with their titles, in the order to show them."""
    keys = dict.fromkeys(key for row in rows for key, value in row.items() if isinstance(value, Spread))
    metrics = {key: metric for key in keys if (metric := parse(key))}
    ordered = sorted(metrics, key=lambda key: (metrics[key].personal, metrics[key].order))
    titles = {
        key: f"Personal {_lower(short(metrics[key]))}" if metrics[key].personal else short(metrics[key])
        for key in ordered
    }
    return titles | {key: title for key, title in (STRUCTURE | COUNTERS).items() if key in keys}


def _lower(title: str) -> str:
    """A title within a sentence; AUC and its like stay as they are.

    >>> _lower("Accuracy, %"), _lower("AUC")
    ('accuracy, %', 'AUC')
    """
    return title if title[:2].isupper() else title[:1].lower() + title[1:]


def short(metric: MetricColumn) -> str:
    """A column's title, without whose model it is."""
    part = "" if metric.part == "test" else f"{metric.part} "
    unit = ", %" if metric.percent else ""
    words = f"{part}{'worst tenth' if metric.statistic else metric.words}{unit}"
    return words[0].upper() + words[1:]


def table(run_folders: Iterable[Path]) -> list[dict[str, Any]]:
    """One row per algorithm: `algorithm`, `status`, `round` (the last that every run reached), `runs`,
    `seeds`, and each final metric under its own name as a `Spread` over seeds."""
    return rows(groups(read_all(run_folders)))


def rows(found: Iterable[Group]) -> list[dict[str, Any]]:
    """The table of runs already gathered."""
    return [_row(group) for group in found]


def _row(group: Group) -> dict[str, Any]:
    reached = [run.rows[-1]["round"] for run in group.runs if run.rows]
    row: dict[str, Any] = {
        "algorithm": group.label,
        "status": group.status,
        "round": min(reached) if len(reached) == len(group.runs) else None,
        "runs": len(group.runs),
        "seeds": [run.seed for run in group.runs],
    }
    keys = dict.fromkeys(key for run in group.runs for line in run.rows for key in line)
    for key in _shown(list(keys)):
        value = spread(final(run, key) for run in group.runs)
        if value is not None:
            row[key] = value
    return row


def _shown(keys: list[str]) -> list[str]:
    """The metrics of a summary: plain values on the best part there is, the worst tenth of the main one, the
    structure of composite problems, and the counters."""
    parsed = {key: metric for key in keys if (metric := parse(key))}
    part = next((part for part in PARTS if any(metric.part == part for metric in parsed.values())), "")
    metrics = {key: metric for key, metric in parsed.items() if metric.part == part}
    worst = main(metric.name for metric in metrics.values())
    plain = [k for k, m in metrics.items() if not m.statistic or (m.statistic == "worst" and m.name == worst)]
    return plain + [key for key in STRUCTURE | COUNTERS if key in keys]
