"""Local-only training: every client alone, the yardstick of every personal method.

Objective:  min over v of f_i(v), on each client separately

    client, K times:  v <- v - lr g_i(v)

Nothing is sent. The shared model stays at the start.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import Algorithm, Context, Oracle, Rate, algorithm, rate
from fedax.vectors import Vector


@algorithm
class LocalOnly(Algorithm):
    """min over v of f_i(v) on each client alone, by SGD.

    lr: rate, above 0.

    Sends nothing; a client keeps its model.

    >>> LocalOnly(lr=0.1)
    LocalOnly(lr=0.1)
    """

    lr: Rate = rate()

    shared = False
    personalised = True
    reference = "the comparison of Deng, Kamani and Mahdavi 2020"
    keeps = "its own model v"
    down = up = 0

    def client_init(self, x0: Vector) -> Vector:
        return x0

    def broadcast(self, server: Vector) -> tuple[()]:
        return ()

    def begin(self, message: tuple[()], v: Vector, ctx: Context) -> Vector:
        return v

    def step(self, v: Vector, oracle: Oracle, message: tuple[()], client: Vector, ctx: Context) -> Vector:
        return v - self.lr * oracle.grad(v)

    def finish(self, v: Vector, oracle: Oracle, message: tuple[()], client: Vector, ctx: Context) -> Any:
        return (), v

    def update(self, server: Vector, upload: tuple[()], ctx: Context) -> Vector:
        return server

    def personal(self, server: Vector, v: Vector, oracle: Oracle) -> Vector:
        return v
