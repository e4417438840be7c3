"""The metrics of `fedax.metrics` under this name, too; they are defined there because problems, below, hold them."""

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
