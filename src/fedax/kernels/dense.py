"""A dense layer, with the weights' gradient in the form that is quickest to step along.

For x of shape [rows, inputs] and outputs' gradients d the weights' gradient is the sum over rows of x_b d_b^T. As a
matrix product it is a large array that is written and read once more by the step w - lr * gradient. As a sum of outer
products XLA computes it within the step. On a CPU that is mostly 1.2 to 1.4 times as fast where d stays in the nearest
cache and there are enough rows to keep the arithmetic busy, and slower elsewhere (`benchmarks/dense.py`).

With 48 to 63 rows XLA's product with a large kernel whose rows are a page apart (1,024 outputs, or 2,048, ...) takes
mostly 1.2 to 1.9 times as long as with 64 (`benchmarks/dense.py`), so those are filled up with zeros, in the product
itself and not in its gradients, which gain nothing by it.

A kernel may be a `Mixture` of two. In the layer that sees the data, whose product with either XLA has already, that
takes the mean of two small products in place of the mean of two large kernels.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedax.kernels.switch import enabled
from fedax.vectors import Mixture

ROWS = (16, 24)
OUTPUTS = 128
NEAR = 6_144  # numbers of d that stay in the nearest cache
WEIGHTS = 16_384
FULL, NEARLY = 64, 48
PAGE = 1_024
FAR = 2_097_152  # weights that are not kept near a core


Pair = tuple[jax.Array, jax.Array]


def product(x: jax.Array, kernel: Any) -> jax.Array:
    """x @ kernel, for x of shape [rows, inputs].

    >>> import jax.numpy as jnp
    >>> product(jnp.ones((2, 3)), jnp.ones((3, 1))).tolist()
    [[3.0], [3.0]]
    """
    if isinstance(kernel, Mixture):
        a = kernel.weight
        mixed: jax.Array = a * product(x, kernel.own) + (1 - a) * product(x, kernel.shared)
        return mixed
    if serves(x, kernel) and enabled():
        return _product(x, kernel)
    if filling_serves(x, kernel) and enabled():
        return _filled(x, kernel)
    return lax.dot(x, kernel)


def filling_serves(x: jax.Array, kernel: jax.Array) -> bool:
    """Whether the product is quicker with more rows."""
    nearly = NEARLY <= len(x) < FULL
    return x.ndim == 2 and x.dtype == kernel.dtype and nearly and kernel.shape[-1] % PAGE == 0 and kernel.size >= FAR


@jax.custom_jvp
def _filled(x: jax.Array, kernel: jax.Array) -> jax.Array:
    rows = lax.pad(x, jnp.zeros((), x.dtype), [(0, FULL - len(x), 0), (0, 0, 0)])
    return lax.dot(rows, kernel)[: len(x)]


@_filled.defjvp
def _filled_jvp(primals: Pair, tangents: Pair) -> Pair:
    (x, kernel), (move, turn) = primals, tangents
    return _filled(x, kernel), lax.dot(move, kernel) + lax.dot(x, turn)


def serves(x: jax.Array, kernel: jax.Array) -> bool:
    """Whether outer products are quicker."""
    rows, outputs = len(x), kernel.shape[-1]
    few = ROWS[0] <= rows <= ROWS[1] and outputs >= OUTPUTS and rows * outputs <= NEAR
    return x.ndim == 2 and x.dtype == kernel.dtype and few and kernel.size >= WEIGHTS


@jax.custom_vjp
def _product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return lax.dot(x, kernel)


def _forward(x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, Pair]:
    return lax.dot(x, kernel), (x, kernel)


def _backward(kept: Pair, d: jax.Array) -> Pair:
    x, kernel = kept
    outer = [x[b][:, None] * d[b] for b in range(len(x))]
    even, odd = (list(itertools.accumulate(outer[first::2]))[-1] for first in (0, 1))  # two sums keep a core busy
    return lax.dot_general(d, kernel, (((1,), (1,)), ((), ()))), even + odd


_product.defvjp(_forward, _backward)
