"""What an experiment file may say: its tables, their fields, and what each may be.

Hyper-parameters, partitions and model options are checked by building what they describe, so a mistake in
them is found when the file is read.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fedax import data
from fedax.algorithms import Algorithm, build
from fedax.data import Partition
from fedax.errors import FedaxError, unknown
from fedax.losses import LOSSES
from fedax.models import model
from fedax.schedules import SCHEDULES, Schedule, schedule

if TYPE_CHECKING:
    from flax import linen as nn

Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class Table(BaseModel):
    """A table with a fixed set of fields."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class NamedTable(BaseModel):
    """A table whose further fields depend on the name it gives."""

    model_config = ConfigDict(extra="allow", strict=True)

    name: str = Field(description="a name that `fedax list` shows")

    @property
    def options(self) -> dict[str, Any]:
        """The fields that belong to the named thing."""
        return dict(self.model_extra or {})


class AlgorithmTable(NamedTable):
    """[algorithm]: a method and its hyper-parameters."""

    label: Annotated[str, Field(min_length=1)] | None = None

    def build(self) -> Algorithm:
        """The method.

        >>> AlgorithmTable(name="FedAvg", lr={"kind": "inverse-time", "initial": 0.1, "decay": 1}).build().lr
        InverseTime(initial=0.1, per='round', decay=1)
        """
        made = build(self.name, **{key: _hyperparameter(key, value) for key, value in self.options.items()})
        whole = {  # a rate of 1 is the rate 1.0, and need not be compiled anew
            f.name: float(value)
            for f in dataclasses.fields(made)  # type: ignore[arg-type]
            if type(value := getattr(made, f.name)) is int and not f.metadata.get("static")
        }
        return dataclasses.replace(made, **whole)  # type: ignore[type-var]

    def resolved(self) -> dict[str, Any]:
        """Name, label and every hyper-parameter, those left at their defaults too.

        >>> AlgorithmTable(name="fedavg", lr=0.1).resolved()
        {'name': 'FedAvg', 'label': 'FedAvg', 'lr': 0.1, 'server_lr': 1.0}
        """
        made = self.build()
        name = type(made).__name__
        fields: Any = dataclasses.fields(made)  # type: ignore[arg-type]
        values = {f.name: self.options.get(f.name, getattr(made, f.name)) for f in fields}
        return {"name": name, "label": self.label or name, **values}

    @model_validator(mode="after")
    def _can_be_built(self) -> AlgorithmTable:
        self.build()
        return self


class PartitionTable(NamedTable):
    """[data.partition]: how the rows are divided among clients."""

    def build(self) -> Partition:
        """The partition.

        >>> PartitionTable(name="ByLabel", clients=20, labels=2).build()
        ByLabel(clients=20, labels=2)
        """
        return data.partition(self.name, **self.options)

    @model_validator(mode="after")
    def _can_be_built(self) -> PartitionTable:
        self.build()
        return self


class ModelTable(NamedTable):
    """[model]: a model and its options; `outputs` follows from the data unless given."""

    outputs: Count | None = None

    def build(self, outputs: int) -> nn.Module:
        """The model with a number of outputs.

        >>> ModelTable(name="mlp", hidden=[64]).build(10).outputs
        10
        """
        return model(self.name, outputs=outputs, **self.options)

    @model_validator(mode="after")
    def _can_be_built(self) -> ModelTable:
        self.build(self.outputs or 1)
        return self


class DataTable(Table):
    """[data]: a dataset, the share of each client's rows in train, validation and test, and the partition."""

    name: str = Field(description="a name that `fedax list datasets` shows")
    split: list[float] = [0.7, 0.1, 0.2]
    seed: Seed = 0
    partition: PartitionTable = PartitionTable(name="IID", clients=10)  # type: ignore[call-arg]

    @field_validator("name")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if name not in data.DATASETS:
            raise unknown("dataset", name, data.DATASETS)
        return name


class ProblemTable(Table):
    """[problem]: what is minimised; the loss follows from the data unless given."""

    loss: str | None = None

    @field_validator("loss")
    @classmethod
    def _is_known(cls, loss: str | None) -> str | None:
        if loss is not None and loss not in LOSSES:
            raise unknown("loss", loss, LOSSES)
        return loss


class Experiment(Table):
    """A whole experiment file."""

    name: Annotated[str, Field(pattern="[A-Za-z0-9]")] = "experiment"
    rounds: Count = Field(description="the number of communication rounds, such as rounds = 60")
    cohort: Count | None = None
    local_steps: Count | None = None
    local_epochs: Annotated[float, Field(gt=0)] | None = None
    batch_size: Count | None = None
    sampling: Literal["epochs", "iid"] = "epochs"
    weighted: bool = False
    eval_every: Count | None = None
    seeds: Annotated[list[Seed], Field(min_length=1)] = [0]
    executor: Literal["auto", "batched", "looped", "debug"] = "auto"
    data: DataTable = Field(description='a table such as [data] with name = "digits"')
    model: ModelTable = Field(description='a table such as [model] with name = "mlp"')
    problem: ProblemTable = ProblemTable()
    algorithm: Annotated[list[AlgorithmTable], Field(min_length=1)] = Field(
        description='a table such as [algorithm] with name = "FedAvg" and lr = 0.1'
    )

    @field_validator("algorithm", mode="before")
    @classmethod
    def _one_or_several(cls, tables: Any) -> Any:
        return [tables] if isinstance(tables, dict) else tables

    @field_validator("seeds")
    @classmethod
    def _differ(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds):
            raise FedaxError(f"{seeds} names a seed twice, and all must differ")
        return seeds

    @model_validator(mode="after")
    def _resolve(self) -> Experiment:
        if self.local_steps is not None and self.local_epochs is not None:
            raise FedaxError(
                f"local_steps is {self.local_steps} and local_epochs is {self.local_epochs}: give one of them"
            )
        if self.eval_every is None:
            self.eval_every = max(1, self.rounds // 50)
        taken: set[str] = set()
        for table in self.algorithm:
            table.label = _distinct(table.label or type(table.build()).__name__, taken)
            taken.add(slug(table.label))
        return self


def slug(label: str) -> str:
    """A label as the name of a directory.

    >>> slug("FedAvg, lr 0.1")
    'fedavg-lr-0.1'
    """
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-.") or "run"


def _distinct(label: str, taken: set[str]) -> str:
    """The label, numbered from 2 on where another already has its slug."""
    if slug(label) not in taken:
        return label
    number = 2
    while slug(f"{label} {number}") in taken:
        number += 1
    return f"{label} {number}"


def _hyperparameter(key: str, value: Any) -> Any:
    """A value as a method takes it; a table is a schedule."""
    if isinstance(value, dict):
        return _schedule(key, value)
    if not isinstance(value, bool | int | float | str):
        raise FedaxError(f"{key} is {value!r}: it must be a number, a name, true or false, or a schedule's table")
    return value


def _schedule(key: str, table: dict[str, Any]) -> Schedule:
    options = dict(table)
    kind = options.pop("kind", None)
    if not isinstance(kind, str):
        raise FedaxError(f"{key} is {table}: a schedule needs kind, one of {', '.join(SCHEDULES)}")
    for name, value in options.items():
        if name != "per" and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise FedaxError(f"{key}.{name} is {value!r}: it must be a number")
    return schedule(kind, **options)
