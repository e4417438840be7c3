"""Matrix products and linear algebra."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fedax.models.torch.operations.reductions import vector_norm
from fedax.models.torch.registry import operation

operation("aten.mm.default", "aten.bmm.default", "aten.matmul.default", "aten.mv.default")(jnp.matmul)
operation("aten.dot.default")(jnp.dot)
operation("aten.linalg_matrix_exp.default")(jax.scipy.linalg.expm)


@operation("aten.linear.default")
def linear(x: jax.Array, weight: jax.Array, bias: jax.Array | None = None) -> jax.Array:
    """x W' + b. For W in this layout a plain product is the quickest, and so is its gradient."""
    y = jnp.matmul(x, weight.T)
    return y if bias is None else y + bias


@operation("aten.addmm.default", "aten.addmv.default", "aten.baddbmm.default")
def add_product(c: jax.Array, a: jax.Array, b: jax.Array, beta: Any = 1, alpha: Any = 1) -> jax.Array:
    """beta c + alpha a b."""
    ab = jnp.matmul(a, b)
    total: jax.Array = (c if beta == 1 else beta * c) + (ab if alpha == 1 else alpha * ab)
    return total


@operation("aten.addbmm.default")
def add_products(c: jax.Array, a: jax.Array, b: jax.Array, beta: Any = 1, alpha: Any = 1) -> jax.Array:
    """beta c + alpha times the sum over the first axis of a b."""
    total: jax.Array = beta * c + alpha * jnp.einsum("nij,njk->ik", a, b)
    return total


@operation("aten.bilinear.default")
def bilinear(x: jax.Array, y: jax.Array, weight: jax.Array, bias: jax.Array | None = None) -> jax.Array:
    """x' W_k y + b_k for each output k."""
    z: jax.Array = jnp.einsum("...i,kij,...j->...k", x, weight, y)
    return z if bias is None else z + bias


@operation("aten._cdist_forward.default")
def distances(x: jax.Array, y: jax.Array, p: float, mode: Any = None) -> jax.Array:
    """The p-norm of the difference of every row of x and every row of y; its gradient at zero is zero."""
    return vector_norm(x[..., :, None, :] - y[..., None, :, :], p, -1)


@operation("aten.linalg_inv_ex.default")
def inverse(a: jax.Array, check_errors: bool = False) -> tuple[jax.Array, jax.Array]:
    """The inverse; a singular matrix gives infinities."""
    return jnp.linalg.inv(a), _no_error(a)


@operation("aten.linalg_cholesky_ex.default")
def cholesky(a: jax.Array, upper: bool = False, check_errors: bool = False) -> tuple[jax.Array, jax.Array]:
    """The Cholesky factor."""
    return jnp.linalg.cholesky(a, upper=upper), _no_error(a)


@operation("aten._linalg_solve_ex.default")
def solve(a: jax.Array, b: jax.Array, left: bool = True, check_errors: bool = False) -> tuple[Any, ...]:
    """x with a x = b, or with x a = b."""
    column = b.ndim == a.ndim - 1
    right = b[..., None] if column else b
    x = jnp.linalg.solve(a, right) if left else jnp.linalg.solve(a.mT, right.mT).mT
    return x[..., 0] if column else x, None, None, _no_error(a)


@operation("aten._linalg_det.default")
def determinant(a: jax.Array) -> tuple[Any, ...]:
    """The determinant."""
    return jnp.linalg.det(a), None, None


@operation("aten._linalg_slogdet.default")
def log_determinant(a: jax.Array) -> tuple[Any, ...]:
    """The sign and the logarithm of the determinant."""
    sign, log = jnp.linalg.slogdet(a)
    return sign, log, None, None


def _no_error(a: jax.Array) -> jax.Array:
    return jnp.zeros(a.shape[:-2], jnp.int32)
