"""Metrics: what is computed from rows, how it is merged and finished, which way is better, how it is shown.

A metric turns a model's outputs into a small record a row, on the device. A mean over rows needs no more. Any other
makes a statistic of a client's records, an array of fixed size for all clients; statistics are merged, by addition
unless it says otherwise, and finished into a number. So the overall value is that of all rows together, and over a
network a statistic travels, not rows.

loss, accuracy              of every problem; accuracy where rows can be right or wrong
top_5                       the label is among the five largest outputs
balanced_accuracy           the mean of the recalls of the classes that there are
macro_f1                    the mean of the F1 scores of the classes that there are or are predicted
precision, recall           of the positive class of two
auc, average_precision      of the positive class of two; of more, the mean over each class against the rest
calibration_error           of the largest probability, in 15 bins of equal width
perplexity                  exp of the mean loss
rmse, mae, r2               of numbers; r2 as the mean over outputs

auc and average_precision sort scores into 4096 bins, fine near a log-odds of 0 and coarser away from it. Rows of one
bin count as ties: on some hundred rows that moves the value by less than 2e-3 where log-odds spread over 1 or more,
and average_precision by up to 1e-2 where they all lie within 0.1, as before training. The others are exact. A metric
that has no meaning on some rows, the auc of a single class for one, is NaN there, and left out of means over clients.
"""

from __future__ import annotations

from fedax.metrics.base import Metric
from fedax.metrics.classification import BINS
from fedax.metrics.registry import (
    BALANCED,
    METRICS,
    RESERVED,
    Shown,
    check_names,
    check_outputs,
    chosen,
    main,
    named,
    remember,
    shown,
)

__all__ = [
    "BALANCED",
    "BINS",
    "METRICS",
    "RESERVED",
    "Metric",
    "Shown",
    "check_names",
    "check_outputs",
    "chosen",
    "main",
    "named",
    "remember",
    "shown",
]
