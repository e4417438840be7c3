"""Metrics under the name of their room; they are made in `fedax.metrics`, below problems, which hold them."""

from __future__ import annotations

from fedax.metrics import (
    BALANCED,
    BINS,
    METRICS,
    Metric,
    Shown,
    check_names,
    check_outputs,
    chosen,
    main,
    remember,
    shown,
)

__all__ = [
    "BALANCED",
    "BINS",
    "METRICS",
    "Metric",
    "Shown",
    "check_names",
    "check_outputs",
    "chosen",
    "main",
    "remember",
    "shown",
]
