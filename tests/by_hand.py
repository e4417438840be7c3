"""A federation round by round as the contract says, without an engine and without a network."""

from __future__ import annotations

import jax
import numpy as np

from fedax.algorithms.base import Context
from fedax.client.device_data import Data
from fedax.client.plan import make_plan
from fedax.client.round import Client


def by_hand(asked, cohorts):
    """The contract, round by round, on cohorts that are given: an upload that did not count leaves no trace."""
    method = asked.algorithm
    x0 = asked.first_parameters({})
    data = Data.of(asked.federation.arrays, asked.federation.train, np.full(asked.clients, asked.local_steps))
    plan = make_plan(asked.federation, asked, cohort=asked.cohort)[0]
    server, states = method.init(x0), dict.fromkeys(range(asked.clients), method.client_init(x0))

    @jax.jit
    def work(i, r, message, state):
        return Client(asked.problem, plan, data, i, asked.seed, r, method.composite).work(method, message, state)

    for r, cohort in enumerate(cohorts):
        uploads = []
        for i in cohort:
            upload, states[i] = work(np.int32(i), np.int32(r), method.broadcast(server), states[i])
            uploads.append(upload)
        mean = jax.tree.map(lambda *u: sum(u) / len(u), *uploads)
        ctx = Context(r, 0, asked.local_steps, len(cohort), asked.clients, asked.problem.regularizer)
        server = method.at(ctx).update(server, mean, ctx)
    return method.model(server).tree
