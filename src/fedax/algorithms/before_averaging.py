"""BeforeAveraging: a method's clients as they are at the end of their local steps, before the server averages.

Objective:  the base's

    the base's rounds, unchanged
    client's own model:  the base's, after `steps` local steps from the server's message, by the server that would
                         have taken this client's upload alone

For APFL this is alpha v_i + (1 - alpha) w_i with the client's own w_i, where its own rule takes the server's w.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import Context, Oracle, algorithm, integer, method
from fedax.algorithms.localised import OfBase
from fedax.vectors import Vector, repeat


@algorithm
class BeforeAveraging(OfBase):
    """The base's objective; a client's own model is the base's after `steps` local steps that nobody averages.

    base: a method whose clients have models of their own.
    steps: local steps on each client, at least 1.

    >>> from fedax.algorithms import APFL
    >>> BeforeAveraging(APFL(lr=0.1, alpha=0.5), steps=20).personalised
    True
    """

    base: Any = method()
    steps: int = integer("[1, inf)")

    reference = "the rounds of Deng, Kamani and Mahdavi 2020"

    def personal(self, server: Any, client: Any, oracle: Oracle) -> Vector:
        base = self.base
        message = base.broadcast(server)

        def step(n: Any, local: Any) -> Any:
            return base.step(local, oracle.fresh(n + 1), message, client, Context(step=n, steps=self.steps))

        start, last = (Context(step=k, steps=self.steps) for k in (0, self.steps))
        local = repeat(self.steps, step, base.begin(message, client, start))
        upload, new = base.finish(local, oracle.fresh(self.steps), message, client, last)
        x: Vector = base.personal(base.update(server, upload, start), new, oracle)
        return x
