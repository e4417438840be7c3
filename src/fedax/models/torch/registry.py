"""The table of operations: what each of PyTorch's operations is in JAX.

`torch.export` writes a module's forward as calls of ATen, PyTorch's own library of operations, such as
`aten.relu.default`. The table gives each of them a function of JAX arrays. An operation that is in the table is kept
whole; one that is not is decomposed by PyTorch into simpler ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Operation:
    """One operation in JAX; `draws` says whether it takes a key beside its arguments, or for which of them."""

    function: Callable[..., Any]
    draws: bool | Callable[..., bool] = False

    def draws_with(self, *args: Any, **kwargs: Any) -> bool:
        """Whether the operation draws random numbers when it is called with these arguments."""
        return self.draws if isinstance(self.draws, bool) else self.draws(*args, **kwargs)


#: the operations by their names in ATen, such as "aten.relu.default"
OPERATIONS: dict[str, Operation] = {}


def operation(*targets: Any, draws: bool | Callable[..., bool] = False) -> Callable[[F], F]:
    """Add a function to the table, under one or several of ATen's names; a name that is there already is replaced.

    The function gets the operation's arguments as PyTorch passes them, in order and by name: arrays in place of
    tensors, JAX's types in place of PyTorch's, lists of numbers as they are. Devices and memory formats are left out.
    It returns an array, or a tuple of arrays where the operation returns several.

    targets: names such as "aten.relu.default", or the operations themselves, such as torch.ops.aten.relu.default.
    draws: whether the function draws random numbers, or a function of its arguments that says so; it then gets `key=`,
        another one for each call in the module.

    >>> import jax.numpy as jnp
    >>> @operation("mylibrary.double.default")
    ... def double(x):
    ...     return 2 * x
    >>> float(OPERATIONS.pop("mylibrary.double.default").function(jnp.ones(())))
    2.0
    """

    def add(function: F) -> F:
        for target in targets:
            OPERATIONS[str(target)] = Operation(function, draws)
        return function

    return add
