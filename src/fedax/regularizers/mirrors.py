"""Mirror maps: the strongly convex h whose geometry a method steps in.

    grad(x)           = grad h(x)                 from the model x to its dual y
    inverse(y)        = grad h*(y)                and back
    retrieve(y, t, psi) = grad (h + t psi)*(y) = argmin over x of  h(x) + t psi(x) - <y, x>
    divergence(x, z)    = h(x) - h(z) - <grad h(z), x - z>, the Bregman divergence D_h(x, z)

Retrieving has a closed form only for some pairs of h and psi; `check` refuses the others before work begins.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

import fedax.lazy_optax as optax
from fedax.errors import FedaxError
from fedax.regularizers.base import On, Regularizer, Sum, chosen, mapped, named, require
from fedax.regularizers.constraints import Box, L1Ball, LInfBall, NonNegative, Simplex
from fedax.regularizers.norms import L1
from fedax.vectors import Vector


class Mirror:
    """Base class of the mirror maps."""

    def value(self, x: Vector) -> jax.Array:
        """h(x)."""
        raise NotImplementedError

    def grad(self, x: Vector) -> Vector:
        """grad h(x)."""
        raise NotImplementedError

    def inverse(self, y: Vector) -> Vector:
        """grad h*(y), the x with grad h(x) = y."""
        raise NotImplementedError

    def retrieve(self, y: Vector, t: Any, psi: Regularizer | None = None) -> Vector:
        """grad (h + t psi)*(y); without psi, the inverse."""
        raise NotImplementedError

    def divergence(self, x: Vector, z: Vector) -> jax.Array:
        """D_h(x, z), at least 0, and 0 for x = z alone; B^2 of Theorems 4.3, 4.4 and 4.7 is D_h(x*, x0).

        >>> float(Euclidean().divergence(Vector(jnp.array([3.0, 1.0])), Vector(jnp.array([1.0, 1.0]))))
        2.0
        """
        return self.value(x) - self.value(z) - self.grad(z) @ (x - z)

    def check(self, psi: Regularizer | None, params: Any = None) -> None:
        """Refuse a regularizer without a closed form and, if they are given, first parameters outside h's domain."""


@dataclasses.dataclass(frozen=True)
class Euclidean(Mirror):
    """h(x) = ||x||^2 / 2: the dual is the model itself, and retrieving is the prox.

    >>> Euclidean().retrieve(Vector(jnp.array([3.0, -0.5])), 2.0, L1(1.0)).tree.tolist()
    [1.0, -0.0]
    """

    def value(self, x: Vector) -> jax.Array:
        return x @ x / 2

    def grad(self, x: Vector) -> Vector:
        return x

    def inverse(self, y: Vector) -> Vector:
        return y

    def retrieve(self, y: Vector, t: Any, psi: Regularizer | None = None) -> Vector:
        return y if psi is None else psi.prox(y, t)


@dataclasses.dataclass(frozen=True)
class NegativeEntropy(Mirror):
    """h(x) = sum x_j log x_j - x_j over x_j > 0, on the leaves that `on` selects; ||x||^2 / 2 on the others.

    Steps become multiplications: exponentiated gradient. Made for Simplex, where retrieving is a softmax over
    all selected leaves. Closed forms also exist for no regularizer, L1, NonNegative, L1Ball, LInfBall, and a Box
    that meets x >= 0. The regularizer must have the same `on`, and the model must start above 0. Entries so small
    that they round to 0 have the dual of the smallest positive number, so that they can grow again.

    >>> from fedax.regularizers import Simplex
    >>> NegativeEntropy().retrieve(Vector(jnp.array([7.0, 7.0])), 1.0, Simplex(3.0)).tree.tolist()
    [1.5, 1.5]
    """

    on: On = dataclasses.field(default=None, kw_only=True)

    def selects(self, path: str) -> bool:
        """Whether h is the entropy on the leaf at a path."""
        return chosen(self.on, path)

    def value(self, x: Vector) -> jax.Array:
        terms = mapped(self, lambda leaves: [jax.scipy.special.xlogy(a, a) - a for a in leaves], lambda a: a**2 / 2, x)
        total: jax.Array = optax.tree.sum(terms.tree)
        return total

    def grad(self, x: Vector) -> Vector:
        return mapped(self, lambda leaves: [_log(a) for a in leaves], lambda a: a, x)

    def inverse(self, y: Vector) -> Vector:
        return mapped(self, lambda leaves: [jnp.exp(a) for a in leaves], lambda a: a, y)

    def retrieve(self, y: Vector, t: Any, psi: Regularizer | None = None) -> Vector:
        self.check(psi)
        match psi:
            case Simplex(scale=total):
                return mapped(self, lambda leaves: _lowered(leaves, _excess(leaves, total)), lambda a: a, y)
            case L1Ball(radius=total, each=each):

                def within(leaves: Any) -> Any:
                    if each and len(leaves) > 1:
                        return [within([a])[0] for a in leaves]
                    return _lowered(leaves, jnp.maximum(_excess(leaves, total), 0))

                return mapped(self, within, lambda a: a, y)
            case L1(strength=strength):  # on x > 0 it is linear
                return mapped(self, lambda leaves: _lowered(leaves, t * strength), lambda a: a, y)
            case Box() | LInfBall() | NonNegative():  # h is a sum over entries, so each is clipped by itself
                return psi.prox(self.inverse(y), t)
            case _:
                return self.inverse(y)

    def check(self, psi: Regularizer | None, params: Any = None) -> None:
        if psi is not None and type(psi) not in (Simplex, L1Ball, L1, Box, LInfBall, NonNegative):
            raise _no_closed_form(self, psi, "Simplex, L1Ball, L1, Box, LInfBall or NonNegative")
        if isinstance(psi, Box) and psi.high <= 0:
            raise FedaxError(f"NegativeEntropy keeps x above 0, which Box(high={psi.high}) excludes")
        if psi is not None and psi.on != self.on:
            raise FedaxError(
                f"NegativeEntropy has on={self.on!r} and {psi.name} on={psi.on!r}: both must act on the same leaves"
            )
        if params is None:
            return
        for path, a in named(params, self):
            if self.selects(path) and not bool(jnp.all(a > 0)):
                raise FedaxError(f"NegativeEntropy needs a start above 0, but leaf {path!r} has entries that are not")


