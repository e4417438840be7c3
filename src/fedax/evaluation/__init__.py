"""Evaluation: the shared model and every client's own, on rows that nothing trained on.

Names come when they are asked for: `fedax.evaluation.metrics` is used where nothing is computed, too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedax.evaluation.curvature import smoothness
    from fedax.evaluation.measurement import Measurement, summary
    from fedax.evaluation.meter import Meter, Meters

_HOMES = {
    "Measurement": "measurement",
    "Meter": "meter",
    "Meters": "meter",
    "smoothness": "curvature",
    "summary": "measurement",
}
__all__ = ["Measurement", "Meter", "Meters", "smoothness", "summary"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"fedax.evaluation.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
