"""The contract: a method is a few pure functions over vectors.

    init(x0)                                  -> server    what the server keeps
    client_init(x0)                           -> client    what a client keeps between its rounds
    broadcast(server)                         -> message   what goes down the wire
    begin(message, client, ctx)               -> local     the local loop's carry
    step(local, oracle, message, client, ctx) -> local     ONE local step
    finish(local, oracle, message, client, ctx) -> upload, client   what goes up, what stays
    aggregate(uploads, weights)               -> upload    of the cohort; "mean" unless a method says otherwise
    update(server, upload, ctx)               -> server    upload is what `aggregate` made: the (weighted) mean
    model(server)                             -> x         the shared model
    personal(server, client, oracle)          -> x_i       the client's own model
    join(server, client, oracle, steps)       -> client    the state of a client that joins after training
    theorem(given)                            -> Theorem   its rates by its theorem, for `fedax advise`

The loops over steps, clients and rounds belong to the engine, which is why the same object runs batched,
one client at a time in a debugger, or on another machine. Every function is pure. A method with nothing to
say about a function inherits FedAvg's answer: the server keeps x, sends it, and the local loop starts there.

`@algorithm` makes the class a frozen dataclass whose numbers are pytree leaves (another rate is new data,
not a new compilation) and whose choices and flags are part of the compiled program.
"""

from __future__ import annotations

import dataclasses
import decimal
import math
import re
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, TypeVar, dataclass_transform

import jax
import numpy as np

from fedax import notebook, randomness
from fedax.algorithms.claims import Claim
from fedax.bounds import Given, Theorem
from fedax.errors import FedaxError, unknown
from fedax.options import check_float32
from fedax.outside import is_outside
from fedax.schedules import Schedule, register
from fedax.vectors import Vector

C = TypeVar("C", bound=type)
Rate = float | Schedule
_INTERVAL = re.compile(r"([\[(])\s*([^,\s]+)\s*,\s*([^,\s]+)\s*([\])])")


@dataclasses.dataclass(frozen=True)
class Times:
    """Values to tune over: multiples of the value that the file gives."""

    factors: tuple[float, ...]


Tune = Times | tuple[float, ...] | None


def times(*factors: float) -> Times:
    """Multiples of the file's own value: for rates, and for weights that go with the scale of a loss.

    >>> times(0.1, 1, 10)
    Times(factors=(0.1, 1, 10))
    """
    return Times(factors)


RATE = times(0.1, 0.3, 1.0, 3.0, 10.0)
WEIGHT = times(0.1, 1.0, 10.0)


def number(
    interval: str = "(-inf, inf)",
    *,
    default: Any = dataclasses.MISSING,
    optional: bool = False,
    example: float | None = None,
    tune: Tune = None,
    around: float | None = None,
) -> Any:
    """A numeric hyper-parameter: a pytree leaf, checked against an interval such as "(0, 1]".

    example: what the conformance suite takes for one without a default, on problems with L = 2.
    tune: what `fedax compare --tune` tries: `times(...)` of the file's value, or the values; None to leave it alone.
    around: for one without a default, the value that `fedax recommend` searches around.
    """
    if not _INTERVAL.fullmatch(interval):
        raise ValueError(f"not an interval: {interval}")
    metadata = {"interval": interval, "optional": optional, "example": example, "tune": tune, "around": around}
    return dataclasses.field(default=default, metadata=metadata)


def rate(
    *, default: Any = dataclasses.MISSING, optional: bool = False, tune: Tune = None, around: float | None = None
) -> Any:
    """A learning rate: a positive number or a schedule. One named lr is tuned even where nothing says so.

    around: for one without a default, the value that `fedax recommend` searches around.
    """
    metadata = {"interval": "(0, inf)", "optional": optional, "schedule": True, "tune": tune, "around": around}
    return dataclasses.field(default=default, metadata=metadata)


def integer(interval: str, *, default: Any = dataclasses.MISSING, optional: bool = False) -> Any:
    """A whole number that shapes the program (a count of inner steps): changing it compiles again."""
    return dataclasses.field(default=default, metadata={"interval": interval, "optional": optional, "static": True})


def choice(*names: str, default: str, outside: bool = False) -> Any:
    """One of a few names.

    outside: or one of the user's own, "mymodule:my_function" or "file.py:my_function".
    """
    return dataclasses.field(default=default, metadata={"choices": names, "static": True, "outside": outside})


def flag(*, default: bool) -> Any:
    """True or False."""
    return dataclasses.field(default=default, metadata={"choices": (True, False), "static": True})


def method() -> Any:
    """Another method, which this one builds on: its numbers are leaves of this one's tree too."""
    return dataclasses.field(metadata={"method": True})


