"""The schema of an experiment file: the fields of its top level, and the tables below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from fedax.engine.check_run import check_evaluated
from fedax.engine.config import SimulatedWork
from fedax.engine.store import byte_count
from fedax.errors import FedaxError, unknown
from fedax.experiments.file_tables import (
    AlgorithmTable,
    AttackTable,
    AvailabilityTable,
    DataTable,
    FileTable,
    ModelTable,
    ProblemTable,
    Seed,
)
from fedax.experiments.grids import TuneTable
from fedax.experiments.sweep_table import SweepTable
from fedax.metrics import METRICS, RESERVED, named
from fedax.options import Count
from fedax.outside import is_outside
from fedax.runs.files import slug

LOCAL = "LocalOnly"
NAME = r"^[^\x00-\x1f\x7f]*[A-Za-z0-9][^\x00-\x1f\x7f]*$"  # printable, with something to name a directory by


class Experiment(FileTable, SimulatedWork):  # type: ignore[misc]  # a model of the fields of a dataclass
    """A whole experiment file: the options of a simulation, and tables.

    name: of the experiment, in its directory and its report.
    eval_every: rounds between two evaluations; unless given, 50 evaluations or a few more.
    budget: the cost that is equal for all methods, each of which may spend what the first one spends; default "rounds".
    seeds: a run for each method and seed.
    checkpoint_every: seconds between two checkpoints.
    log: trackers that get the rows of the history as they are made.
    """

    name: Annotated[str, Field(pattern=NAME, max_length=200)] = "experiment"
    rounds: Annotated[int, Field(ge=1, lt=2**31)] = Field(
        description="the number of communication rounds, such as rounds = 60"
    )
    eval_every: Count | None = None
    stop_by: str | None = None
    budget: Literal["rounds", "gradients", "floats"] | None = None
    seeds: Annotated[list[Seed], Field(min_length=1)] = Field(default=[0])
    checkpoint_every: Annotated[float, Field(ge=0)] = 60.0
    log: list[Literal["tensorboard", "mlflow", "wandb"]] | None = None
    data: DataTable = Field(description='a table such as [data] with name = "digits"')
    model: ModelTable = Field(description='a table such as [model] with name = "mlp"')
    problem: ProblemTable = ProblemTable()
    algorithm: Annotated[list[AlgorithmTable], Field(min_length=1)] = Field(
        description='a table such as [algorithm] with name = "FedAvg" and lr = 0.1'
    )
    attack: AttackTable | None = None  # type: ignore[assignment]  # a table, of which a run's is made
    availability: AvailabilityTable | None = None  # type: ignore[assignment]
    sweep: SweepTable | None = None
    tune: TuneTable | None = None

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

    @field_validator("eval_on")
    @classmethod
    def _parts_differ(cls, parts: Sequence[str] | None) -> Sequence[str] | None:
        if parts is not None and len(set(parts)) < len(parts):
            raise FedaxError(f"{list(parts)} names a part twice")
        return parts

    @field_validator("state_budget")
    @classmethod
    def _is_a_size(cls, budget: str | None) -> str | None:
        if budget is not None:
            byte_count(budget)
        return budget

    @model_validator(mode="after")
    def _resolve(self) -> Experiment:
        if self.local_steps is not None and self.local_epochs is not None:
            raise FedaxError(
                f"local_steps is {self.local_steps} and local_epochs is {self.local_epochs}: give one of them"
            )
        if self.problem.augment is not None and self.batch_size is None:
            raise FedaxError(
                f"problem.augment is {self.problem.augment!r}: it changes minibatches, so batch_size must be given"
            )
        if self.eval_every is None:
            self.eval_every = max(1, self.rounds // 50, min(15, self.rounds // 6))  # an evaluation costs about a round
        taken: set[str] = set()
        for table in self.algorithm:
            method = table.build()
            check_evaluated(self.personal, method)
            table.label = _distinct(table.label or type(method).__name__, taken)
            taken.add(slug(table.label))
        self._name_metrics()
        if self.sweep is not None:
            self.sweep.check(self.algorithm, self.rounds)
        if self.tune is not None:
            self.tune.check(self.algorithm, self.seeds)
        if self.stop_by is not None and self.patience is None:
            raise FedaxError(f"stop_by is {self.stop_by!r}: it goes with patience")
        return self

    def _name_metrics(self) -> None:
        """Measure the metric that decides, and name it as the history does, also if it is one of the user's own."""
        tables = [table for table in (self.tune, self.sweep) if table is not None]
        names = [named(one).name for one in self.problem.metrics]
        for asked in [*(table.metric for table in tables), self.stop_by]:
            if asked is not None and (is_outside(asked) or asked in METRICS):
                name = named(asked).name
                if name not in (*names, *RESERVED):
                    names, self.problem.metrics = [*names, name], [*self.problem.metrics, asked]
        for table in tables:
            table.metric = _bare(table.metric)
            table.knowing(names)
        self.stop_by = _bare(self.stop_by)

    def of(self, table: AlgorithmTable) -> Experiment:
        """The experiment with one method's own number of rounds, evaluated as many times as the other methods."""
        if table.rounds is None or self.eval_every is None:
            return self
        every = max(1, round(self.eval_every * table.rounds / self.rounds))
        return self.model_copy(update={"rounds": table.rounds, "eval_every": every})

    @property
    def compared(self) -> bool:
        """Whether clients have personal models, or some clients join after training: then all models are compared."""
        return self.unseen > 0 or (self.personal and any(table.build().personalised for table in self.algorithm))

    def with_yardstick(self) -> Experiment:
        """A personal experiment with LocalOnly beside its methods, at the rate of the first personal one."""
        made = [table.build() for table in self.algorithm]
        own = [table for table, method in zip(self.algorithm, made, strict=True) if method.personalised]
        if not self.personal or not own or any(not method.shared for method in made) or "lr" not in own[0].options:
            return self
        local = AlgorithmTable(name=LOCAL, label="Local only", lr=own[0].options["lr"])  # type: ignore[call-arg]
        return self.model_copy(update={"algorithm": [*self.algorithm, local]})

    def only(self, labels: Sequence[str]) -> Experiment:
        """The experiment with some of its methods alone, by their labels; with all of them if none is named."""
        known = {str(table.label).lower(): table for table in self.algorithm}
        for label in labels:
            if label.lower() not in known:
                raise unknown("method", label, [str(table.label) for table in self.algorithm])
        chosen = [known[label.lower()] for label in labels] or self.algorithm
        return self.model_copy(update={"algorithm": chosen})


def _bare(metric: str | None) -> str | None:
    """A metric's name as the history has it."""
    return named(metric).name if metric is not None and is_outside(metric) else metric


def _distinct(label: str, taken: set[str]) -> str:
    """The label, numbered from 2 on where another already has its slug."""
    if slug(label) not in taken:
        return label
    number = 2
    while slug(f"{label} {number}") in taken:
        number += 1
    return f"{label} {number}"
