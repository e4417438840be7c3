"""The tables of an experiment file but for [sweep]: their fields, and what each may be.

Hyper-parameters, partitions, regularizers and model options are checked by building what they describe, so a
mistake in them is found when the file is read.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

from fedax import data
from fedax.algorithms import Algorithm, build
from fedax.algorithms.attacks import Attack
from fedax.client.availability import Availability
from fedax.data import Federation, Partition
from fedax.data.generators.lazy import SHOWN, Lazy, lazily
from fedax.data.loading import check_outside_options
from fedax.engine.record import written_out
from fedax.errors import FedaxError, unknown
from fedax.evaluation.metrics import check_names
from fedax.models import model
from fedax.models.adapters import as_model, with_init
from fedax.models.augmentation import AUGMENTATIONS
from fedax.options import Count
from fedax.outside import is_outside
from fedax.problem.gradients import row_privacy, transformations
from fedax.problem.losses import row_loss
from fedax.regularizers import Regularizer, regularizer
from fedax.schedules import SCHEDULES, Schedule, schedule

Seed = Annotated[int, Field(ge=0, lt=2**32)]


class FileTable(BaseModel):
    """A table with a fixed set of fields."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class NamedTable(BaseModel):
    """A table whose further fields depend on the name it gives."""

    model_config = ConfigDict(extra="allow", strict=True)

    name: str = Field(description="a name that `fedax list` shows, or mymodule:Name, path/to/file.py:Name")

    @property
    def options(self) -> dict[str, Any]:
        """The fields that belong to the named thing."""
        return dict(self.model_extra or {})


class AlgorithmTable(NamedTable):
    """[algorithm]: a method and its hyper-parameters. `[[algorithm]]` names several, one after the other.

    label: the method's name in reports; its class's unless given.
    rounds: of this method, where they differ from the experiment's.
    """

    label: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$")] | None = None
    rounds: Count | None = None
    _built: Algorithm | None = PrivateAttr(None)

    def build(self) -> Algorithm:
        """The method that the table describes, built once.

        >>> AlgorithmTable(name="FedAvg", lr={"kind": "inverse-time", "initial": 0.1, "decay": 1}).build().lr
        InverseTime(initial=0.1, per='round', decay=1)
        """
        if self._built is None:
            self._built = _method(self.name, self.options)
        return self._built

    def resolved(self) -> dict[str, Any]:
        """Name, label and every hyper-parameter, defaults included.

        >>> AlgorithmTable(name="fedavg", lr=0.1).resolved()
        {'name': 'FedAvg', 'label': 'FedAvg', 'lr': 0.1, 'server_lr': 1.0}
        """
        made = self.build()
        values = written_out(made, {"name": self.name, **self.options})
        rounds = {} if self.rounds is None else {"rounds": self.rounds}
        return {"name": values["name"], "label": self.label or type(made).__name__, **rounds, **values}

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
    """[model]: a model and its options; `outputs` follows from the data unless given. A PyTorch module starts from its
    own weights, or with `init = "reset"` from weights that are drawn for each seed.

    outputs: the numbers that the model gives for each row.
    init: the first weights of a PyTorch module: "module", its own for every seed, or "reset", drawn for each seed.
    """

    outputs: Count | None = None
    init: Literal["module", "reset"] | None = None
    _built: dict[int, Any] = PrivateAttr(default_factory=dict)  # tuning and the runs after it share what was exported

    def build(self, outputs: int) -> Any:
        """The model with a number of outputs.

        >>> ModelTable(name="mlp", hidden=[64]).build(10).outputs
        10
        """
        if outputs not in self._built:
            made = model(self.name, outputs=outputs, **self.options)
            self._built[outputs] = as_model(made) if self.init is None else with_init(made, self.init)
        return self._built[outputs]

    @model_validator(mode="after")
    def _can_be_built(self) -> ModelTable:
        self.build(self.outputs or 1)
        return self


