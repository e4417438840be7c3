"""Arithmetic, comparisons and functions of one number, entry by entry; numbers that are shapes."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedax.errors import FedaxError
from fedax.models.torch.registry import operation

UNARY: dict[str, Callable[..., Any]] = {
    "acos": jnp.arccos,
    "acosh": jnp.arccosh,
    "asin": jnp.arcsin,
    "asinh": jnp.arcsinh,
    "atan": jnp.arctan,
    "atanh": jnp.arctanh,
    "bitwise_not": jnp.bitwise_not,
    "ceil": jnp.ceil,
    "cos": jnp.cos,
    "cosh": jnp.cosh,
    "digamma": jax.scipy.special.digamma,
    "erf": lax.erf,
    "erfc": lax.erfc,
    "erfinv": lax.erf_inv,
    "exp": jnp.exp,
    "exp2": jnp.exp2,
    "expm1": jnp.expm1,
    "floor": jnp.floor,
    "i0": jax.scipy.special.i0,
    "isfinite": jnp.isfinite,
    "isinf": jnp.isinf,
    "isnan": jnp.isnan,
    "lgamma": lax.lgamma,
    "log": jnp.log,
    "log10": jnp.log10,
    "log1p": jnp.log1p,
    "log2": jnp.log2,
    "logical_not": jnp.logical_not,
    "neg": jnp.negative,
    "reciprocal": jnp.reciprocal,
    "round": jnp.round,
    "rsqrt": lax.rsqrt,
    "sigmoid": jax.nn.sigmoid,
    "sign": jnp.sign,
    "signbit": jnp.signbit,
    "sin": jnp.sin,
    "sinh": jnp.sinh,
    "sqrt": jnp.sqrt,
    "tan": jnp.tan,
    "tanh": jnp.tanh,
    "trunc": jnp.trunc,
}
BINARY: dict[str, Callable[..., Any]] = {
    "atan2.default": jnp.arctan2,
    "bitwise_and.Tensor": jnp.bitwise_and,
    "bitwise_or.Tensor": jnp.bitwise_or,
    "bitwise_xor.Tensor": jnp.bitwise_xor,
    "bitwise_and.Scalar": jnp.bitwise_and,
    "bitwise_or.Scalar": jnp.bitwise_or,
    "bitwise_xor.Scalar": jnp.bitwise_xor,
    "copysign.Tensor": jnp.copysign,
    "div.Scalar": jnp.divide,
    "div.Tensor": jnp.divide,
    "fmax.default": jnp.fmax,
    "fmin.default": jnp.fmin,
    "fmod.Scalar": jnp.fmod,
    "fmod.Tensor": jnp.fmod,
    "hypot.default": jnp.hypot,
    "logical_and.default": jnp.logical_and,
    "logical_or.default": jnp.logical_or,
    "logical_xor.default": jnp.logical_xor,
    "maximum.default": jnp.maximum,
    "minimum.default": jnp.minimum,
    "mul.Scalar": jnp.multiply,
    "mul.Tensor": jnp.multiply,
    "pow.Scalar": jnp.power,
    "pow.Tensor_Tensor": jnp.power,
    "remainder.Scalar": jnp.remainder,
    "remainder.Tensor": jnp.remainder,
}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
#: what a graph computes with numbers of rows, in Python
OF_NUMBERS = {
    "operator.": (operator, ("add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "pow", "getitem", *COMPARISONS)),
    "math.": (math, ("floor", "ceil", "trunc")),
    "torch.sym_": (builtins, ("float", "int", "max", "min")),
}

for name, function in UNARY.items():
    operation(f"aten.{name}.default")(function)
for name, function in BINARY.items():
    operation(f"aten.{name}")(function)
for name in COMPARISONS:
    operation(f"aten.{name}.Tensor", f"aten.{name}.Scalar")(getattr(operator, name))
for home, (module, names) in OF_NUMBERS.items():
    for name in names:
        operation(f"{home}{name}")(getattr(module, name))


@operation("aten.abs.default")
def absolute(a: jax.Array) -> jax.Array:
    """|a|; its gradient at zero is zero, as in PyTorch, where JAX's is one.

    >>> float(jax.grad(absolute)(0.0))
    0.0
    """
    return a * lax.stop_gradient(jnp.sign(a))


@operation("aten.add.Tensor", "aten.add.Scalar")
def add(a: Any, b: Any, alpha: Any = 1) -> Any:
    """a + alpha b."""
    return a + (b if alpha == 1 else alpha * b)


@operation("aten.sub.Tensor", "aten.sub.Scalar")
def subtract(a: Any, b: Any, alpha: Any = 1) -> Any:
    """a - alpha b."""
    return a - (b if alpha == 1 else alpha * b)


@operation("aten.pow.Tensor_Scalar")
def power(a: jax.Array, exponent: Any) -> jax.Array:
    """a to a number: whole numbers by products, a square root as such, so that gradients at zero are PyTorch's."""
    if exponent == 0.5:
        return jnp.sqrt(a)
    return a ** (int(exponent) if float(exponent).is_integer() else exponent)


