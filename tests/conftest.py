"""Problems that many tests share."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedax


def quadratic_loss(x, batch):
    """1/2 (x - b)' A (x - b), one row holding a client's A and b."""
    d = x - batch["b"]
    return jnp.mean(jnp.einsum("ni,nij,nj->n", d, batch["A"], d)) / 2


QUADRATIC = fedax.Problem(loss=quadratic_loss, init=lambda key: jnp.zeros(5))
#: one output, squared loss, no bias: least squares
LEAST_SQUARES = fedax.Problem(loss=lambda w, b: jnp.mean((b["x"] @ w - b["y"]) ** 2) / 2, init=lambda key: jnp.zeros(6))


def quadratics(seed=0, clients=8, dimension=5):
    """Heterogeneous quadratics, a client each, and the minimiser of their mean."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(clients):
        q, _ = np.linalg.qr(rng.normal(size=(dimension, dimension)))
        a = q @ np.diag(rng.uniform(0.5, 2.0, dimension)) @ q.T
        rows.append({"A": a[None], "b": 2 * rng.normal(size=(1, dimension))})
    total = sum(r["A"][0] for r in rows)
    optimum = np.linalg.solve(total, sum(r["A"][0] @ r["b"][0] for r in rows))
    return fedax.Federation.from_clients(rows), optimum


def regression(seed=0, sizes=(12, 30, 21, 9, 17, 25), dimension=6):
    """Least squares with clients of unequal size and different truths."""
    rng = np.random.default_rng(seed)
    clients = []
    for n in sizes:
        x = rng.normal(size=(n, dimension))
        clients.append({"x": x, "y": x @ rng.normal(size=dimension) + 0.1 * rng.normal(size=n)})
    return fedax.Federation.from_clients(clients)


@pytest.fixture
def x64():
    """Double precision for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def digits():
    return fedax.data.load("digits", partition=fedax.data.ByLabel(10, 2), seed=0)


def vector(tree):
    """All parameters as one NumPy vector."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
