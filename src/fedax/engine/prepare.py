"""Prepare a run: check its problem, method, data and options against each other, and build what rounds need."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedax import platforms
from fedax.algorithms.attacks import Attack, attacked
from fedax.algorithms.base import Algorithm, Context
from fedax.client import shares
from fedax.client.availability import Presence
from fedax.client.cost import Cost, cost
from fedax.client.device_data import Data, Disk, DividedRows, place_data
from fedax.client.draws import busiest_process
from fedax.client.plan import Plan, make_plan
from fedax.client.round import Client
from fedax.data.federation import Federation
from fedax.data.generators.lazy import Lazy
from fedax.data.relabelling import relabel
from fedax.engine.check_run import (
    check_evaluated,
    check_private,
    check_room,
    first_parameters,
    with_model_state,
)
from fedax.engine.config import RunConfig
from fedax.engine.debug import DebugEngine
from fedax.engine.devices import choose_devices
from fedax.engine.early_stopping import judged
from fedax.engine.executors import Executor
from fedax.engine.newcomers import Newcomers, hold_out
from fedax.engine.rounds import Engine
from fedax.engine.row_account import RowAccount
from fedax.engine.same_experiment import check_agreement
from fedax.engine.signatures import check_signatures
from fedax.engine.state import RunState
from fedax.engine.store import Packing, Store, choose_slots
from fedax.errors import FedaxError
from fedax.evaluation import Meter, Meters, smoothness
from fedax.own_code import telling_whose
from fedax.privacy import accounting
from fedax.problem import Problem
from fedax.runs.files import CHECKPOINTS, STATES
from fedax.runtime import configure, process_count
from fedax.vectors import Vector, size

log = logging.getLogger("fedax")


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """A run, checked and built: nothing in it changes from round to round."""

    config: RunConfig
    problem: Problem
    algorithm: Algorithm
    whole: Federation  #: all clients, or those that are evaluated where clients are made as needed
    seen: NDArray[np.int64]  #: those of `whole` that train
    unseen: NDArray[np.int64]  #: those of `whole` that are held out from training
    federation: Federation  #: the clients that train and are evaluated
    rows: NDArray[np.int64]  #: each client's number of training rows
    plan: Plan
    steps: NDArray[np.int64]  #: each client's local steps a round
    engine: Engine
    data: Data | Disk
    measured: Data | Disk  #: the rows of the clients that are evaluated
    meters: Meters
    cost: Cost
    x0: Vector
    store: Store | None  #: clients' states, if they do not fit the devices
    newcomers: Newcomers | None
    advice: str | None  #: what the method says about its rates

    @classmethod
    @telling_whose()
    def of(
        cls,
        problem: Problem,
        federation: Federation | Lazy,
        algorithm: Algorithm,
        config: RunConfig,
        beside: Prepared | None = None,
    ) -> Prepared:
        """Check what was asked, and build what it needs.

        beside: another run on the same federation; rows on the devices are shared with it.
        """
        configure()
        if not isinstance(problem, Problem):
            raise FedaxError(f"problem must be a fedax.Problem such as Problem(model, loss='squared'), not {problem!r}")
        if not isinstance(algorithm, Algorithm):
            raise FedaxError(f"algorithm must be a fedax.Algorithm such as FedAvg(lr=0.1), not {algorithm!r}")
        check_signatures(algorithm)
        if not isinstance(federation, Federation | Lazy):
            raise FedaxError(f"federation must be a fedax.Federation, as fedax.data.load gives, not {federation!r}")
        check_evaluated(config.personal, algorithm)
        check_private(config, algorithm)
        if problem.row_privacy is not None and problem.row_privacy.noise:
            accounting.load()
        if isinstance(federation, Lazy) and config.unseen:
            raise FedaxError(f"unseen is {config.unseen}: clients that are made as they are needed cannot be held out")
        whole = in_memory(federation)
        seen, unseen = hold_out(whole.clients, config.unseen, config.seed)
        trained = whole.subset(seen) if len(unseen) else federation
        trained = relabelled(trained, config.attack, config.seed)
        plan, steps = make_plan(trained, config, cohort=config.cohort)
        plan, steps = _as_available(plan, steps, config)
        check_agreement(problem, in_memory(trained), algorithm, plan, config)
        if process_count() > plan.clients:
            raise FedaxError(
                f"the run has {process_count()} processes, more than the {plan.clients} clients that train: "
                "each process must hold at least one"
            )
        if algorithm.lockstep and not plan.equal_steps:
            why = f"local_epochs={config.local_epochs}" if config.local_epochs else "availability.slow"
            found = f"{why} gives clients {steps.min()} to {steps.max()} local steps"
            raise FedaxError(f"{found}: {algorithm!r} needs the same number for all, so give local_steps instead")
        shown = in_memory(trained)
        problem = problem.own_copy()
        known = beside is not None and beside.problem is problem and beside.federation is shown
        x0 = first_parameters(problem, algorithm, shown, config.seed, checked=known)
        algorithm = attacked(algorithm, config.attack, plan.clients)
        algorithm = with_model_state(problem, algorithm, x0, config.model_state, plan.batch)
        engine = _engine(problem, trained, plan, steps, config, x0, needs_all=algorithm.needs_all)
        changed = config.attack is not None and config.attack.kind == "relabel"
        placed = None if beside is None or changed or beside.engine.mesh != engine.mesh else beside.measured
        others = [shown.part(part) for part in ("validation", "test")]
        measured = place_data(shown.arrays, shown.train, steps[: shown.clients], engine.mesh, placed, others)
        data: Data | Disk = measured
        if isinstance(data, Disk) and not isinstance(data, DividedRows):
            engine.draws.rounds = engine.draws.most = 1  # a round's rows come with its call
        if isinstance(trained, Lazy):
            data = engine.place(Data.of({}, trained.train, steps, trained.make))
        evaluated = dataclasses.replace(plan, clients=shown.clients)
        meters = make_meters(engine, shown, evaluated, config.eval_on)

        def counted(data: Data) -> Cost:
            client = Client(problem, plan, data, 0, engine.seed, 0, algorithm.composite)
            if not isinstance(measured, Data):  # tracing also finds which rows a round reads
                return cost(client, algorithm, x0)
            shapes = tuple(jnp.shape(leaf) for leaf in jax.tree.leaves(x0))
            key = ("cost", plan, jax.tree.structure((algorithm, x0)), shapes)  # it depends on no number or seed
            return cast(Cost, problem.program(key, lambda: cost(client, algorithm, x0)))

        planned = Context(steps=plan.max_steps, cohort=plan.cohort, clients=plan.clients)
        late = None
        if len(unseen):
            late = Newcomers(problem, whole.subset(unseen), config, plan, measured.arrays, list(meters), x0)
        made = cls(
            config=config,
            problem=problem,
            algorithm=algorithm,
            whole=whole,
            seen=seen,
            unseen=unseen,
            federation=shown,
            rows=trained.train.count,
            plan=plan,
            steps=steps,
            engine=engine,
            data=data,
            measured=measured,
            meters=meters,
            cost=data.traced(counted, plan),
            x0=x0,
            store=_store(engine, algorithm, x0, config),
            newcomers=late,
            advice=algorithm.advice(planned, lambda: smoothness(problem, evaluated, measured, x0)),
        )
        if config.patience is not None:
            _ = made.judged  # raises before any work
        return made

    @functools.cached_property
    def row_account(self) -> RowAccount | None:
        """The privacy guarantee of the noise on rows' gradients, or None without noise."""
        asked = self.problem.row_privacy
        if asked is None or not asked.noise:
            return None
        return RowAccount(asked, self.plan, self.engine.draws, self.rows, self.steps, self.cost)

    @property
    def executor(self) -> Executor:
        return self.engine.executor

    @property
    def shown(self) -> Plan:
        """The plan for the clients that are evaluated."""
        return dataclasses.replace(self.plan, clients=self.federation.clients)

    @property
    def personal(self) -> bool:
        """Whether clients' own models are evaluated."""
        return self.config.personal and self.algorithm.personalised

    @property
    def judged(self) -> tuple[str, bool]:
        """The column of the history that early stopping watches, and whether higher is better there."""
        return judged(self.problem.metrics, self.config.stop_by, list(self.meters), personal=self.personal)

    @property
    def protocol(self) -> bool:
        """Whether the run ends with every client's metrics."""
        asked = self.config.protocol
        return self.personal or len(self.unseen) > 0 if asked is None else asked

    def taking(self, algorithm: Algorithm) -> Prepared:
        """The same run of another method of the same kind."""
        rule = self.config.model_state
        algorithm = attacked(algorithm, self.config.attack, self.plan.clients)
        other = with_model_state(self.problem, algorithm, self.x0, rule, self.plan.batch)
        return dataclasses.replace(self, algorithm=other, advice=None)

    def start(self) -> RunState:
        """The state before the first round."""
        first = self.engine.start(self.algorithm, self.x0, self.store)
        return RunState(first.server, first.clients, joined=np.zeros(self.plan.clients, np.int64))

    def own_models(self, state: RunState) -> Any:
        """The own models of the clients that are evaluated, stacked."""
        who = np.arange(self.federation.clients)
        return jax.device_get(self.engine.personal(self.algorithm, state, self.data, who))