@dataclass_transform(frozen_default=True, field_specifiers=(number, rate, integer, choice, flag, method))
def algorithm(cls: C) -> C:
    """Make a method: a frozen dataclass, registered with JAX as a pytree."""
    if not isinstance(cls, type):
        raise FedaxError(f"algorithm decorates a class that derives from Algorithm, not {cls!r}")
    made: Any = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(made)
    register(
        made,
        leaves=[f.name for f in fields if not f.metadata.get("static")],
        static=[f.name for f in fields if f.metadata.get("static")],
    )
    result: C = made
    return result


class Oracle(Protocol):
    """One client's problem, seen through one minibatch; `fedax.problem.oracle.Oracle` is what the engine gives."""

    def value(self, x: Vector) -> jax.Array:
        """The loss at x."""

    def grad(self, x: Vector) -> Vector:
        """The gradient at x."""

    def mixed(self, own: Vector, shared: Vector, weight: Any) -> tuple[Vector, jax.Array]:
        """The derivatives of the loss at weight * own + (1 - weight) * shared with respect to own and weight."""

    def hvp(self, x: Vector, v: Vector) -> Vector:
        """The Hessian at x times v."""

    def prox(self, x: Vector, t: Any) -> Vector:
        """argmin over z of psi(z) + ||z - x||^2 / (2t)."""

    def fresh(self, n: int = 1) -> Oracle:
        """The oracle on the step's n-th further, independent minibatch."""

    @property
    def raw(self) -> Oracle:
        """The oracle before the problem's gradient transformations."""

    @property
    def full(self) -> Oracle:
        """The oracle on all of the client's rows."""


@dataclasses.dataclass(frozen=True)
class Context:
    """Where in the run a method's function is called, and the problem's regularizer."""

    round: Any = 0  #: communication round, from 0
    step: Any = 0  #: local step k, from 0
    steps: Any = 1  #: this client's number of local steps K in this round
    cohort: Any = 1  #: clients taking part in this round
    clients: Any = 1  #: clients in all
    regularizer: Any = None  #: psi, or None
    client: Any = None  #: the client's number, None at the server
    seed: Any = 0  #: of the run, a number or a key

    @property
    def key(self) -> jax.Array:
        """A key for what a method draws: a function of (seed, round, client, step), at the server of (seed, round).

        >>> bool((Context(seed=1).key == Context(seed=2).key).all())
        False
        """
        who = () if self.client is None else (self.client, self.step)
        return randomness.key_for(self.seed, randomness.METHOD, self.round, *who)

    def common_key(self, round: Any = None) -> jax.Array:
        """A key that the server and every client of a round share: a function of (seed, round)."""
        return randomness.key_for(self.seed, randomness.COMMON, self.round if round is None else round)

    def prox(self, x: Vector, t: Any) -> Vector:
        """argmin over z of psi(z) + ||z - x||^2 / (2t); x itself without a regularizer."""
        return x if self.regularizer is None else self.regularizer.prox(x, t)


