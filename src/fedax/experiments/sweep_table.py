"""The [sweep] table: hyper-parameters with the values to try, and what decides between the settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, PrivateAttr, model_validator

from fedax.algorithms import Algorithm
from fedax.algorithms.hyperparameters import fields_of, full_name, replaced, value_of
from fedax.engine import grid
from fedax.errors import FedaxError, unknown
from fedax.evaluation.metrics import METRICS
from fedax.experiments.file_tables import AlgorithmTable
from fedax.options import Count


class DecidedByMetric(BaseModel):
    """A table whose `metric` decides between settings.

    >>> DecidedByMetric(metric="auc").bare, DecidedByMetric(metric="validation_auc").bare
    ('auc', None)
    """

    metric: str | None = None
    _own: tuple[str, ...] = PrivateAttr(())

    @property
    def bare(self) -> str | None:
        """The metric's name, if `metric` names no column."""
        return self.metric if self.metric in (*METRICS, "objective", *self._own) else None

    @model_validator(mode="before")
    @classmethod
    def _of_bases(cls, table: Any) -> Any:
        return with_full_names(table) if isinstance(table, dict) else table

    def knowing(self, own: Sequence[str]) -> None:
        """Take up the names of the user's own metrics that the experiment measures."""
        self._own = tuple(name for name in own if name not in METRICS)


def with_full_names(table: dict[Any, Any]) -> dict[Any, Any]:
    """A table whose lists in a table `base` stand under their full names.

    >>> with_full_names({"trim": [0.1], "base": {"lr": [0.1, 0.2]}})
    {'trim': [0.1], 'base.lr': [0.1, 0.2]}
    """
    whole: dict[Any, Any] = {}
    for key, value in table.items():
        if key == "base" and isinstance(value, dict):
            whole |= {f"base.{name}": values for name, values in with_full_names(value).items()}
        else:
            whole[key] = value
    return whole


class SweepTable(DecidedByMetric):
    """[sweep]: a list of values for each hyper-parameter to sweep over; every combination is a setting. Where a method
    builds on another and has no field of a name itself, the base's counts; "base.lr" always names the base's.

    metric: a column of the history, or a metric, such as auc or one of your own; default AUC if it is among the
        metrics, else accuracy, else the regularised or the plain loss; on test rows if any.
    goal: "max" or "min"; default by the metric's name.
    over: the number of last rounds over which the metric's mean decides; default its last value alone.
    target: a value of the metric; the first evaluated round that reaches it is reported.
    mode: "batched", settings side by side in one program, or "sequence"; default "auto", by the model's size.
    """

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    goal: Literal["max", "min"] | None = None
    over: Count | None = None
    target: float | None = None
    mode: Literal["auto", "batched", "sequence"] = "auto"

    @property
    def values(self) -> dict[str, list[float]]:
        """The values of each hyper-parameter that is swept over."""
        return dict(self.model_extra or {})

    def settings(self, table: AlgorithmTable) -> list[tuple[dict[str, float], Algorithm]]:
        """Every combination of the values, with the method that has them.

        >>> found = SweepTable(lr=[0.1, 0.2], server_lr=[1.0]).settings(AlgorithmTable(name="FedAvg", lr=1.0))
        >>> found[1]
        ({'lr': 0.2, 'server_lr': 1.0}, FedAvg(lr=0.2, server_lr=1.0))
        """
        made = grid(table.build(), self.values)
        names = {name: str(full_name(table.build(), name)) for name in self.values}
        return [({name: value_of(method, full) for name, full in names.items()}, method) for method in made]

    def check(self, tables: Sequence[AlgorithmTable], rounds: int) -> None:
        """Refuse a field that a method does not have, or a value out of its range; whole numbers become floats."""
        if not self.values:
            raise FedaxError("[sweep] names no hyper-parameter: it must have a list such as lr = [0.01, 0.1]")
        if self.over is not None and self.over > rounds:
            raise FedaxError(f"sweep.over is {self.over}: it must be at most rounds, {rounds}")
        for name, values in self.values.items():
            for table in tables:
                _check_field(name, table.build())
            setattr(self, name, _numbers(name, values))
            for table in tables:
                _check_range(name, self.values[name], table.build())


def _check_field(name: str, method: Any) -> None:
    owner, fields, full = type(method).__name__, fields_of(method), full_name(method, name)
    if full is None:
        allowed = [n for n, f in fields.items() if "interval" in f.metadata and not f.metadata.get("static")]
        raise unknown(f"field of [sweep] for {owner}", name, [*allowed, *SweepTable.model_fields])
    if "interval" not in fields[full].metadata or fields[full].metadata.get("static"):
        raise FedaxError(
            f"sweep.{name}: a sweep is over numbers that leave the compiled program as it is, and {owner}'s {name} "
            "is not one"
        )


def _numbers(name: str, values: Any) -> list[float]:
    numeric = isinstance(values, list) and all(type(value) in (int, float) for value in values)
    if not numeric or not values:
        raise FedaxError(f"sweep.{name} is {values!r}: it must be a list of one or more numbers")
    if len(set(values)) < len(values):
        raise FedaxError(f"sweep.{name} is {values}: it names a value twice, and all must differ")
    return [float(value) for value in values]


def _check_range(name: str, values: list[float], method: Any) -> None:
    for value in values:
        try:
            replaced(method, {str(full_name(method, name)): value})
        except FedaxError as error:
            raise FedaxError(f"sweep.{name}: {error}") from None
