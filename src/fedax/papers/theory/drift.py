"""FedAvg's drift with identical clients, and the instances of its lower bounds (thesis section 2.3) as problems.

The noise xi of f(x; xi) is data: rows at the quantiles of a normal distribution, with mean 0 and variance sigma^2
exactly, so every constant of an instance is known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

from fedax.algorithms import FedAvg
from fedax.data.federation import Federation, Rows
from fedax.engine import simulate
from fedax.errors import FedaxError
from fedax.papers.theory.stochastic import Objective, piecewise_quadratic
from fedax.problem import Problem

ROWS = 64  #: values that xi takes


@dataclasses.dataclass(frozen=True, eq=False)
class Instance:
    """A problem whose minimum is 0, its federation, and where the theorem starts."""

    problem: Problem
    federation: Federation
    start: np.ndarray[Any, np.dtype[np.float64]]
    objective: Callable[[Any], Any]  #: F, of which the minimiser is 0


def identical_clients(objective: Objective, sigma: float, clients: int, start: Any = 0.0) -> Instance:
    """Clients that share f(x; xi) = F(x) + xi x, E xi^2 = sigma^2, for an F of one variable with its minimum 0 at 0.

    >>> made = identical_clients(piecewise_quadratic(), sigma=1.0, clients=3)
    >>> made.federation.clients, round(float(np.var(made.federation.arrays["xi"])), 6)
    (3, 1.0)
    """
    if clients < 1:
        raise FedaxError(f"clients must be a whole number from 1 on, not {clients}")

    def loss(x: jax.Array, batch: Mapping[str, jax.Array]) -> jax.Array:
        return objective(x) + jnp.mean(batch["xi"]) * x

    first = np.asarray(start, float)
    problem = Problem(loss=loss, init=lambda key: jnp.asarray(first, jnp.result_type(float)))
    none = Rows(np.zeros(clients, np.int64), np.zeros(clients, np.int64))
    everyone = Rows(np.zeros(clients, np.int64), np.full(clients, ROWS))
    return Instance(problem, Federation({"xi": normal_rows(sigma)}, everyone, none, none), first, objective)


def normal_rows(sigma: float, count: int = ROWS) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Numbers at the quantiles of a normal distribution, of mean 0 and variance sigma^2.

    >>> rows = normal_rows(2.0)
    >>> round(abs(float(rows.mean())), 9), round(float(rows.var()), 9)
    (0.0, 4.0)
    """
    if not sigma >= 0:
        raise FedaxError(f"sigma must not be negative, and it is {sigma}")
    quantiles = norm.ppf((np.arange(count) + 0.5) / count)
    scaled: np.ndarray[Any, np.dtype[np.float64]] = sigma * quantiles / quantiles.std()
    return scaled


def drift(
    instance: Instance, *, lr: float, local_steps: int, rounds: int, seed: int = 0
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Where FedAvg's shared model is after some rounds of single draws; the minimiser is 0.

    >>> at_optimum = identical_clients(piecewise_quadratic(), sigma=1.0, clients=2000)
    >>> float(drift(at_optimum, lr=0.02, local_steps=16, rounds=20)) < 0
    True
    """
    result = simulate(
        instance.problem,
        instance.federation,
        FedAvg(lr=lr),
        rounds=rounds,
        local_steps=local_steps,
        batch_size=1,
        sampling="iid",
        seed=seed,
        eval_every=rounds,
        eval_on=("train",),
    )
    return np.asarray(result.model, float)


def lower_bound_instance(
    *,
    L: float,
    B: float,
    sigma: float,
    clients: int,
    local_steps: int,
    rounds: int,
    zeta: float = 0.0,
) -> Instance:
    """Eq. 2.6 to 2.10: four coordinates, one for each thing that can go wrong with a step size.

    The first bends (bias), the second is flat (needs a large lr), the third is steep (needs a small one), the fourth
    differs between clients. zeta = 0 is Theorem 2.8, above 0 with an even number of clients Theorem 2.10: for every
    lr, E F after the rounds is at least a constant times `worst_case(...)`, half of which is mu B^2 of eq. 2.18.

    >>> made = lower_bound_instance(L=1.0, B=1.0, sigma=1.0, clients=4, local_steps=4, rounds=8)
    >>> made.start.tolist(), float(made.objective(np.zeros(4)))
    ([0.0, 0.5, 0.5, 0.0], 0.0)
    """
    if zeta and clients % 2:
        raise FedaxError(f"clients must be even for zeta above 0, not {clients}: half of them pull each way")
    mu = worst_case(L=L, B=B, sigma=sigma, K=local_steps, R=rounds, zeta=zeta) / (2 * B**2)
    bend = piecewise_quadratic(L / 12)  # (L / 24) psi

    def shared(x: Any) -> Any:
        return bend(x[0]) + mu / 2 * x[1] ** 2 + L / 2 * x[2] ** 2

    def loss(x: jax.Array, batch: Mapping[str, jax.Array]) -> jax.Array:
        own = jnp.mean(batch["curvature"]) * x[3] ** 2 - jnp.mean(batch["pull"]) * x[3]
        value: jax.Array = shared(x) + jnp.mean(batch["xi"]) * x[0] + own
        return value

    start = np.array([0.0, B / 2, B / 2, 0.0])
    made = [
        {
            "xi": normal_rows(sigma),
            "curvature": np.full(ROWS, L / 8 if m % 2 == 0 else L / 16),
            "pull": np.full(ROWS, zeta if m % 2 == 0 else -zeta),
        }
        for m in range(clients)
    ]
    mean = float(np.mean([client["curvature"][0] for client in made]))
    problem = Problem(loss=loss, init=lambda key: jnp.asarray(start, jnp.result_type(float)))
    return Instance(problem, Federation.from_clients(made), start, lambda x: shared(x) + mean * x[3] ** 2)


def worst_case(*, L: float, B: float, sigma: float, K: int, R: int, zeta: float = 0.0) -> float:
    """The largest of the three terms of eq. 2.17 that FedAvg cannot avoid: 2 mu B^2 of eq. 2.18.

    >>> worst_case(L=1.0, B=1.0, sigma=0.0, K=4, R=8)
    0.03125
    """
    for name, value in (("L", L), ("B", B)):
        if not value > 0:
            raise FedaxError(f"{name} must be above 0, not {value}")
    if K < 2:
        raise FedaxError(f"local_steps must be at least 2 for the lower bound, not {K}")
    noise = min(sigma * B / (K * R) ** 0.5, (L * sigma**2 * B**4 / (K * R**2)) ** (1 / 3), L * B**2)
    apart = min(zeta**2 / L, (L * zeta**2 * B**4 / R**2) ** (1 / 3), L * B**2)
    return float(max(noise, apart, L * B**2 / (K * R)))
