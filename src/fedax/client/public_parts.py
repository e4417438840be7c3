"""The parts of an upload that no row reaches: the step sizes that a client has travelled, which mirror methods send."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
from jax.interpreters.partial_eval import dce_jaxpr

from fedax.algorithms.base import Algorithm
from fedax.client.round import Client
from fedax.vectors import Vector


def public_parts(client: Client, algorithm: Algorithm, x0: Vector) -> frozenset[str]:
    """The arrays of an upload that no row reaches, by a look at the traced program; in doubt one is private.

    >>> import fedax, jax.numpy as jnp
    >>> from fedax.client.round import Data, Plan
    >>> problem = fedax.Problem(loss=lambda w, b: jnp.mean((b["x"] - w) ** 2), init=lambda key: jnp.zeros(()))
    >>> plan, place = Plan(1, 1, 2, 3, True, 4, 4, "epochs", False), jnp.zeros(1, jnp.int32)
    >>> client = Client(problem, plan, Data({"x": jnp.ones(4)}, place, place + 4, place + 3), 0, 0, 0, True)
    >>> public_parts(client, fedax.FedDualAvg(lr=0.1), Vector(jnp.zeros(())))  # (the dual's change, the way travelled)
    frozenset({'0.1'})
    """

    def upload(rows: Any) -> Any:
        here = dataclasses.replace(client, data=dataclasses.replace(client.data, arrays=rows))
        return here.work(algorithm, algorithm.broadcast(algorithm.init(x0)), algorithm.client_init(x0))[0]

    traced, shapes = jax.make_jaxpr(upload, return_shape=True)(client.data.arrays)
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(shapes)[0]]
    names = [jax.tree_util.keystr(path, simple=True, separator=".") or "x" for path in paths]
    alone = ([other == name for other in names] for name in names)
    return frozenset(n for n, asked in zip(names, alone, strict=True) if not any(dce_jaxpr(traced.jaxpr, asked)[1]))