class DataTable(NamedTable):
    """[data]: a dataset. Rows are divided by `partition`, or by the client column of a table, and each client's by
    `split` into train, validation and test; with `test = "official"` all clients have the dataset's own test set, and
    `split` is (train, validation). A dataset that comes divided has options of its own instead; where its clients are
    functions of their numbers, `lazy` makes them as they are needed, and `shown` of them are evaluated.

    split: the shares of a client's rows for training, validation and test.
    seed: of the division, whatever the runs' seeds are.
    test: "official" for the dataset's own test set, held by all clients.
    lazy: whether a client's rows are made when it takes part.
    shown: the number of lazy clients that are evaluated.
    """

    split: list[float] | None = None
    seed: Seed = 0
    test: Literal["official"] | None = None
    partition: PartitionTable | None = None
    lazy: bool = False
    shown: Count | None = None

    def build(self) -> Federation | Lazy:
        """The federation.

        >>> DataTable(name="lasso", preset="thesis-III", dimension=16, clients=4).build().clients
        4
        """
        if self.lazy:
            return lazily(self.name, seed=self.seed, shown=self.shown or SHOWN, **self.options)
        if self.name in data.FEDERATIONS:
            seed = {"seed": self.seed} if data.FEDERATIONS[self.name].presets else {}
            return data.divided(self.name, **seed, **self.options)
        rule = None if self.partition is None else self.partition.build()
        if is_outside(self.name):
            split: dict[str, Any] = {} if self.split is None else {"split": self.split}
            return data.load(self.name, partition=rule, seed=self.seed, test=self.test, **split, **self.options)
        return data.load(self.name, partition=rule, split=self.split, seed=self.seed, test=self.test, **self.options)

    @model_validator(mode="before")
    @classmethod
    def _comes_divided(cls, table: Any) -> Any:
        name = table.get("name") if isinstance(table, dict) else None
        if isinstance(name, str) and name in data.FEDERATIONS:
            unused = ["split", "partition", "test", *([] if data.FEDERATIONS[name].presets else ["seed"])]
            for field in unused:
                if table.get(field) not in (None, 0):  # a resolved experiment says that there is none
                    raise FedaxError(f"{field} must be left out: {name} comes divided among clients")
        return table

    @field_validator("name")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if not is_outside(name) and name not in data.DATASETS | data.FEDERATIONS:
            raise unknown("dataset", name, data.DATASETS | data.FEDERATIONS)
        return name

    @model_validator(mode="after")
    def _resolve(self) -> DataTable:
        if self.shown is not None and not self.lazy:
            raise FedaxError(f"shown is {self.shown}: it goes with lazy = true")
        if is_outside(self.name):
            if self.lazy or self.test is not None:
                field = "lazy" if self.lazy else "test"
                raise FedaxError(f"{field} must be left out: {self.name} is not one of Fedax's own datasets")
            check_outside_options(self.name, self.options)
            return self
        if self.lazy:
            self.shown = lazily(self.name, seed=self.seed, shown=self.shown or SHOWN, **self.options).shown
        if self.name in data.FEDERATIONS:
            for field, value in data.FEDERATIONS[self.name].resolved(self.options).items():
                setattr(self, field, list(value) if isinstance(value, tuple) else value)
            return self
        dataset = data.DATASETS[self.name]
        for field in self.options:
            if field not in dataset.options:
                raise unknown("field of [data]", field, [*type(self).model_fields, *dataset.options])
        for field, value in dataset.resolved(self.options).items():
            if value is not None:
                setattr(self, field, value)
        if self.test is not None and dataset.read_test is None:
            raise FedaxError(f"test must be left out: {self.name} has no test set of its own")
        if self.split is None:
            self.split = [0.7, 0.1, 0.2] if self.test is None else [1.0, 0.0]
        if self.options.get("client") is None:
            self.partition = self.partition or PartitionTable(name="IID", clients=10)  # type: ignore[call-arg]
        elif self.partition is not None:
            raise FedaxError(
                f"partition must be left out: the client column {self.options['client']!r} divides the rows"
            )
        return self


class AttackTable(FileTable):
    """[attack]: what a share of the clients does instead of their part.

    strength: of what they send; 1 for flip and 10 for the others unless given.
    """

    kind: Literal["flip", "scale", "noise", "relabel"] = Field(description="flip, scale, noise or relabel")
    share: Annotated[float, Field(ge=0, lt=1)] = Field(description="the share of clients that attack, such as 0.2")
    strength: Annotated[float, Field(gt=0)] | None = None

    def build(self) -> Attack:
        """The attack.

        >>> AttackTable(kind="scale", share=0.2).build()
        Attack(kind='scale', share=0.2, strength=10.0)
        """
        return Attack(self.kind, self.share, self.strength)

    @model_validator(mode="after")
    def _can_be_built(self) -> AttackTable:
        self.strength = self.build().strength
        return self


