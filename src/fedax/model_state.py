"""A model's non-trainable state: beside its parameters, and while a client trains.

Methods are functions of vectors and know of no state. While one of their functions runs, the state is in `active()`:
every gradient on a minibatch reads it there, leaves the new one, and counts as one call; `vectors.repeat` carries it
through inner loops.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class WithState:
    """A model whose apply takes state: its parameters and its state, as `Problem.outputs` takes them.

    >>> WithState({"w": 1.0}, {"mean": 0.0})
    WithState(params={'w': 1.0}, state={'mean': 0.0})
    """

    params: Any
    state: Any


@dataclasses.dataclass
class Running:
    """The state as it is now, a key for what the model draws, and how many calls there were."""

    state: Any
    key: jax.Array | None = None
    calls: Any = 0

    def next_key(self) -> jax.Array | None:
        """The key of the next call."""
        key = None if self.key is None else jax.random.fold_in(self.key, self.calls)
        self.calls = self.calls + 1
        return key

    def leave(self, state: Any) -> None:
        """Take over a new state, in the dtypes of the old one."""
        self.state = jax.tree.map(lambda new, old: jnp.asarray(new, jnp.result_type(old)), state, self.state)

    @property
    def carry(self) -> tuple[Any, jax.Array]:
        """What an inner loop carries."""
        return self.state, jnp.asarray(self.calls, jnp.int32)

    @carry.setter
    def carry(self, carried: tuple[Any, jax.Array]) -> None:
        self.state, self.calls = carried


_ACTIVE: contextvars.ContextVar[Running | None] = contextvars.ContextVar("running", default=None)


def active() -> Running | None:
    """The state in use now, if any."""
    return _ACTIVE.get()


@contextlib.contextmanager
def running(state: Any, key: jax.Array | None = None) -> Iterator[Running]:
    """Use a state inside.

    >>> with running({"mean": 1.0}) as now:
    ...     active() is now
    True
    """
    now = Running(state, key)
    token = _ACTIVE.set(now)
    try:
        yield now
    finally:
        _ACTIVE.reset(token)


def parted(model: Any) -> tuple[Any, Any]:
    """Parameters and state of a model; the state of one without is ().

    >>> parted({"w": 1.0})
    ({'w': 1.0}, ())
    """
    return (model.params, model.state) if isinstance(model, WithState) else (model, ())


def joined(params: Any, state: Any) -> Any:
    """The model of parameters and state; the parameters alone where there is no state.

    >>> joined({"w": 1.0}, ())
    {'w': 1.0}
    """
    return WithState(params, state) if jax.tree.leaves(state) else params
