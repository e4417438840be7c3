"""A module's forward as a list of operations, and how it is computed in JAX. Nothing here needs PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from fedax.errors import FedaxError
from fedax.models.torch.registry import OPERATIONS, Operation

INPUT = "input:"  # before the names of inputs, which could be those of parameters too


@dataclass(frozen=True)
class Ref:
    """The value of an earlier step, by its name."""

    name: str


@dataclass(frozen=True)
class Step:
    """One call of an operation.

    dtype: the type of the value where that is one array, else None.
    layer: where in the module the call is, such as "conv1 (Conv2d)".
    """

    name: str
    target: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    dtype: str | None
    layer: str


@dataclass(frozen=True)
class Graph:
    """The forward of a module.

    inputs: the name of each step's argument from outside, and the parameter, buffer or input that it is.
    constants: arrays that are part of the graph.
    outputs: the outputs, in order.
    changes: the buffers that the forward changes, and their new values.
    shown: which of the outputs is the model's, or a description of them if that is not clear.
    batch: the smallest and the largest number of rows that the graph serves; None for the rows it was made for.
    """

    inputs: tuple[tuple[str, str], ...]
    constants: Mapping[str, Any]
    steps: tuple[Step, ...]
    outputs: tuple[Any, ...]
    changes: Mapping[str, Ref]
    shown: int | str
    batch: tuple[int, float] | None

    @property
    def drawing(self) -> Step | None:
        """The first step that draws random numbers, None where nothing does."""
        return next((step for step in self.steps if _draws(step)), None)

    def run(self, given: Mapping[str, Any], key: jax.Array | None = None) -> tuple[list[Any], dict[str, Any]]:
        """The outputs and the changed buffers, for parameters, buffers and inputs by their names."""
        values = {name: jnp.asarray(array) for name, array in self.constants.items()}
        values |= {name: given[source] for name, source in self.inputs}
        draw = 0
        for step in self.steps:
            found = OPERATIONS[step.target]
            args, kwargs = _resolved(step.args, values), _resolved(step.kwargs, values)
            if _draws(step):
                kwargs["key"] = _own_key(key, draw, step)
                draw += 1
            values[step.name] = _call(found, step, args, kwargs)
        outputs = [_resolved(output, values) for output in self.outputs]
        return outputs, {name: values[ref.name] for name, ref in self.changes.items()}


def _draws(step: Step) -> bool:
    return OPERATIONS[step.target].draws_with(*step.args, **step.kwargs)


def _call(found: Operation, step: Step, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    try:
        value = found.function(*args, **kwargs)
    except FedaxError as error:
        raise FedaxError(f"{step.layer}: {error}") from error
    if step.dtype is not None and isinstance(value, jax.Array):
        # PyTorch and JAX promote types by different rules: the value has the type that PyTorch gave it.
        dtype = array_dtype(step.dtype)
        return value if value.dtype == dtype else value.astype(dtype)
    return value


def _own_key(key: jax.Array | None, draw: int, step: Step) -> jax.Array:
    if key is None:
        raise FedaxError(f"{step.layer} draws random numbers ({step.target}): give a key")
    return jax.random.fold_in(key, draw)


def _resolved(argument: Any, values: Mapping[str, Any]) -> Any:
    """An argument with earlier steps' values in place of their names."""
    if isinstance(argument, Ref):
        return values[argument.name]
    if isinstance(argument, Mapping):
        return {key: _resolved(value, values) for key, value in argument.items()}
    if isinstance(argument, list | tuple):
        return type(argument)(_resolved(value, values) for value in argument)
    return argument


def array_dtype(name: str) -> Any:
    """JAX's type for one of PyTorch's: single and double precision are both JAX's precision, double in its x64 mode.

    >>> array_dtype("float64"), array_dtype("bool")
    (dtype('float32'), dtype('bool'))
    """
    if name in ("float32", "float64"):
        return jnp.result_type(float)
    return jax.dtypes.canonicalize_dtype(jnp.dtype(name))
