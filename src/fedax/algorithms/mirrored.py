"""What FedMiD and FedDualAvg share: the way into the dual by grad h, and back by grad(h + t psi)*."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedax.algorithms.base import Context
from fedax.errors import FedaxError
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

    @staticmethod
    def refuse_theorem(choices: Mapping[str, Any]) -> None:
        """Raise where the thesis' theorems are not about these choices.

        >>> Mirrored.refuse_theorem({"client_prox": False})
        Traceback (most recent call last):
        fedax.errors.FedaxError: the thesis has no theorem on clients without their prox (client_prox = false)
        """
        if choices.get("client_prox") is False:
            raise FedaxError("the thesis has no theorem on clients without their prox (client_prox = false)")
        if (mirror := choices.get("mirror", "euclidean")) != "euclidean":
            raise FedaxError(
                f"its theorems take h to be 1-strongly convex, and sigma, zeta and G in the dual norm; for mirror = "
                f"{mirror!r} neither is estimated (the p-norm's h is (p - 1)-strongly convex)"
            )
