"""Evaluation: the shared model and every client's own, on rows that nothing trained on."""

from __future__ import annotations

from fedax.evaluation.curvature import smoothness
from fedax.evaluation.meter import Measurement, Meter, summary

__all__ = ["Measurement", "Meter", "smoothness", "summary"]