class AvailabilityTable(FileTable):
    """[availability]: when clients are there, and what they manage; the fields of `fedax.Availability`.
    column: of the table, whose mean over a client's rows is the probability that the client is there."""

    share: float | list[float] | None = None
    column: str | None = None
    on: Count | None = None
    off: Count | None = None
    leave: float | None = None
    come: float | None = None
    drop_out: float = 0.0
    slow: float = 0.0
    speed: float = 0.5

    def build(self, share: Any = None) -> Availability:
        """What is asked of clients; share: the probabilities that the column gives.

        >>> AvailabilityTable(on=3, off=1).build()
        Availability(share=None, on=3, off=1, leave=None, come=None, drop_out=0.0, slow=0.0, speed=0.5)
        """
        given = self.model_dump(exclude={"column"})
        return Availability(**{**given, "share": share if self.column is not None else self.share})

    @model_validator(mode="after")
    def _can_be_built(self) -> AvailabilityTable:
        if self.column is not None and self.share is not None:
            raise FedaxError("share and column are two ways to be there: give one of them")
        self.build(0.5)
        return self


class RegularizerTable(NamedTable):
    """[problem.regularizer]: psi and its fields."""

    def build(self) -> Regularizer:
        """The regularizer.

        >>> RegularizerTable(name="L1", strength=0.3).build()
        L1(on=None, strength=0.3)
        """
        return regularizer(self.name, **self.options)

    @model_validator(mode="after")
    def _resolve(self) -> RegularizerTable:
        made = self.build()
        self.name = self.name if is_outside(self.name) else made.name
        for field in dataclasses.fields(made):
            setattr(self, field.name, getattr(made, field.name))
        return self


class ProblemTable(FileTable):
    """[problem]: what is minimised; the loss follows from the data unless given.

    loss: the name of a loss, or mymodule:my_loss.
    augment: what changes each minibatch before training, "flip-crop" or "none".
    gradients: transformations between the gradient and the method, such as [{ name = "clip", max_delta = 1.0 }].
    metrics: names of what is measured beside the loss.
    trainable: a pattern for the paths of the leaves that are trained, all unless given.
    """

    loss: str | None = None
    regularizer: RegularizerTable | None = None
    augment: str | None = None
    gradients: list[dict[str, Any]] | None = None
    metrics: list[str] = []
    trainable: Annotated[str, Field(min_length=1)] | None = None

    @field_validator("gradients")
    @classmethod
    def _are_transformations(cls, gradients: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
        transformations(row_privacy(gradients or ())[1])
        return gradients

    @field_validator("metrics")
    @classmethod
    def _are_known(cls, metrics: list[str]) -> list[str]:
        check_names(metrics)
        return metrics

    @field_validator("loss")
    @classmethod
    def _is_known(cls, loss: str | None) -> str | None:
        if loss is not None:
            row_loss(loss)
        return loss

    @field_validator("augment")
    @classmethod
    def _is_known_augmentation(cls, augment: str | None) -> str | None:
        if augment not in (None, "none", *AUGMENTATIONS):
            raise unknown("augmentation", augment, ("none", *AUGMENTATIONS))
        return None if augment == "none" else augment


def _method(name: str, options: dict[str, Any], path: str = "") -> Algorithm:
    """A method from its table."""
    made = build(name, **{key: _hyperparameter(path + key, value) for key, value in options.items()})
    whole = {  # a rate of 1 is the rate 1.0, and need not be compiled again
        f.name: float(value)
        for f in dataclasses.fields(made)  # type: ignore[arg-type]
        if type(value := getattr(made, f.name)) is int and not f.metadata.get("static")
    }
    return dataclasses.replace(made, **whole)  # type: ignore[type-var]


def _hyperparameter(key: str, value: Any) -> Any:
    """A value as a method takes it; a table with a name is a method, with a kind a schedule."""
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        return _method(value["name"], {k: v for k, v in value.items() if k != "name"}, f"{key}.")
    if isinstance(value, dict):
        return _schedule(key, value)
    if not isinstance(value, bool | int | float | str):
        raise FedaxError(f"{key} is {value!r}: it must be a number, a name, true or false, or a schedule's table")
    return value


def _schedule(key: str, table: dict[str, Any]) -> Schedule:
    options = dict(table)
    kind = options.pop("kind", None)
    if not isinstance(kind, str):
        raise FedaxError(f"{key} is {table}: a schedule needs kind, one of {', '.join(SCHEDULES)}; a method, name")
    for name, value in options.items():
        if name != "per" and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise FedaxError(f"{key}.{name} is {value!r}: it must be a number")
    return schedule(kind, **options)