@dataclasses.dataclass(frozen=True)
class PNorm(Mirror):
    """h(x) = ||x||_p^2 / 2, the p-norm of all leaves as one vector.

    p: in (1, 2], or traced; 2 is Euclidean. Near 1, for instance 1 + 1 / log(d), it favours sparse models.

    Closed forms exist for no regularizer, L1, NonNegative and their sums on different leaves: grad h* keeps signs
    and zeros, so that the dual may be thresholded before it.

    >>> PNorm(1.5).inverse(PNorm(1.5).grad(Vector(jnp.array([4.0, 0.0])))).tree.tolist()
    [4.0, 0.0]
    """

    p: Any

    def __post_init__(self) -> None:
        if not isinstance(self.p, jax.Array):
            require(self, "p", "(1, 2]", lambda v: 1 < v <= 2)

    @property
    def _euclidean(self) -> bool:
        return not isinstance(self.p, jax.Array) and self.p == 2

    def value(self, x: Vector) -> jax.Array:
        return self.grad(x) @ x / 2  # h is homogeneous of degree 2

    def grad(self, x: Vector) -> Vector:
        return x if self._euclidean else _power(x, self.p)

    def inverse(self, y: Vector) -> Vector:
        return y if self._euclidean else _power(y, self.p / (self.p - 1))

    def retrieve(self, y: Vector, t: Any, psi: Regularizer | None = None) -> Vector:
        self.check(psi)
        return self.inverse(y if psi is None else psi.prox(y, t))

    def check(self, psi: Regularizer | None, params: Any = None) -> None:
        parts = psi.parts if isinstance(psi, Sum) else (psi,)
        if psi is not None and not self._euclidean and any(type(part) not in (L1, NonNegative) for part in parts):
            raise _no_closed_form(self, psi, "L1 or NonNegative")


#: every mirror map by its name
MIRRORS: dict[str, type[Mirror]] = {"euclidean": Euclidean, "entropy": NegativeEntropy, "p-norm": PNorm}


def _no_closed_form(mirror: Mirror, psi: Regularizer, allowed: str) -> FedaxError:
    return FedaxError(
        f"{type(mirror).__name__} has no closed form for {psi.name}: use it with {allowed}, or the mirror Euclidean"
    )


def _log(a: jax.Array) -> jax.Array:
    tiny = jnp.finfo(a.dtype).tiny  # type: ignore[no-untyped-call]
    return jnp.log(jnp.where(jnp.abs(a) < tiny, tiny, a))


def _excess(leaves: Any, total: float) -> jax.Array:
    """What to take off all entries of y for exp(y) to sum to a total."""
    top = optax.tree.max(leaves)
    excess: jax.Array = top + jnp.log(optax.tree.sum([jnp.exp(a - top) for a in leaves]) / total)
    return excess


def _lowered(leaves: Any, by: Any) -> Any:
    return [jnp.exp(a - jnp.asarray(by, a.dtype)) for a in leaves]


def _power(x: Vector, p: Any) -> Vector:
    """The gradient of ||x||_p^2 / 2: sign(x_j) |x_j|^(p-1) ||x||_p^(2-p), scaled so that no power overflows."""
    top = optax.tree.max(jax.tree.map(jnp.abs, x.tree))
    scale = jnp.where(top > 0, top, 1)
    sizes = jax.tree.map(lambda a: jnp.abs(a) / scale, x.tree)
    total = optax.tree.sum(jax.tree.map(lambda u: u**p, sizes))
    length = jnp.where(total > 0, total, 1) ** ((2 - p) / p)
    return Vector(jax.tree.map(lambda a, u: jnp.sign(a) * u ** (p - 1) * length * scale, x.tree, sizes))
