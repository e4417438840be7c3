"""Loops over local steps in the forms that XLA runs fastest on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint

from fedax.kernels.switch import enabled


def local_loop(*, lanes: bool, peels: bool) -> Callable[..., Any]:
    """The loop over local steps of settings that are batched (`lanes`), or of a large model alone (`peels`).

    >>> local_loop(lanes=False, peels=False) is jax.lax.fori_loop
    True
    """
    if not enabled():
        return jax.lax.fori_loop
    return by_columns if lanes else peeled if peels else jax.lax.fori_loop


def peeled(first: int, last: int, body: Callable[[Any, Any], Any], carry: Any) -> Any:
    """`jax.lax.fori_loop` with its first step outside and then two an iteration.

    So XLA can see when weights are done with, and neither the loop's start nor its steps copy them.

    >>> int(peeled(0, 5, lambda k, total: total + k, 0))
    10
    """
    return jax.lax.fori_loop(first + 1, last, body, body(first, carry), unroll=2)


def by_columns(first: int, last: Any, body: Callable[[Any, Any], Any], carry: Any) -> Any:
    """`jax.lax.fori_loop` that carries matrices with fewer columns than rows column by column.

    A kernel's columns are its outputs. The products of many settings' kernels with one minibatch are then one product
    with long rows, and less is transposed in a step, which takes about half the time (`benchmarks/lanes.py`). A setting
    by itself gains nothing.

    >>> by_columns(0, 5, lambda k, total: total + k, jnp.zeros((3, 2)))[0].tolist()
    [10.0, 10.0]
    """

    def narrow(a: Any) -> bool:
        shape = jnp.shape(a)
        return len(shape) == 2 and shape[0] > shape[1] > 1

    def turned(tree: Any) -> Any:
        return jax.tree.map(lambda a, b: a.T if narrow(b) else a, tree, carry)

    def held(tree: Any) -> Any:
        rows = Layout(major_to_minor=(0, 1))  # else XLA may store it as it was
        return jax.tree.map(lambda a, b: with_layout_constraint(a, rows) if narrow(b) else a, tree, carry)

    loop = jax.lax.fori_loop(first, last, lambda k, local: held(turned(body(k, turned(local)))), turned(carry))
    return turned(loop)