class Algorithm:
    """Base class of all methods; see this module's docstring for the contract.

    A complete method in a dozen lines (FedAvg):

    >>> import fedax
    >>> from fedax.algorithms.base import Algorithm, algorithm, rate
    >>> @algorithm
    ... class Mine(Algorithm):
    ...     lr: float = rate()
    ...     def step(self, x_i, oracle, x, client, ctx):
    ...         return x_i - self.lr * oracle.grad(x_i)
    ...     def finish(self, x_i, oracle, x, client, ctx):
    ...         return x_i - x, client
    ...     def update(self, x, delta, ctx):
    ...         return x + delta
    >>> Mine(lr=0.1)
    Mine(lr=0.1)
    >>> Mine(lr=-1.0)
    Traceback (most recent call last):
    fedax.errors.FedaxError: Mine: lr must be in (0, inf), not -1.0
    """

    shared: ClassVar[bool] = True  #: there is a shared model to speak of
    personalised: ClassVar[bool] = False  #: clients have models of their own
    needs_all: ClassVar[bool] = False  #: a round counts only with all of its cohort; over a network it waits
    composite: ClassVar[bool] = False  #: handles psi by prox; `oracle.grad` is then that of the smooth part
    reference: ClassVar[str] = ""  #: paper and algorithm number
    lockstep: ClassVar[bool] = False  #: every client must take the same number of local steps
    #: "mean", or a function of the uploads, stacked along a first axis, and their weights (0 where there is no client)
    aggregate: Any = "mean"
    #: an upload is (change, way), and the second, how far a client has travelled, depends on no row
    sends_way: ClassVar[bool] = False
    privacy: Any = None  #: what noise on uploads is to guarantee: noise, delta and cohorts, as `Private` has them
    claims: ClassVar[tuple[Claim, ...]] = ()  #: identities that the conformance suite checks

    def init(self, x0: Vector) -> Any:
        return x0

    def client_init(self, x0: Vector) -> Any:
        return ()

    def broadcast(self, server: Any) -> Any:
        return server

    def begin(self, message: Any, client: Any, ctx: Context) -> Any:
        return message

    def step(self, local: Any, oracle: Oracle, message: Any, client: Any, ctx: Context) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no step")

    def finish(self, local: Any, oracle: Oracle, message: Any, client: Any, ctx: Context) -> tuple[Any, Any]:
        raise NotImplementedError(f"{type(self).__name__} has no finish")

    def update(self, server: Any, upload: Any, ctx: Context) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no update")

    def model(self, server: Any) -> Vector:
        x: Vector = server
        return x

    def personal(self, server: Any, client: Any, oracle: Oracle) -> Vector:
        return self.model(server)

    def join(self, server: Any, client: Any, oracle: Oracle, steps: Any) -> Any:
        """The state of a client that comes after training: up to `steps` steps on its rows, the server left as it is.

        oracle sees all of the client's rows; its `fresh(n)` are minibatches. What `personal` makes of the server
        alone needs no state, hence this default.
        """
        return client

    def traffic(self, ctx: Context) -> tuple[Any, Any]:
        """Whether (1 or 0) the message of the context's round goes down and its uploads go up."""
        return 1, 1

    def advice(self, ctx: Context, smoothness: Callable[[], float]) -> str | None:
        """A sentence on a condition of the method's theorem, or of its stability, that a run does not meet, or None.

        ctx has K, the cohort and the clients; smoothness estimates the clients' L when called.
        """
        return None

    @classmethod
    def theorem(cls, given: Given) -> Theorem | None:
        """What the method's theorem says of its rates on a problem with these constants, or None if it has none.

        It is the theorem of the class that defines it, and not of one that derives from that.
        """
        return None

    def refuse(self, regularizer: Any) -> None:
        """Raise a FedaxError if the method cannot handle this psi (None for no psi)."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            _check(type(self).__name__, field, getattr(self, field.name))

    def _repr_html_(self) -> str:
        """The numbers of the method and what it minimises, for a notebook."""
        rows = [(f.name, getattr(self, f.name)) for f in dataclasses.fields(self)]  # type: ignore[arg-type]
        first = (type(self).__doc__ or "").strip().partition("\n")[0]
        return notebook.table(type(self).__name__, rows, note=" ".join(filter(None, (first, self.reference))))

    def at(self, ctx: Context) -> Any:
        """This method, and any that it builds on, with each schedule replaced by its rate at a moment."""
        now = {
            f.name: value.at(ctx) if isinstance(value, Algorithm) else value(ctx.round, ctx.step, ctx.steps)
            for f in dataclasses.fields(self)  # type: ignore[arg-type]
            if isinstance(value := getattr(self, f.name), Schedule | Algorithm)
        }
        return dataclasses.replace(self, **now) if now else self  # type: ignore[type-var]


def _check(owner: str, field: dataclasses.Field[Any], value: Any) -> None:
    choices = field.metadata.get("choices")
    if choices is not None:
        if field.metadata.get("outside") and is_outside(value):
            return
        if value not in choices or isinstance(value, bool) != isinstance(choices[0], bool):
            if isinstance(choices[0], str):
                raise unknown(f"{owner} {field.name}", value, choices)
            raise FedaxError(f"{owner}: {field.name} must be true or false, not {value!r}")
        return
    if field.metadata.get("method") and not isinstance(value, Algorithm):
        raise FedaxError(f"{owner}: {field.name} must be a method such as FedAvg(lr=0.1), not {value!r}")
    interval = field.metadata.get("interval")
    if interval is None or (value is None and field.metadata.get("optional")):
        return
    if isinstance(value, Schedule):
        if not field.metadata.get("schedule"):
            raise FedaxError(f"{owner}: {field.name} must be a number, not a schedule")
        value = value.initial
    outside = isinstance(value, str | bool | list | tuple | dict | complex | decimal.Decimal | Algorithm)
    if outside or value is None or callable(value) or (isinstance(value, np.ndarray) and value.ndim):
        raise FedaxError(f"{owner}: {field.name} must be a number in {interval}, not {value!r}")
    if field.metadata.get("static") and not isinstance(value, int):
        raise FedaxError(f"{owner}: {field.name} must be a whole number in {interval}, not {value!r}")
    if isinstance(value, int | float) and not within(value, interval):
        raise FedaxError(f"{owner}: {field.name} must be in {interval}, not {value}")
    if isinstance(value, int | float) and not field.metadata.get("static"):
        check_float32(f"{owner}: {field.name}", value)


def within(value: float, interval: str) -> bool:
    """Whether a number lies in an interval written as mathematicians do.

    >>> within(0.0, "(0, 1]"), within(1.0, "(0, 1]")
    (False, True)
    """
    match = _INTERVAL.fullmatch(interval)
    assert match is not None
    low, high = float(match[2]), float(match[3])
    if value != value or abs(value) == math.inf:
        return False
    above = value > low if match[1] == "(" else value >= low
    below = value < high if match[4] == ")" else value <= high
    return above and below
