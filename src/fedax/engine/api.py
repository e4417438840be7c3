"""`simulate` and `stream`: a run in one call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from fedax import notebook
from fedax.algorithms.base import Algorithm
from fedax.data.federation import Federation
from fedax.data.generators.lazy import Lazy
from fedax.engine.config import RunConfig, takes_options
from fedax.engine.loop import Simulation
from fedax.engine.prepare import Prepared
from fedax.engine.record import client_values, describe
from fedax.engine.result import Result
from fedax.errors import DivergedError
from fedax.options import made_of
from fedax.problem import Problem
from fedax.runs.folder import RunFolder, Status
from fedax.runs.lock import locked
from fedax.runtime import noticing_losses


@takes_options(RunConfig)
def simulate(problem: Problem, federation: Federation | Lazy, algorithm: Algorithm, **options: Any) -> Result:
    """Run a method on a federation and return a `Result`: its history and models.

    rounds: communication rounds, at least 1.
    cohort: clients a round, drawn without replacement; None for all.
    local_steps, local_epochs: a client's work a round, in steps (default 1) or passes over its rows.
    batch_size: rows a minibatch; None for the full local gradient.
    sampling: "epochs" (reshuffled) or "iid" (with replacement).
    weighted: average by clients' rows instead of uniformly.
    seed: the seed of everything that is random.
    eval_every: rounds between two evaluations. eval_on: parts to evaluate on, test rows by default.
    personal: whether to evaluate clients' own models, where the method makes them, beside the shared one.
    out: a directory for all that the command line would leave: metrics log, status, clients, models, report.
    label: the method's name in reports; its class's unless given.
    executor: "auto", "batched", "looped" or "debug"; chunk: clients batched together; devices: how many to use.
    zero_below: on a problem with a regularizer, what counts as zero in density, support and rank.
    unseen: share of clients held out from training; when training is over they join, by the method's own rule.
    join_steps: local steps that they take then; by default as many as the others took on average.
    join_restarts: whether schedules of rates begin again for them, instead of going on from the last round.
    before_averaging: whether the protocol also judges clients' own models as they are before the server averages.
    state_budget: memory for clients' states, such as "2GiB"; above it they are kept beside the devices or in a file.
    checkpoint_every: seconds between two checkpoints in `out`; None for none. resume: go on from the last one there.
    model_state: on a model with state, such as BatchNorm's statistics, what clients do with it: "average" it with their
        uploads, or keep it by the "client" (FedBN), whose metrics are then with its own.
    protocol: whether to end with `result.by_client`, every client's metrics with the shared, the localised and its own
        model; by default where there are personal models or unseen clients.
    attack: what a share of the clients does instead of their part, such as `fedax.Attack("flip", share=0.2)`.
    availability: when clients are there and who is slow: `fedax.Availability(leave=0.1, come=0.3, drop_out=0.05)`.
    patience: stop when this many evaluations in a row have not improved on the best; None to run all rounds.
    stop_by: the metric of the validation rows that early stopping watches; accuracy where there is one, else loss.
    on_progress: called with the number of rounds done, about twice a second; in a notebook a bar, unless given.

    >>> import numpy as np, jax.numpy as jnp, fedax
    >>> mean = fedax.Problem(loss=lambda w, b: jnp.mean((b["x"] - w) ** 2) / 2, init=lambda key: jnp.zeros(()))
    >>> clients = fedax.Federation.from_clients([{"x": np.float32([1, 2, 3])}, {"x": np.float32([6])}])
    >>> result = simulate(mean, clients, fedax.FedAvg(lr=0.5), rounds=30)
    >>> round(float(result.model), 3)  # the minimiser of the mean of the clients' losses: (2 + 6) / 2
    4.0
    """
    made: list[Result] = []
    for _ in _rows(made.append, problem, federation, algorithm, **options):
        pass
    return made[0]


@takes_options(RunConfig)
def stream(
    problem: Problem, federation: Federation | Lazy, algorithm: Algorithm, **options: Any
) -> Iterator[dict[str, Any]]:
    """`simulate`, yielding each evaluated round's row as it is reached.

    >>> import numpy as np, jax.numpy as jnp, fedax
    >>> mean = fedax.Problem(loss=lambda w, b: jnp.mean((b["x"] - w) ** 2) / 2, init=lambda key: jnp.zeros(()))
    >>> clients = fedax.Federation.from_clients([{"x": np.float32([4])}])
    >>> [row["round"] for row in stream(mean, clients, fedax.FedAvg(lr=0.5), rounds=4, eval_every=2)]
    [0, 2, 4]
    """
    yield from _rows(lambda result: None, problem, federation, algorithm, **options)


def _rows(
    done: Callable[[Result], None],
    problem: Problem,
    federation: Federation | Lazy,
    algorithm: Algorithm,
    **options: Any,
) -> Iterator[dict[str, Any]]:
    """Run a simulation, yield its rows, keep its directory up to date if there is one, and hand over the result."""
    config = made_of(RunConfig, options)
    if config.on_progress is None:
        bar = notebook.progress(f"{config.label or type(algorithm).__name__}, seed {config.seed}", config.rounds)
        config = dataclasses.replace(config, on_progress=bar)
    with locked(config.folder), noticing_losses():
        simulation = Simulation.of(Prepared.of(problem, federation, algorithm, config))
        simulation.about = describe(simulation.prepared)
        folder = _begun(simulation)
        try:
            yield from simulation
            result = simulation.result
            simulation.finish(result)
        except BaseException as error:
            if isinstance(error, DivergedError) and isinstance(error.result, Result):
                _keep_diverged(simulation, error, error.result)
            elif folder is not None:
                stopped = isinstance(error, KeyboardInterrupt | GeneratorExit)
                ended: Status = "interrupted" if stopped else "failed"
                folder.status(ended, simulation.state.round, str(error))
            raise
        done(result)


def _begun(simulation: Simulation) -> RunFolder | None:
    """The directory of a run, with what is known before the first round; None if it has none."""
    if simulation.out is None or simulation.about is None:
        return None
    folder = RunFolder(simulation.out, simulation.config.rounds, simulation.about.clients())
    values = client_values(simulation.prepared, simulation.state.per_client)
    folder.begin(simulation.about.experiment, simulation.state.round, values)
    told = simulation.on_progress

    def advance(rounds: int) -> None:
        folder.still_running(rounds)
        if told is not None:
            told(rounds)

    simulation.on_progress = advance
    return folder


def _keep_diverged(simulation: Simulation, error: DivergedError, kept: Result) -> None:
    """Let the last good result say how the run ended, and write it."""
    if kept.record is not None:
        kept.record = dataclasses.replace(kept.record, status="diverged", message=str(error))
    if simulation.out is not None:
        simulation.finish(kept)
