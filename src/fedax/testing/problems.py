"""Small problems with known answers. They are module-level so that compiled rounds are shared by all checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedax.data.federation import Federation
from fedax.problem import Problem

Array = np.ndarray[Any, np.dtype[np.float64]]
CLIENTS, DIMENSION = 8, 5
SIZES = (8, 5, 3, 12, 6, 4)  # rows of the regression's clients, all different work


def quadratic_loss(x: jax.Array, batch: Mapping[str, jax.Array]) -> jax.Array:
    """1/2 (x - b)' A (x - b), a row holding A and b."""
    d = x - batch["b"]
    return jnp.mean(jnp.einsum("ni,nij,nj->n", d, batch["A"], d)) / 2


def _linear(dimension: int) -> Problem:
    """Least squares with an intercept, on a tree of parameters, from a start that is nowhere 0."""

    def init(key: jax.Array, x: jax.Array) -> dict[str, jax.Array]:
        return {"w": jax.random.normal(key, (dimension - 1,)), "intercept": jnp.ones(())}

    def outputs(params: Mapping[str, jax.Array], x: jax.Array) -> jax.Array:
        return x @ params["w"] + params["intercept"]

    return Problem((init, outputs), loss="squared")


#: quadratics of the rows' A and b in five dimensions, from a random start
QUADRATIC = Problem(loss=quadratic_loss, init=lambda key: jax.random.normal(key, (DIMENSION,)))
REGRESSION = _linear(DIMENSION)
WIDE_DIMENSION = 64
WIDE = _linear(WIDE_DIMENSION)


def quadratics(
    seed: int = 0,
    clients: int = CLIENTS,
    dimension: int = DIMENSION,
    *,
    alike: bool = False,
) -> tuple[Federation, Array]:
    """Heterogeneous quadratics 1/2 (x - b_i)' A_i (x - b_i), a client each, and the minimiser of their mean.

    The eigenvalues of every A_i lie in [0.5, 2]. alike: give every client the same quadratic.

    >>> import fedax
    >>> federation, optimum = quadratics(seed=1)
    >>> result = fedax.simulate(QUADRATIC, federation, fedax.SCAFFOLD(lr=0.1), rounds=200, local_steps=5)
    >>> bool(np.linalg.norm(result.model - optimum) < 1e-4)
    True
    """
    rng = np.random.default_rng(seed)
    a, b = np.empty((clients, dimension, dimension)), np.empty((clients, dimension))
    for i in range(clients):
        q, _ = np.linalg.qr(rng.normal(size=(dimension, dimension)))
        a[i] = q @ np.diag(rng.uniform(0.5, 2.0, dimension)) @ q.T
        b[i] = 2 * rng.normal(size=dimension)
    if alike:
        a[:], b[:] = a[0], b[0]
    made = [{"A": a[i : i + 1], "b": b[i : i + 1]} for i in range(clients)]
    return Federation.from_clients(made), np.linalg.solve(a.sum(0), np.einsum("nij,nj->i", a, b))


def regression(seed: int = 0, sizes: Sequence[int] = SIZES, dimension: int = DIMENSION) -> Federation:
    """Least squares with clients of unequal size and different truths."""
    rng = np.random.default_rng(seed)
    clients = []
    for n in sizes:
        x = rng.normal(size=(n, dimension - 1))
        clients.append({"x": x, "y": x @ rng.normal(size=dimension - 1) + rng.normal(size=n)})
    return Federation.from_clients(clients)


@dataclasses.dataclass(frozen=True)
class Case:
    """A problem, a federation, and how much of what each client does."""

    problem: Problem
    federation: Federation
    options: Mapping[str, Any]


def ragged(seed: int) -> Case:
    """Minibatches, four clients of six, each with its own number of local steps."""
    return Case(REGRESSION, regression(seed), {"cohort": 4, "local_epochs": 1, "batch_size": 2})


def smooth(federation: Federation, local_steps: int = 5, cohort: int | None = None) -> Case:
    """Noise-free quadratics."""
    return Case(QUADRATIC, federation, {"cohort": cohort, "local_steps": local_steps})