def in_memory(federation: Federation | Lazy) -> Federation:
    """The clients whose rows are in memory: all, or the evaluated ones where clients are made as needed.

    >>> from fedax.data.generators.lazy import lazily
    >>> in_memory(lazily("clusters", preset="plain", clients=1_000_000, rows=20, shown=3)).clients
    3
    """
    return federation.shown_clients if isinstance(federation, Lazy) else federation


def relabelled(federation: Federation | Lazy, attack: Attack | None, seed: int) -> Federation | Lazy:
    """The federation as attackers train on it, if they change labels."""
    if attack is None or attack.kind != "relabel" or not attack.share:
        return federation
    if isinstance(federation, Lazy):
        raise FedaxError("attack.kind is 'relabel': clients that are made as they are needed cannot be relabelled")
    return relabel(federation, attack.who(seed, federation.clients).tolist())


def _engine(
    problem: Problem,
    trained: Federation | Lazy,
    plan: Plan,
    steps: NDArray[np.int64],
    config: RunConfig,
    x0: Vector,
    *,
    needs_all: bool,
) -> Engine:
    """The engine that runs the rounds, on devices that suit the cohort."""
    arrays, chunk = in_memory(trained).arrays, config.chunk
    if isinstance(trained, Lazy) and chunk is None:  # rows that are made take room beside the models
        made_rows = plan.max_rows * sum(array[0].size for array in arrays.values())
        chunk = max(1, platforms.current().made // max(size(x0), made_rows))
    seed, processes = jax.random.key(config.seed), process_count()
    most = None if processes == 1 else busiest_process(plan, processes, seed, config.rounds)
    executor, mesh = choose_devices(config.executor, problem, x0, arrays, plan, steps, config.devices, chunk, most)
    check_room(plan, executor, arrays)
    made = DebugEngine if executor.name == "debug" else Engine
    asked = config.availability
    presence = None
    if asked is not None and asked.sometimes:
        presence = Presence(asked, config.seed, plan.clients, needs_all=needs_all)
    return made(problem, plan, executor, mesh, seed, config.rounds, presence)


def _as_available(plan: Plan, steps: NDArray[np.int64], config: RunConfig) -> tuple[Plan, NDArray[np.int64]]:
    """The plan and the clients' steps where some are slow or not always there."""
    asked = config.availability
    if asked is None:
        return plan, steps
    asked.check(plan.clients)
    if asked.sometimes and process_count() > 1:
        raise FedaxError(f"availability is for runs in one process, not in {process_count()}")
    steps = asked.steps(config.seed, steps)
    equal = bool(steps.min() == steps.max())
    changed = dataclasses.replace(plan, max_steps=int(steps.max()), equal_steps=equal, sometimes=asked.sometimes)
    return changed, steps


def _store(engine: Engine, algorithm: Algorithm, x0: Vector, config: RunConfig) -> Store | None:
    """The store of the clients' states that this process holds; None if they are on the devices."""
    plan, processes = engine.plan, shares.processes(engine.mesh)
    own = config.folder is None or processes > 1  # a file of its own; checkpoints are in another
    kept = None if own or config.folder is None else config.folder / CHECKPOINTS / STATES
    copies = 0 if engine.executor.name == "debug" else engine.executor.devices // processes
    budget = config.state_budget
    if (room := platforms.room_to_hold()) is not None:  # every device has memory of its own
        budget, copies = room if budget is None else budget, min(copies, 1)
    clients, cohort = shares.share(engine.mesh, plan.clients), min(plan.cohort, engine.executor.places // processes)
    packing = Packing(algorithm.client_init(x0))
    slots = choose_slots(packing, clients, cohort, config.rounds, copies, budget, kept)
    return None if slots is None else Store(packing, plan.clients, slots)


def make_meters(engine: Engine, federation: Federation, shown: Plan, eval_on: Sequence[str] | None) -> Meters:
    """One meter for each part that is evaluated: those named, else held-out rows where there are any."""
    if eval_on is None:
        eval_on = [part for part in ("validation", "test") if federation.part(part).count.sum()] or ["train"]
    batched = 1 if engine.executor.name == "looped" else max(1, min(64, shown.clients // engine.mesh.devices.size))
    meters = Meters()
    for name in eval_on:
        rows = federation.part(name)
        if not rows.count.sum():
            raise FedaxError(f"eval_on names {name!r}, but no client has {name} rows")
        meters[name] = Meter(engine.problem, shown, engine.mesh, rows.start, rows.count, batched, engine.seed)
    return meters
