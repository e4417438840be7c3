"""Metrics by name: those that are built in, those from outside, and what files say of either."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedax.errors import FedaxError, unknown
from fedax.metrics.base import Metric
from fedax.metrics.classification import CLASSIFICATION
from fedax.metrics.regression import REGRESSION
from fedax.outside import is_outside, load

#: The losses by name that a kind of metric has a meaning for; a loss of the user's own is taken to fit.
FITTING = {"classes": ("cross_entropy", "logistic", "next_token"), "numbers": ("squared", "mse")}
#: Names that histories use otherwise.
RESERVED = ("loss", "accuracy", "objective")
#: For unbalanced classes: where one of these is asked for, it stands before accuracy.
BALANCED = ("auc", "average_precision", "balanced_accuracy", "macro_f1")


def _given(z: Any, y: Any) -> Any:
    raise FedaxError("loss and accuracy are the problem's own")


_OF_EVERY_PROBLEM = (Metric("loss", _given, higher=False), Metric("accuracy", _given, higher=True, percent=True))
#: The metrics that are built in, by name.
METRICS: dict[str, Metric] = {one.name: one for one in (*_OF_EVERY_PROBLEM, *CLASSIFICATION, *REGRESSION)}
_OWN: dict[str, Shown] = {}


@dataclasses.dataclass(frozen=True)
class Shown:
    """What a run's files say of a metric: which way is better, and how it is shown."""

    title: str
    higher: bool
    percent: bool


def shown(name: str) -> Shown:
    """How the metric of this name is shown; for an unknown name, less is better.

    >>> shown("accuracy"), shown("objective").higher
    (Shown(title='accuracy', higher=True, percent=True), False)
    """
    metric = METRICS.get(name)
    if metric is not None:
        return Shown(metric.words, metric.higher, metric.percent)
    return _OWN.get(name) or Shown(name.replace("_", " "), higher=False, percent=False)


def remember(described: Any) -> None:
    """Take up the users' own metrics as a run's files describe them; what does not fit is left out.

    >>> remember([{"name": "my_score", "title": "My score", "higher": True, "percent": False}])
    >>> shown("my_score").higher
    True
    """
    for one in described if isinstance(described, list) else []:
        if isinstance(one, Mapping) and isinstance(one.get("name"), str) and one["name"] not in METRICS:
            name = one["name"]
            title = str(one.get("title") or name.replace("_", " "))
            _OWN[name] = Shown(title, one.get("higher") is True, one.get("percent") is True)


def main(names: Iterable[str]) -> str:
    """The metric that stands for all where only one is shown: one that was asked for because classes are unbalanced,
    else accuracy, else the first that was asked for, else loss.

    >>> main(["loss", "accuracy", "auc"]), main(["loss", "accuracy", "top_5"]), main(["loss", "r2", "mae"])
    ('auc', 'accuracy', 'r2')
    """
    found = list(names)
    asked = [name for name in found if name not in RESERVED]
    balanced = [name for name in asked if name in BALANCED]
    if balanced:
        return balanced[0]
    return "accuracy" if "accuracy" in found else asked[0] if asked else "loss"


def chosen(asked: Sequence[str | Metric], loss: str | None, *, model: bool = True) -> tuple[Metric, ...]:
    """The metrics that were asked for, each once; raises where one of them does not suit the loss.

    loss: its name, None for a function of the user's own.

    >>> chosen(["auc"], "squared")
    Traceback (most recent call last):
    fedax.errors.FedaxError: metrics has 'auc': it needs a loss of classes, cross_entropy, logistic or ...
    """
    if isinstance(asked, str | Metric) or not isinstance(asked, Iterable):
        raise FedaxError(f"metrics is {asked!r}: it must be a list of names and metrics")
    found: dict[str, Metric] = {}
    for one in asked:
        metric = _metric(one, model)
        if metric.name in found:
            raise FedaxError(f"metrics has {metric.name!r} twice")
        if metric.fits != "any" and loss is not None and loss not in FITTING[metric.fits]:
            *others, last = FITTING[metric.fits]
            wanted = f"{', '.join(others)} or {last}"
            raise FedaxError(f"metrics has {metric.name!r}: it needs a loss of {metric.fits}, {wanted}, not {loss}")
        found[metric.name] = metric
    remember([metric.describe() for metric in found.values()])
    return tuple(metric for name, metric in found.items() if name not in ("loss", "accuracy"))


def check_names(asked: Sequence[str]) -> None:
    """Refuse the name of a metric that does not exist."""
    for name in asked:
        named(name)


def named(name: str) -> Metric:
    """A metric of `METRICS`, or a `Metric` by "mymodule:my_metric" or "file.py:my_metric".

    >>> named("fedax.metrics:METRICS")
    Traceback (most recent call last):
    fedax.errors.FedaxError: fedax.metrics:METRICS is no metric: it must be a fedax.evaluation.metrics.Metric
    """
    if is_outside(name):
        advice = "it must be a fedax.evaluation.metrics.Metric"
        found: Metric = load(name, "metric", lambda one: isinstance(one, Metric), advice)
        return found
    if name not in METRICS:
        raise unknown("metric", name, METRICS)
    return METRICS[name]


def _metric(one: Any, model: bool) -> Metric:
    if is_outside(one):
        one = named(one)
    if isinstance(one, Metric):
        if one.name in RESERVED or METRICS.get(one.name, one) is not one:
            raise FedaxError(f"metrics has one of your own called {one.name!r}: that name is taken, choose another")
        return one
    if callable(one):
        name = getattr(one, "__name__", "f").strip("<>")
        say = f"Metric({name!r}, {name}, higher=True), or False"
        raise FedaxError(f"metrics has the function {name}: say which way is better with {say}")
    if not isinstance(one, str):
        raise FedaxError(f"metrics has {one!r}: it must be a name or a Metric")
    known = named(one)
    if not model and one not in ("loss", "accuracy"):
        raise FedaxError(f"metrics has {one!r}: it needs a model's outputs, and this problem has no model")
    return known


def check_outputs(metrics: Iterable[Metric], outputs: int) -> None:
    """Refuse metrics that have no meaning for this number of outputs; one output tells two classes apart.

    >>> check_outputs([METRICS["precision"]], 10)
    Traceback (most recent call last):
    fedax.errors.FedaxError: metrics has 'precision': it needs a model of 2 classes, not 10
    """
    classes = max(2, outputs)
    for metric in metrics:
        least, most = metric.classes
        if metric.fits == "classes" and (classes < least or (most is not None and classes > most)):
            wanted = f"{least}" if least == most else f"at least {least}"
            raise FedaxError(f"metrics has {metric.name!r}: it needs a model of {wanted} classes, not {classes}")
