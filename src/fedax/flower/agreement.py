"""What a server and its clients must agree on: the problem, the method, the schedule, how many clients there are."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
from annotated_types import MinLen

from fedax.algorithms.base import Algorithm
from fedax.algorithms.with_model_state import bare
from fedax.client.plan import Plan, RoundWork, make_plan
from fedax.data import Federation
from fedax.data.generators.lazy import Lazy
from fedax.engine.check_run import check_evaluated, first_parameters, with_model_state
from fedax.engine.config import Part
from fedax.engine.early_stopping import judged
from fedax.engine.fingerprint import source
from fedax.errors import FedaxError
from fedax.experiments import Experiment, prepare, read
from fedax.experiments.building import availability_of
from fedax.experiments.resolved import resolved_run
from fedax.flower.messages import Layout
from fedax.flower.privacy_settings import FIELDS, Privacy
from fedax.flower.secure_aggregation import FEWEST, Mean
from fedax.options import Count, check_options
from fedax.outside import portable
from fedax.problem import Problem
from fedax.runs.files import as_json
from fedax.runtime import configure
from fedax.vectors import Vector
from fedax.version import VERSION


@dataclasses.dataclass(frozen=True, eq=False)
class Setting(RoundWork):
    """A run of one method over a network.

    clients: how many there are in all, numbered from 0 on; those of `federation` if that is given.
    federation: everybody's rows, where server and clients can all make them (a test, a demonstration); None where each
        client brings its own.
    The other fields are those of `fedax.simulate`.

    >>> import fedax, jax.numpy as jnp
    >>> mean = fedax.Problem(loss=lambda w, b: jnp.mean((b["x"] - w) ** 2) / 2, init=lambda key: jnp.zeros(()))
    >>> setting = Setting(mean, fedax.FedAvg(lr=0.5), rounds=3, clients=2)
    >>> setting.cohort, len(setting.fingerprint)
    (2, 12)
    """

    problem: Problem
    algorithm: Algorithm
    clients: Count | None = None
    federation: Federation | None = None
    seed: int = 0
    eval_every: Count = 1
    eval_on: Annotated[Sequence[Part], MinLen(1)] = ("train", "validation", "test")  #: as far as clients have such rows
    patience: Count | None = None  #: evaluations without improvement on validation rows after which the run ends
    stop_by: str | None = None  #: the metric that early stopping watches; accuracy where there is one, else loss
    privacy: Privacy | None = None  #: clipping of uploads, and noise on their mean
    secure: float | None = None  #: secure aggregation of uploads whose entries are at most this large; None for plain
    name: str = "experiment"
    resolved: Mapping[str, Any] = dataclasses.field(default_factory=dict)  #: the experiment, every default written out

    def __post_init__(self) -> None:
        given = self.clients if self.federation is None else self.federation.clients
        if given is None:
            raise FedaxError(
                "clients is missing: it must be the number of clients in all, unless a federation is given"
            )
        check_options(self)
        if not isinstance(self.algorithm, Algorithm):
            raise FedaxError(f"algorithm must be a fedax.Algorithm such as FedAvg(lr=0.1), not {self.algorithm!r}")
        asked = self.algorithm.privacy
        if asked is not None:  # clipping is then the client's, and the noise the server's own
            if asked is not self.algorithm or self.privacy is not None:
                what = "over a network Private must be the outermost method, and clip be given once"
                raise FedaxError(f"{self.algorithm!r}: {what}")
            object.__setattr__(self, "privacy", Privacy(**{name: getattr(asked, name) for name in FIELDS}))
            object.__setattr__(self, "algorithm", self.algorithm.base)
        cohort = given if self.cohort is None else self.cohort
        if cohort > given:
            raise FedaxError(f"cohort={cohort} is larger than the {given} clients that there are")
        check_evaluated(self.personal, self.algorithm)
        if self.patience is not None:
            _ = self.judged  # raises before any work
        if self.algorithm.aggregate != "mean" and (self.privacy is not None or self.secure is not None):
            raise FedaxError(f"{self.algorithm!r} does not take the mean of uploads: clip, noise and secure need one")
        if self.privacy is not None:
            self.privacy.refuse(weighted=self.weighted)
        if self.problem.row_privacy is not None:
            what = (
                "its noise follows from the seed, which all sites know: clip and noise protect uploads over a network"
            )
            raise FedaxError(f"gradients: dp is for simulations: {what}")
        if self.secure is not None:
            Mean(self.secure)
            if cohort < FEWEST:
                raise FedaxError(f"secure is {self.secure}: it needs a cohort of {FEWEST} or more, not {cohort}")
        object.__setattr__(self, "problem", self.problem.own_copy())
        object.__setattr__(self, "clients", given)
        object.__setattr__(self, "cohort", cohort)

    @functools.cached_property
    def described(self) -> dict[str, str]:
        """Everything that must be the same on both sides, in words."""
        schedule = (self.local_steps, self.local_epochs, self.batch_size, self.sampling, self.weighted)
        about = {
            "algorithm": repr(self.algorithm),
            "version of the method": source(type(bare(self.algorithm))),
            "seed": str(self.seed),
            "rounds": str(self.rounds),
            "clients": f"{self.cohort} of {self.clients}",
            "work": repr(schedule),
            "model_state": str(self.model_state),
            "availability": repr(self.availability),
            "patience": f"{self.patience} {self.stop_by}",
            "trainable": getattr(self.problem.trainable, "__name__", str(self.problem.trainable)),
            "privacy": repr(self.privacy),
            "secure": repr(self.secure),
            "loss": portable(self.problem.name),
            "metrics": ", ".join(self.problem.metrics),
            "regularizer": repr(self.problem.regularizer),
            "gradients": repr(self.problem.gradients),
            "augment": getattr(self.problem.augment, "__name__", str(self.problem.augment)),
            "fedax": VERSION,
            "jax": jax.__version__,
        }
        tables = ("model", "problem") if self.federation is None else ("model", "problem", "data")
        return about | {name: json.dumps(as_json(portable(self.resolved.get(name))), default=str) for name in tables}

    @property
    def judged(self) -> tuple[str, bool]:
        """The column of the history that early stopping watches, and whether higher is better there."""
        personal = self.personal and self.algorithm.personalised
        return judged(self.problem.metrics, self.stop_by, self.eval_on, personal=personal)

    @functools.cached_property
    def fingerprint(self) -> str:
        """A short hash of everything that both sides must agree on."""
        return hashlib.sha256(json.dumps(self.described, sort_keys=True).encode()).hexdigest()[:12]

    def first_parameters(self, layout: Layout) -> Vector:
        """x0, the same on the server and at every site, from the layout of a row.

        Afterwards `algorithm` is the method with the model's state, if the model has one.
        """
        shown = self.federation
        if shown is None:
            shown = Federation.from_clients([{k: np.zeros((2, *shape), dtype) for k, (shape, dtype) in layout.items()}])
        try:
            x0 = first_parameters(self.problem, self.algorithm, shown, self.seed)
            taken = with_model_state(self.problem, self.algorithm, x0, self.model_state, self.batch_size)
            object.__setattr__(self, "algorithm", taken)
            return x0
        except (TypeError, ValueError) as error:
            raise not_taken(layout, error) from error

    def slowed(self, steps: int, client: int) -> int:
        """How many of `steps` local steps a client takes: fewer if the experiment's availability makes it slow."""
        if self.availability is None:
            return steps
        assert self.clients is not None
        return int(self.availability.steps(self.seed, np.full(self.clients, steps))[client])

    def plan(self, own: Federation, number: int | None = None) -> Plan:
        """The plan of a client, made as if every client had as many rows as this one.

        number: the client's, where it matters whether that client is slow.
        """
        alone, steps = make_plan(own, self, cohort=None)
        assert self.clients is not None
        assert self.cohort is not None
        if number is not None:
            alone = dataclasses.replace(alone, max_steps=self.slowed(int(steps[0]), number))
        return dataclasses.replace(alone, clients=self.clients, cohort=self.cohort)


