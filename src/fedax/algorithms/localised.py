"""Localised: any method's shared model, then a few SGD steps on each client's own rows.

Objective:  the base's, for the shared model x; a client's own model descends on f_i from there

    the base's rounds, unchanged
    client's own model:  v = x, then `steps` times  v <- v - lr g_i(v)       APFL's comparison, "localised"

On a problem with a regularizer and a base that takes it by its prox, the step is the prox of lr psi at v - lr g_i(v).
"""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import Algorithm, Context, Oracle, Rate, algorithm, integer, method, rate
from fedax.algorithms.claims import Reduction
from fedax.algorithms.local_only import train
from fedax.errors import FedaxError
from fedax.vectors import Vector, repeat


class _OfBase:
    """A class variable that a made method has from its base; the class itself shows FedAvg's."""

    def __init__(self, shown: Any) -> None:
        self.shown = shown

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, made: Any, owner: type) -> Any:
        return self.shown if made is None else getattr(made.base, self.name)


def of_base(shown: Any) -> Any:
    """Declare a class variable that comes from the base."""
    return _OfBase(shown)


class OfBase(Algorithm):
    """A method that is its base but for what its subclass says: every function and declaration comes from `base`."""

    base: Any

    composite = of_base(False)
    aggregate = of_base("mean")
    lockstep = of_base(False)
    personalised = of_base(False)
    shared = of_base(True)
    needs_all = of_base(False)
    privacy = of_base(None)
    sends_way = of_base(False)

    def init(self, x0: Vector) -> Any:
        return self.base.init(x0)

    def client_init(self, x0: Vector) -> Any:
        return self.base.client_init(x0)

    def broadcast(self, server: Any) -> Any:
        return self.base.broadcast(server)

    def begin(self, message: Any, client: Any, ctx: Context) -> Any:
        return self.base.begin(message, client, ctx)

    def step(self, local: Any, oracle: Oracle, message: Any, client: Any, ctx: Context) -> Any:
        return self.base.step(local, oracle, message, client, ctx)

    def finish(self, local: Any, oracle: Oracle, message: Any, client: Any, ctx: Context) -> Any:
        return self.base.finish(local, oracle, message, client, ctx)

    def update(self, server: Any, upload: Any, ctx: Context) -> Any:
        return self.base.update(server, upload, ctx)

    def model(self, server: Any) -> Vector:
        x: Vector = self.base.model(server)
        return x

    def join(self, server: Any, client: Any, oracle: Oracle, steps: Any) -> Any:
        return self.base.join(server, client, oracle, steps)

    def traffic(self, ctx: Context) -> tuple[Any, Any]:
        sent: tuple[Any, Any] = self.base.traffic(ctx)
        return sent

    def advice(self, ctx: Context, smoothness: Any) -> str | None:
        said: str | None = self.base.advice(ctx, smoothness)
        return said

    def refuse(self, regularizer: Any) -> None:
        self.base.refuse(regularizer)

    def personal(self, server: Any, client: Any, oracle: Oracle) -> Vector:
        x: Vector = self.base.personal(server, client, oracle)
        return x


@algorithm
class Localised(OfBase):
    """The base's objective; a client's own model is the shared one after `steps` SGD steps on its rows.

    base: a method with a shared model.
    steps: SGD steps on each client, at least 1.
    lr: their rate, above 0; None for the base's lr.

    Sends and keeps what the base does.

    >>> from fedax.algorithms import FedAvg, LocalOnly
    >>> Localised(FedAvg(lr=0.1), steps=20)
    Localised(base=FedAvg(lr=0.1, server_lr=1.0), steps=20, lr=None)
    >>> Localised(LocalOnly(lr=0.1), steps=20)
    Traceback (most recent call last):
    fedax.errors.FedaxError: Localised: base must have a shared model to start from, and LocalOnly has none
    """

    base: Any = method()
    steps: int = integer("[1, inf)")
    lr: Rate | None = rate(default=None, optional=True)

    personalised = True
    reference = "the comparison of Deng, Kamani and Mahdavi 2020"

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self.base).__name__
        if not self.base.shared:
            raise FedaxError(f"Localised: base must have a shared model to start from, and {name} has none")
        if self.lr is None and not hasattr(self.base, "lr"):
            raise FedaxError(f"Localised: lr must be given, for {name} has none of its own")

    @property
    def claims(self) -> tuple[Reduction, ...]:  # type: ignore[override]
        return (Reduction(type(self.base).__name__, other=vars(self.base)),)

    def personal(self, server: Any, client: Any, oracle: Oracle) -> Vector:
        lr = self.base.lr if self.lr is None else self.lr
        x = self.model(server)
        if not self.composite:
            return train(x, lr, oracle, self.steps)

        def step(n: Any, v: Vector) -> Vector:
            rows = oracle.fresh(n + 1)
            return rows.prox(v - lr * rows.grad(v), lr)

        return repeat(self.steps, step, x)


@algorithm
class GivenModel(Algorithm):
    """No training: the shared model is the one that is given, for `Localised` to start from.

    lr: the rate of its steps, above 0.
    """

    lr: Rate = rate()

    def model(self, server: Vector) -> Vector:
        return server


@algorithm
class GivenCompositeModel(GivenModel):
    """`GivenModel` on a problem whose regularizer is taken by its prox."""

    composite = True
