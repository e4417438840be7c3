"""`simulate` and `stream`: a run in one call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedax.algorithms.base import Algorithm
from fedax.data.federation import Federation
from fedax.data.generators.lazy import Lazy
from fedax.engine.loop import Simulation
from fedax.engine.result import Result
from fedax.problem import Problem


def simulate(
    problem: Problem, federation: Federation | Lazy, algorithm: Algorithm, *, rounds: int, **options: Any
) -> Result:
    """Run a method on a federation and return its history and models.

    rounds: communication rounds, at least 1.
    cohort: clients a round, drawn without replacement; None for all.
    local_steps, local_epochs: a client's work a round, in steps (default 1) or passes over its rows.
    batch_size: rows a minibatch; None for the full local gradient.
    sampling: "epochs" (reshuffled) or "iid" (with replacement).
    weighted: average by clients' rows instead of uniformly.
    seed: of everything random.
    eval_every: rounds between two evaluations. eval_on: parts to evaluate on, test rows by default.
    personal: whether to evaluate clients' own models, where the method makes them, beside the shared one.
    out: a directory for the metrics log and the models.
    executor: "auto", "batched", "looped" or "debug"; chunk: clients batched together; devices: how many to use.
    zero_below: on a problem with a regularizer, what counts as zero in density, support and rank.
    unseen: share of clients held out from training; when it is over they join, by the method's own rule.
    join_steps: local steps of theirs; as many as the others took on average unless given.
    state_budget: memory for clients' states, such as "2GiB"; above it they are kept beside the devices or in a file.
    checkpoint_every: seconds between two checkpoints in `out`; None for none. resume: go on from the last one there.
    protocol: whether to end with `result.by_client`, every client's metrics with the shared, the localised and its own
        model; by default where there are personal models or unseen clients.
    on_progress: called with the number of rounds done, about twice a second.

    >>> import numpy as np, jax.numpy as jnp, fedax
    >>> mean = fedax.Problem(loss=lambda w, b: jnp.mean((b["x"] - w) ** 2) / 2, init=lambda key: jnp.zeros(()))
    >>> clients = fedax.Federation.from_clients([{"x": np.float32([1, 2, 3])}, {"x": np.float32([6])}])
    >>> result = simulate(mean, clients, fedax.FedAvg(lr=0.5), rounds=30)
    >>> round(float(result.model), 3)  # the minimiser of the mean of the clients' losses: (2 + 6) / 2
    4.0
    """
    simulation = Simulation(problem, federation, algorithm, rounds=rounds, **options)
    for _ in simulation:
        pass
    result = simulation.result
    simulation.finish(result)
    return result


def stream(
    problem: Problem, federation: Federation | Lazy, algorithm: Algorithm, *, rounds: int, **options: Any
) -> Iterator[dict[str, Any]]:
    """`simulate`, yielding each evaluated round's row as it is reached.

    >>> import numpy as np, jax.numpy as jnp, fedax
    >>> mean = fedax.Problem(loss=lambda w, b: jnp.mean((b["x"] - w) ** 2) / 2, init=lambda key: jnp.zeros(()))
    >>> clients = fedax.Federation.from_clients([{"x": np.float32([4])}])
    >>> [row["round"] for row in stream(mean, clients, fedax.FedAvg(lr=0.5), rounds=4, eval_every=2)]
    [0, 2, 4]
    """
    simulation = Simulation(problem, federation, algorithm, rounds=rounds, **options)
    yield from simulation
    simulation.finish(simulation.result)