@operation("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def divide(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    """a / b, rounded down or towards zero."""
    if rounding_mode == "floor":
        return jnp.floor_divide(a, b)
    return jnp.trunc(a / b) if rounding_mode == "trunc" else a / b


@operation("aten.round.decimals")
def round_to(a: jax.Array, decimals: int = 0) -> jax.Array:
    """Rounded to a number of decimals."""
    return jnp.round(a, decimals)


@operation("aten.clamp.default", "aten.clamp.Tensor")
def clamp(a: jax.Array, low: Any = None, high: Any = None) -> jax.Array:
    """a within bounds. At a bound the gradient is that of a, as in PyTorch; JAX's own clip halves it.

    >>> float(jax.grad(lambda a: clamp(a, 0.0))(0.0))
    1.0
    """
    a = jnp.asarray(a)
    if low is not None:
        a = jnp.where(a < low, jnp.asarray(low, a.dtype), a)
    return a if high is None else jnp.where(a > high, jnp.asarray(high, a.dtype), a)


@operation("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(condition: jax.Array, a: Any, b: Any) -> jax.Array:
    """a where the condition holds, else b."""
    return jnp.where(condition, a, b)


@operation("aten.clone.default", "aten.alias.default", "aten.lift_fresh_copy.default", "aten.contiguous.default")
def same(a: Any) -> Any:
    """The array itself."""
    return a


@operation("aten.copy.default")
def copy(a: jax.Array, b: jax.Array) -> jax.Array:
    """b, in the shape and the type of a."""
    return jnp.broadcast_to(b, a.shape).astype(a.dtype)


@operation("aten._to_copy.default")
def converted(a: jax.Array, dtype: Any = None) -> jax.Array:
    """The array in another type."""
    return a if dtype is None else a.astype(dtype)


@operation("fedax.stop_gradient.default")
def stop_gradient(a: jax.Array) -> jax.Array:
    """The array as a constant: `detach`, and what is computed under `torch.no_grad`."""
    return lax.stop_gradient(a)


@operation("aten.sym_size.int")
def size(a: jax.Array, axis: int) -> int:
    """The length of an axis."""
    return a.shape[axis]


@operation("aten.sym_numel.default")
def numel(a: jax.Array) -> int:
    """The number of entries."""
    return a.size


@operation(
    "aten._assert_tensor_metadata.default",
    "aten._assert_scalar.default",
    "aten._assert_async.msg",
    "aten._assert_async.default",
    "aten._linalg_check_errors.default",
    "aten.sym_constrain_range_for_size.default",
    "aten.sym_constrain_range.default",
)
def asserted(*args: Any, **kwargs: Any) -> None:
    """What PyTorch asserts of shapes holds: the graph was made for them."""


@operation("with_effects")
def with_effects(token: Any, effect: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """What PyTorch checks or prints on the way is left out."""
    return token, None


@operation("aten.item.default", "aten._local_scalar_dense.default")
def item(a: jax.Array) -> Any:
    """A Python number out of an array, which a compiled program has none of."""
    raise FedaxError("a number is taken out of a tensor (.item()): compute with the tensor itself")
