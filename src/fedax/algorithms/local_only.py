"""Local-only training: every client alone, the yardstick of every personal method.

Objective:  min over v of f_i(v), on each client separately

    client, K times:  v <- v - lr g_i(v)

Nothing is sent. The shared model stays at the start. `train` is the same rule from any start, for the methods that
end with it.
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import Algorithm, Context, Oracle, Rate, algorithm, rate
from fedax.vectors import Vector, repeat


def train(v: Vector, lr: Any, oracle: Oracle, steps: Any) -> Vector:
    """`steps` of plain SGD on a client's own rows, each on the oracle's next fresh minibatch.

    >>> import jax.numpy as jnp, fedax
    >>> square = fedax.Problem(loss=lambda v, b: jnp.mean((v - b["b"]) ** 2) / 2, init=lambda key: jnp.zeros(()))
    >>> rows = fedax.Oracle(square, {"b": jnp.array([4.0])}, fresh=lambda n: rows)
    >>> train(fedax.Vector(jnp.array(0.0)), 0.5, rows, 3).tree.item()  # halves the distance to 4 each time
    3.5
    """
    return repeat(steps, lambda n, v: v - lr * oracle.fresh(n + 1).grad(v), v)


@algorithm
class LocalOnly(Algorithm):
    """min over v of f_i(v) on each client alone, by SGD.

    lr: rate, above 0.

    Sends nothing; a client keeps its model. One that joins after training starts where all did.

    >>> LocalOnly(lr=0.1)
    LocalOnly(lr=0.1)
    """

    lr: Rate = rate()

    shared = False
    personalised = True
    reference = "the comparison of Deng, Kamani and Mahdavi 2020"

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

    def join(self, server: Vector, v: Vector, oracle: Oracle, steps: Any) -> Vector:
        return train(v, self.lr, oracle, steps)