def compare(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str:
    """The differences between two sides, in words.

    >>> compare({"seed": "0", "rounds": "5"}, {"seed": "1", "rounds": "5"})
    'seed is 0 there and 1 here'
    """
    keys = [key for key in {**ours, **theirs} if theirs.get(key) != ours.get(key)]
    return "; ".join(f"{key} is {theirs.get(key)} there and {ours.get(key)} here" for key in keys)


def layout_of(arrays: Mapping[str, np.ndarray[Any, Any]]) -> Layout:
    """The shape and dtype of a row, array by array, as JAX takes it.

    >>> layout_of({"x": np.ones((5, 3)), "y": np.arange(5)})
    {'x': ((3,), 'float32'), 'y': ((), 'int32')}
    """
    return {k: (tuple(a.shape[1:]), str(jax.dtypes.canonicalize_dtype(a.dtype))) for k, a in sorted(arrays.items())}


def show(layout: Layout) -> str:
    """A layout in words.

    >>> show({"x": ((3,), "float32"), "y": ((), "int32")})
    'x float32[3], y int32[]'
    """
    return ", ".join(f"{name} {dtype}{list(shape)}" for name, (shape, dtype) in layout.items())


def not_taken(layout: Layout, error: Exception) -> FedaxError:
    """The error for rows on which a problem fails; a FedaxError stays as it is."""
    if isinstance(error, FedaxError):
        return error
    why = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return FedaxError(f"the problem does not take rows of {show(layout)}: {why}")


def setting_of(
    experiment: Setting | Experiment | str | os.PathLike[str],
    config: Mapping[str, Any],
    *,
    clients: int | None = None,
) -> Setting:
    """The setting of one method and one seed of an experiment; `config` is Flower's run configuration.

    clients: where they bring their own rows, how many there are; then the experiment's [data] is not read, and it must
        say `model.outputs` and `problem.loss`.
    """
    configure()
    if isinstance(experiment, Setting):
        return experiment
    asked = experiment if isinstance(experiment, Experiment) else read(Path(experiment))
    if config.get("method"):
        asked = asked.only([str(config["method"])])
    if len(asked.algorithm) > 1:
        labels = ", ".join(str(table.label) for table in asked.algorithm)
        raise FedaxError(f"method is missing: a federation runs one method at a time, one of {labels}")
    seeds = [int(config["seed"])] if "seed" in config else asked.seeds
    if len(seeds) > 1:
        raise FedaxError(f"seed is missing: a federation runs one seed at a time, one of {seeds}")
    if asked.attack is not None:
        raise FedaxError("attack is for simulations: over a network it must be left out")
    if asked.unseen:
        raise FedaxError(f"unseen is {asked.unseen}: over a network no client can be held out")
    if clients is None:
        problem, federation = prepare(asked)
        if isinstance(federation, Lazy):
            raise FedaxError("data.lazy is true: over a network each client has its rows, so it must be false")
    else:
        problem, federation = _without_data(asked), None
    table = asked.algorithm[0]
    names = [*(field.name for field in dataclasses.fields(RoundWork)), "eval_every", "name", "patience", "stop_by"]
    options: dict[str, Any] = {name: getattr(asked, name) for name in names}
    options["availability"] = availability_of(asked)
    if asked.eval_on is not None:
        options["eval_on"] = tuple(asked.eval_on)
    elif federation is None or federation.test.count.sum() + federation.validation.count.sum():
        options["eval_on"] = ("validation", "test")
    resolved = resolved_run(asked, table, seeds[0])
    used = {
        "problem": {**resolved["problem"], "loss": problem.name},
        "model": {**resolved["model"], "outputs": problem.outputs_per_row or resolved["model"]["outputs"]},
        "metrics": [metric.describe() for metric in problem.metrics.values()],
    }
    return Setting(
        problem,
        table.build(),
        clients=clients,
        federation=federation,
        seed=seeds[0],
        privacy=Privacy.of(config),
        secure=config.get("secure") or None,
        resolved={**resolved, **used},
        **options,
    )


def _without_data(experiment: Experiment) -> Problem:
    """The problem of an experiment whose clients bring their own rows."""
    table = experiment.problem
    for name, value in (("model.outputs", experiment.model.outputs), ("problem.loss", table.loss)):
        if value is None:
            raise FedaxError(f"{name} is missing: it must be given where clients bring their own rows")
    assert experiment.model.outputs is not None
    assert table.loss is not None
    return Problem(
        experiment.model.build(experiment.model.outputs),
        loss=table.loss,
        regularizer=None if table.regularizer is None else table.regularizer.build(),
        augment=table.augment,
        gradients=table.gradients or (),
        metrics=table.metrics,
        trainable=table.trainable,
    )
