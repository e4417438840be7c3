"""The values that `fedax compare --tune` tries, as each method's file declares them, and the [tune] table.

Rates, and weights that go with the scale of a loss, have no values that suit every problem: their grids are multiples
of the file's own value. Shares and momenta have the values of their papers. In a search without a grid the smallest
and the largest value are the ends of the range.
"""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from fedax.algorithms.base import RATE, Times, within
from fedax.algorithms.hyperparameters import fields_of, full_name, value_of
from fedax.data.splits import PARTS
from fedax.errors import FedaxError, unknown
from fedax.evaluation.metrics import METRICS
from fedax.experiments.file_tables import AlgorithmTable
from fedax.experiments.sweep_table import DecidedByMetric, SweepTable

Values = dict[str, list[float]]


class TuneTable(DecidedByMetric):
    """[tune]: values to try instead of the declared ones, a list for each hyper-parameter. A list counts for every
    method that has the field, or whose base has it; one in a table of a method's label, such as [tune.FedProx], for
    that method alone. "base.lr" names the rate of a base whose method has a rate of its own.

    seed: of the runs that tune; default the smallest seed that is not reported on.
    metric: what decides, a metric, such as auc or one of your own, or a column on validation rows; default AUC if it is
        among the metrics, else accuracy, else the objective, of the clients' own models where there are any.
    """

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None

    def values(self, table: AlgorithmTable) -> Values:
        """The lists that count for a method.

        >>> tune = TuneTable(lr=[0.1, 0.2], FedProx={"mu": [0.1, 1.0]})
        >>> tune.values(AlgorithmTable(name="FedProx", label="FedProx", lr=0.1, mu=1.0))
        {'lr': [0.1, 0.2], 'mu': [0.1, 1.0]}
        >>> tune.values(AlgorithmTable(name="FedAvg", label="FedAvg", lr=0.1))
        {'lr': [0.1, 0.2]}
        """
        given = self.model_extra or {}
        own = given.get(str(table.label), {})
        full = {name: full_name(table.build(), name) for name in given}  # lr gives way to base.lr where both are given
        common = {n: values for n, values in given.items() if full[n] == n or full[n] not in (None, *given)}
        return {**common, **(own if isinstance(own, dict) else {})}

    def check(self, tables: Sequence[AlgorithmTable], seeds: Sequence[int]) -> None:
        """Refuse a field that no method has, a value out of its range, a seed that is reported on, and test rows."""
        labels = [str(table.label) for table in tables]
        fields = {name for table in tables for name in fields_of(table.build())}
        for name in self.model_extra or {}:
            if name not in labels and all(full_name(table.build(), name) is None for table in tables):
                raise unknown("field of [tune]", name, [*sorted(fields), *labels, *type(self).model_fields])
        for table in tables:
            if values := self.values(table):
                _check(table, values)
        if self.seed is not None and self.seed in seeds:
            raise FedaxError(f"tune.seed is {self.seed}: it must differ from the seeds that are reported on, {seeds}")
        if self.metric is None or self.bare is not None:
            return
        part = self.metric.removeprefix("personal_").partition("_")[0]
        if part not in PARTS:
            raise FedaxError(f"tune.metric: {unknown('metric', self.metric, [*METRICS, *self._own])}")
        if part != "validation":
            raise FedaxError(f"tune.metric is {self.metric!r}: it must be on validation rows, as validation_loss is")


def grid_of(table: AlgorithmTable, tune: TuneTable | None = None, sweep: SweepTable | None = None) -> Values:
    """The values to try for each field that is tuned: those of [tune], else of [sweep], else the declared ones.

    >>> grid_of(AlgorithmTable(name="FedAvgM", label="FedAvgM", lr=0.2))
    {'lr': [0.02, 0.06, 0.2, 0.6, 2.0], 'momentum': [0.7, 0.9, 0.97]}
    >>> grid_of(AlgorithmTable(name="Robust", label="Robust", base={"name": "FedAvg", "lr": 0.2}))
    {'base.lr': [0.02, 0.06, 0.2, 0.6, 2.0]}
    """
    asked = {} if tune is None else tune.values(table)
    if not asked and sweep is not None:
        asked = sweep.values
    if asked:
        return {name: [float(value) for value in values] for name, values in asked.items()}
    method = table.build()
    found = {}
    for name, field in fields_of(method).items():
        declared = field.metadata.get("tune") or (RATE if field.name == "lr" else None)
        value = value_of(method, name)
        centre = getattr(value, "initial", value)
        if declared is None or centre is None:
            continue
        values = [centre * factor for factor in declared.factors] if isinstance(declared, Times) else list(declared)
        inside = [value for value in values if within(value, field.metadata.get("interval", "(-inf, inf)"))]
        found[name] = list(dict.fromkeys(float(f"{value:.3g}") for value in inside))
    return {name: values for name, values in found.items() if len(values) > 1}


def with_values(table: AlgorithmTable, setting: Mapping[str, float], *, keep_schedules: bool = True) -> AlgorithmTable:
    """A method with some values; where the file has a schedule that is kept, the value is what it begins with.

    >>> falling = AlgorithmTable(name="FedAvg", lr={"kind": "exponential", "initial": 0.1, "decay": 0.9})
    >>> with_values(falling, {"lr": 0.3}).options["lr"]["initial"]
    0.3
    >>> robust = AlgorithmTable(name="Robust", base={"name": "FedAvg", "lr": 0.1})
    >>> with_values(robust, {"base.lr": 0.3}).options["base"]["lr"]
    0.3
    """
    options = copy.deepcopy(table.options)
    for name, value in setting.items():
        *bases, last = str(full_name(table.build(), name)).split(".")
        owner = functools.reduce(operator.getitem, bases, options)
        was = owner.get(last)
        owner[last] = {**was, "initial": value} if keep_schedules and isinstance(was, dict) and "kind" in was else value
    return AlgorithmTable(name=table.name, label=table.label, rounds=table.rounds, **options)


def at_bound(table: AlgorithmTable, name: str, value: float) -> bool:
    """Whether the value is the last that a field allows, so that a best value there is no reason for a warning.

    >>> at_bound(AlgorithmTable(name="FedCM", lr=0.1), "alpha", 1.0)
    True
    """
    method = table.build()
    low, high = fields_of(method)[str(full_name(method, name))].metadata["interval"].strip("[]()").split(",")
    return value in (float(low), float(high))


def _check(table: AlgorithmTable, values: Mapping[str, Any]) -> None:
    """Sweeps ask the same of their lists: numbers in their ranges, that leave the compiled program as it is."""
    try:
        SweepTable(**values).check([table], rounds=1)
    except FedaxError as error:
        raise FedaxError(str(error).replace("sweep.", "tune.").replace("[sweep]", "[tune]")) from None
