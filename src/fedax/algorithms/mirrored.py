"""What FedMiD and FedDualAvg share: the way into the dual by grad h, and back by grad(h + t psi)*."""

from __future__ import annotations

from typing import Any

from fedax.algorithms.base import Context
from fedax.regularizers import mirrors
from fedax.vectors import Vector


class Mirrored:
    """A method with a mirror map h, named by its field `mirror` (and `p`)."""

    mirror: str
    p: float

    @property
    def _map(self) -> mirrors.Mirror:
        return mirrors.PNorm(self.p) if self.mirror == "p-norm" else mirrors.MIRRORS[self.mirror]()

    def dual(self, x: Vector) -> Vector:
        """grad h(x)."""
        return self._map.grad(x)

    def primal(self, y: Vector, t: Any, ctx: Context) -> Vector:
        """grad(h + t psi)*(y); without psi if t is None."""
        return self._map.retrieve(y, t, None if t is None else ctx.regularizer)

    def refuse(self, regularizer: Any) -> None:
        """Raise if no closed form is known for this mirror map and regularizer."""
        self._map.check(regularizer)
