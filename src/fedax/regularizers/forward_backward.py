"""The forward-backward envelope: a smooth function with the minimisers of f + psi.

    F_lam(x) = min over z of  f(x) + <grad f(x), z - x> + psi(z) + lam / 2 ||z - x||^2
    theta(x) = prox_{psi / lam}(x - grad f(x) / lam)                       its minimiser z
    grad F_lam(x) = lam (I - H(x) / lam) (x - theta(x)),                   H the Hessian of f

Patrinos and Bemporad (2013), "Proximal Newton methods for convex composite optimization". With lam above the
smoothness L of f, x is a stationary point of F_lam if and only if x = theta(x), a stationary point of f + psi.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Callable
from typing import Any, Protocol

import jax

from fedax.errors import FedaxError
from fedax.regularizers.base import Regularizer
from fedax.vectors import Vector


class Smooth(Protocol):
    """The smooth part f, such as a client's oracle without psi."""

    def value(self, x: Vector) -> jax.Array:
        """f(x)."""

    def grad(self, x: Vector) -> Vector:
        """The gradient at x."""

    def hvp(self, x: Vector, v: Vector) -> Vector:
        """The Hessian at x times v."""


@dataclasses.dataclass(frozen=True)
class Envelope:
    """F_lam for a smooth part f, a regularizer psi (None for 0) and a number lam, which may be traced."""

    smooth: Smooth
    psi: Regularizer | None
    lam: Any

    def theta(self, x: Vector) -> Vector:
        """prox_{psi / lam}(x - grad f(x) / lam)."""
        return self._theta(x, self.smooth.grad(x))

    def value(self, x: Vector) -> jax.Array:
        """F_lam(x)."""
        g = self.smooth.grad(x)
        theta = self._theta(x, g)
        step = theta - x
        model: jax.Array = self.smooth.value(x) + g @ step + self.lam / 2 * (step @ step)
        return model if self.psi is None else model + self.psi.value(theta)

    def grad(self, x: Vector, hvp: Callable[[Vector, Vector], Vector] | None = None) -> Vector:
        """The gradient of F_lam at x.

        hvp: the product (x, v) -> H(x) v to use instead of f's own: that of another minibatch, a finite
            difference, or zero.
        """
        step = x - self.theta(x)
        gradient: Vector = self.lam * step - (hvp or self.smooth.hvp)(x, step)
        return gradient

    def _theta(self, x: Vector, g: Vector) -> Vector:
        forward = x - g / self.lam
        return forward if self.psi is None else self.psi.prox(forward, 1 / self.lam)


class Composite(Smooth, Protocol):
    """f + psi, f by value, gradient and Hessian: `problem.on(rows)` is one."""

    @property
    def regularizer(self) -> Regularizer | None:
        """psi, None for 0."""


def envelope(problem: Composite, lam: Any) -> Envelope:
    """The forward-backward envelope of a composite problem on some rows.

    >>> import fedax, jax.numpy as jnp
    >>> from fedax.regularizers import L1
    >>> half = fedax.Problem(
    ...     loss=lambda x, rows: jnp.mean((x - rows["a"]) ** 2) / 2, init=lambda key: jnp.zeros(1), regularizer=L1(1.0)
    ... )
    >>> env = envelope(half.on({"a": jnp.zeros(1)}), lam=2.0)      # f(x) = x^2 / 2, psi(x) = |x|
    >>> x = Vector(jnp.array([2.0]))
    >>> env.theta(x).tree, float(env.value(x)), env.grad(x).tree
    (Array([0.5], dtype=float32), 1.75, Array([1.5], dtype=float32))
    """
    if isinstance(lam, numbers.Real) and not 0 < float(lam) < float("inf"):
        raise FedaxError(f"envelope: lam must be in (0, inf), not {lam}")
    return Envelope(problem, problem.regularizer, lam)
