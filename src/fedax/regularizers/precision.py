"""The precision of numbers, and double precision for one function inside a single-precision program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap


def epsilon(dtype: Any) -> float:
    """The unit of rounding: the gap between 1 and the next number.

    >>> epsilon(jnp.float64)
    2.220446049250313e-16
    """
    return float(jnp.finfo(dtype).eps)  # type: ignore[no-untyped-call]


def smallest(dtype: Any) -> float:
    """The smallest positive number of full precision."""
    return float(jnp.finfo(dtype).tiny)  # type: ignore[no-untyped-call]


@functools.cache
def in_double(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """A function of floating arrays, computed in double precision and rounded to its arguments' precision.

    The result does not differentiate. Without the rule for `vmap`, JAX would batch the function's operations
    outside the context that allows double precision, and silently narrow them.

    >>> third = in_double(lambda a: (a + 1e9) - 1e9)
    >>> float(third(jnp.float32(1.5))), float(jax.vmap(third)(jnp.full(2, 1.5, jnp.float32))[1])
    (1.5, 1.5)
    """
    compiled = jax.jit(function)

    @custom_vmap
    def wide(*arguments: Any) -> Any:
        narrow = jnp.result_type(*arguments)
        with jax.enable_x64(True):
            result = compiled(*(jax.lax.convert_element_type(a, jnp.float64) for a in arguments))
            return jax.lax.convert_element_type(result, narrow)

    @wide.def_vmap
    def _(size: int, batched: list[bool], *arguments: Any) -> Any:
        return in_double(_vmapped(function, tuple(batched)))(*arguments), True

    made: Callable[..., jax.Array] = wide
    return made


@functools.cache
def _vmapped(function: Callable[..., jax.Array], batched: tuple[bool, ...]) -> Callable[..., jax.Array]:
    return jax.vmap(function, in_axes=tuple(0 if b else None for b in batched))
