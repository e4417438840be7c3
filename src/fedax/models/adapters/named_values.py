"""Functions that the adapters share: values by name, bytes as numbers, the state that training changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedax.errors import FedaxError
from fedax.models.inputs import as_float

Values = dict[str, Any]


def dotted(path: Iterable[Any]) -> str:
    """The name of a value, from where it is in a model.

    >>> dotted(("layers", 0, "kernel"))
    'layers.0.kernel'
    """
    return ".".join(map(str, path))


def numbers(x: Any) -> Any:
    """A model's input with bytes (uint8) scaled to 0..1; every other array as it is.

    >>> numbers({"image": jnp.array([255], jnp.uint8), "id": jnp.array([255])})["image"].tolist()
    [1.0]
    """
    return jax.tree.map(lambda a: as_float(a) if jnp.result_type(a) == jnp.uint8 else a, x)


def changing(call: Callable[[Values], Values], values: Values) -> set[str]:
    """The names of the values that a function gives back changed, whatever the numbers are.

    >>> sorted(changing(lambda v: {"a": v["a"] + 1, "b": v["b"]}, {"a": jnp.ones(2), "b": jnp.ones(2)}))
    ['a']
    """
    program = jax.make_jaxpr(call)(values).jaxpr
    pairs = zip(sorted(values), program.invars, program.outvars, strict=True)
    return {name for name, before, after in pairs if before is not after}


def matching(model: str, own: Mapping[str, Any], given: Mapping[str, Any]) -> Values:
    """A model's own values with the given ones in their places; values of another architecture are refused.

    >>> matching("Net", {"a": jnp.zeros(2), "b": 1.0}, {"a": jnp.ones(2)})["a"].tolist()
    [1.0, 1.0]
    >>> matching("Net", {"a": jnp.zeros(2)}, {"a": jnp.ones(3)})
    Traceback (most recent call last):
    fedax.errors.FedaxError: 'a' has shape (3,) and in Net (2,): the parameters are those of another architecture
    """
    for name, value in given.items():
        if name not in own:
            raise FedaxError(f"{name!r} is not in {model}: the parameters are those of another architecture")
        if np.shape(value) != np.shape(own[name]):
            raise FedaxError(
                f"{name!r} has shape {np.shape(value)} and in {model} {np.shape(own[name])}: the parameters are those "
                "of another architecture"
            )
    return {**own, **given}


def drawn_in_evaluation(model: str) -> FedaxError:
    """The error for a model that draws random numbers in evaluation."""
    return FedaxError(f"the model {model} draws in evaluation too: let it draw in training alone")
