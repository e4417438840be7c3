"""Regularizers: psi in min f(x) + psi(x), with exact proximal steps; mirror maps; the forward-backward envelope."""

from __future__ import annotations

from fedax.regularizers.base import Regularizer, Sum
from fedax.regularizers.constraints import Box, Constraint, L1Ball, L2Ball, LInfBall, NonNegative, Simplex
from fedax.regularizers.forward_backward import Envelope, envelope
from fedax.regularizers.matrices import Nuclear, NuclearBall
from fedax.regularizers.mirrors import MIRRORS, Euclidean, Mirror, NegativeEntropy, PNorm
from fedax.regularizers.norms import L1, L2, ElasticNet, GroupLasso, SquaredL2
from fedax.regularizers.registry import REGULARIZERS, mirror, regularizer
from fedax.regularizers.variation import TotalVariation1D

__all__ = [
    "L1",
    "L2",
    "MIRRORS",
    "REGULARIZERS",
    "Box",
    "Constraint",
    "ElasticNet",
    "Envelope",
    "Euclidean",
    "GroupLasso",
    "L1Ball",
    "L2Ball",
    "LInfBall",
    "Mirror",
    "NegativeEntropy",
    "NonNegative",
    "Nuclear",
    "NuclearBall",
    "PNorm",
    "Regularizer",
    "Simplex",
    "SquaredL2",
    "Sum",
    "TotalVariation1D",
    "envelope",
    "mirror",
    "regularizer",
]
