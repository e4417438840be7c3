"""Regularizers: psi in min f(x) + psi(x), with exact proximal steps."""

from __future__ import annotations

from fedax.regularizers.base import Regularizer
from fedax.regularizers.norms import L1, SquaredL2

__all__ = ["L1", "Regularizer", "SquaredL2"]
