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

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedax.errors import FedaxError, unknown
from fedax.outside import is_outside, load

Floats = NDArray[np.float64]
Fits = Literal["any", "classes", "numbers"]
BINS = 4096  # of scores: auc, average_precision
WIDTHS = 15  # of probabilities: calibration_error
#: The losses by name that a kind of metric has a meaning for; a loss of the user's own is taken to fit.
FITTING = {"classes": ("cross_entropy", "logistic", "next_token"), "numbers": ("squared", "mse")}
#: Names that histories use otherwise.
RESERVED = ("loss", "accuracy", "objective")
#: For unbalanced classes: where one of these is asked for, it stands before accuracy.
BALANCED = ("auc", "average_precision", "balanced_accuracy", "macro_f1")


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric by name.

    rows: a function of (outputs, y), or on a problem without a model of (params, batch), that gives a number or a
        short record for each row: an array [rows] or [rows, numbers].
    higher: whether more is better.
    percent: whether it is shown in per cent.
    title: its name in words; default the name with spaces.
    statistic: from the records of some rows, [rows, numbers], to an array that can be merged; None for the mean of
        `rows` over rows, which needs no statistic.
    finish: from a statistic to the value, NaN where it has no meaning.
    merge: of two statistics; default their sum.
    fits: "classes", "numbers" or "any": what the loss compares.
    classes: the fewest and the most classes it has a meaning for; None for no limit.

    >>> close = Metric("close", lambda z, y: abs(z[:, 0] - y) < 1, higher=True, percent=True)
    >>> close.of([True, False])
    0.5
    >>> worst = Metric(
    ...     "largest_error",
    ...     lambda z, y: abs(z[:, 0] - y),
    ...     higher=False,
    ...     statistic=lambda errors: errors.max(axis=0),
    ...     merge=np.maximum,
    ...     finish=lambda statistic: statistic[0],
    ... )
    >>> worst.merged([worst.statistic_of([1, 3]), worst.statistic_of([2])])
    3.0
    """

    name: str
    rows: Callable[[Any, Any], Any]
    higher: bool
    percent: bool = False
    title: str = ""
    statistic: Callable[[Floats], Any] | None = None
    finish: Callable[[Floats], Any] | None = None
    merge: Callable[[Any, Any], Any] = np.add
    fits: Fits = "any"
    classes: tuple[int, int | None] = (2, None)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise FedaxError(f"a metric's name is {self.name!r}: it must be small letters, digits and underscores")
        if re.search(r"_(mean|std|worst)$", self.name):
            raise FedaxError(
                f"a metric's name is {self.name!r}: _mean, _std and _worst say how clients are put together"
            )
        if not callable(self.rows):
            raise FedaxError(f"metric {self.name!r}: rows must be a function of (outputs, y), not {self.rows!r}")
        if not isinstance(self.higher, bool):
            raise FedaxError(f"metric {self.name!r}: higher must be True or False, not {self.higher!r}")
        if (self.statistic is None) != (self.finish is None):
            raise FedaxError(f"metric {self.name!r}: statistic and finish go together, give both or neither")

    @property
    def mean(self) -> bool:
        """Whether it is the mean of its rows."""
        return self.statistic is None

    @property
    def words(self) -> str:
        """Its name in words."""
        return self.title or self.name.replace("_", " ")

    def statistic_of(self, records: Any) -> Floats:
        """The statistic of some rows' records, [rows] or [rows, numbers]; of a mean, its sum and how many rows."""
        found = np.asarray(records, np.float64)
        found = found.reshape(len(found), -1)
        if self.statistic is None:
            return np.array([found.sum(), len(found)])
        return np.asarray(self.statistic(found), np.float64)

    def finished(self, statistic: Floats) -> float:
        """The value of a statistic."""
        if self.finish is None:
            return float(statistic[0] / statistic[1]) if statistic[1] else math.nan
        with np.errstate(invalid="ignore", divide="ignore"):
            return float(self.finish(statistic))

    def merged(self, statistics: Iterable[Floats]) -> float:
        """The value of several statistics together; NaN of none."""
        found = list(statistics)
        return self.finished(functools.reduce(self.merge, found)) if found else math.nan

    def of(self, records: Any) -> float:
        """The value on some rows, given their records."""
        return self.finished(self.statistic_of(records))

    def describe(self) -> dict[str, Any]:
        """What a reader of files must know of it.

        >>> METRICS["auc"].describe()
        {'name': 'auc', 'title': 'AUC', 'higher': True, 'percent': False}
        """
        return {"name": self.name, "title": self.words, "higher": self.higher, "percent": self.percent}


@dataclasses.dataclass(frozen=True)
class Shown:
    """A metric as files tell it: which way is better, and how it is shown."""

    title: str
    higher: bool
    percent: bool


def shown(name: str) -> Shown:
    """What is known of a metric by name; of one that is not known, that less is better.

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
    """The metrics that were asked for, each once, or one sentence why one of them cannot be had.

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
    """Refuse the name of a metric that there is not."""
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
    """Refuse metrics that have no meaning for so many outputs; one output tells two classes apart.

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


# Records, on the device.


def _flat(z: Any) -> Any:
    return z.reshape(z.shape[0], -1)


def _labels(z: Any, y: Any) -> Any:
    """Labels 0 .. classes - 1; of one output, 1 where y > 0."""
    y = y.reshape(y.shape[0])
    return (y > 0) if _flat(z).shape[1] == 1 else y


def _predicted(z: Any, y: Any) -> Any:
    """The true class, the predicted one, and how many classes there are."""
    import jax.numpy as jnp

    flat = _flat(z)
    guess = flat[:, 0] > 0 if flat.shape[1] == 1 else jnp.argmax(flat, axis=1)
    classes = jnp.full(len(flat), max(2, flat.shape[1]))
    return jnp.stack([a.astype(jnp.float32) for a in (_labels(z, y), guess, classes)], axis=1)


def _log_odds(z: Any, y: Any) -> Any:
    """The log-odds of the positive class, or of each of more than two, and the true class."""
    import jax
    import jax.numpy as jnp

    flat, label = _flat(z), _labels(z, y).astype(jnp.float32)[:, None]
    if flat.shape[1] == 1:
        return jnp.concatenate([flat, label], axis=1)
    if flat.shape[1] == 2:
        return jnp.concatenate([flat[:, 1:] - flat[:, :1], label], axis=1)
    same = jnp.eye(flat.shape[1], dtype=bool)
    others = jax.nn.logsumexp(jnp.where(same, -jnp.inf, flat[:, None, :]), axis=2)
    return jnp.concatenate([flat - others, label], axis=1)


def _confidence(z: Any, y: Any) -> Any:
    """The largest probability, and whether its class is the true one."""
    import jax
    import jax.numpy as jnp

    flat = _flat(z)
    if flat.shape[1] == 1:
        flat = jnp.concatenate([jnp.zeros_like(flat), flat], axis=1)
    probability = jax.nn.softmax(flat, axis=1)
    right = jnp.argmax(flat, axis=1) == (_labels(z, y))
    return jnp.stack([probability.max(axis=1), right.astype(probability.dtype)], axis=1)


def _negative_log_likelihood(z: Any, y: Any) -> Any:
    """Summed over a row's labels, and how many these are; a label below 0 does not count where a row has several."""
    import jax
    import jax.numpy as jnp

    if z.ndim > 2:
        logs, label = jax.nn.log_softmax(z, axis=-1), y.astype(jnp.int32)
        own = jnp.take_along_axis(logs, jnp.maximum(label, 0)[..., None], axis=-1)[..., 0]
        counted = (label >= 0).astype(own.dtype)
        return jnp.stack([-_flat(own * counted).sum(axis=1), _flat(counted).sum(axis=1)], axis=1)
    flat, label = _flat(z), _labels(z, y)
    if flat.shape[1] == 1:
        found = jax.nn.softplus(jnp.where(label, -flat[:, 0], flat[:, 0]))
    else:
        logs = jax.nn.log_softmax(flat, axis=1)
        found = -jnp.take_along_axis(logs, label.astype(jnp.int32)[:, None], axis=1)[:, 0]
    return jnp.stack([found, jnp.ones_like(found)], axis=1)


def _among_five(z: Any, y: Any) -> Any:
    import jax.numpy as jnp

    flat = _flat(z)
    own = jnp.take_along_axis(flat, y.reshape(-1).astype(jnp.int32)[:, None], axis=1)
    # of equal outputs the first come first, as in a stable sort
    before = (flat > own) | ((flat == own) & (jnp.arange(flat.shape[1]) < y.reshape(-1)[:, None]))
    return jnp.sum(before, axis=1) < 5


def _pairs(z: Any, y: Any) -> Any:
    """Outputs, then targets."""
    import jax.numpy as jnp

    return jnp.concatenate([_flat(z), y.reshape(y.shape[0], -1).astype(z.dtype)], axis=1)


def _absolute(z: Any, y: Any) -> Any:
    import jax.numpy as jnp

    return jnp.mean(jnp.abs(_flat(z) - y.reshape(y.shape[0], -1)), axis=1)


def _squares(z: Any, y: Any) -> Any:
    import jax.numpy as jnp

    return jnp.mean((_flat(z) - y.reshape(y.shape[0], -1)) ** 2, axis=1)


# Statistics of records, and what they come to.


def _confusion(records: Floats) -> Floats:
    """Rows by true and predicted class."""
    true, guess, classes = records.astype(np.int64).T
    size = int(classes[0])
    return np.bincount(true * size + guess, minlength=size * size).reshape(size, size).astype(np.float64)


def _balanced(table: Floats) -> float:
    of = table.sum(axis=1)
    return float(np.mean(np.diag(table)[of > 0] / of[of > 0]))


def _macro_f1(table: Floats) -> float:
    right, both = np.diag(table), table.sum(axis=0) + table.sum(axis=1)
    return float(np.mean(2 * right[both > 0] / both[both > 0]))


def _precision(table: Floats) -> float:
    """0 where nothing is predicted positive, as in scikit-learn."""
    return float(table[1, 1] / max(1.0, table[:, 1].sum()))


def _recall(table: Floats) -> float:
    """NaN where there is no positive row."""
    return float(table[1, 1] / table[1].sum()) if table[1].sum() else math.nan


def _histograms(records: Floats) -> Floats:
    """[classes, negative or positive, bins]: how many rows have a score in each bin, class by class."""
    scores, label = records[:, :-1], records[:, -1].astype(np.int64)
    count = scores.shape[1]
    with np.errstate(invalid="ignore"):
        squashed = np.where(np.isinf(scores), np.sign(scores), scores / (1 + np.abs(scores)))
    place = np.clip((np.nan_to_num(squashed) + 1) / 2 * BINS, 0, BINS - 1).astype(np.int64)
    positive = label[:, None] == (np.arange(count) if count > 1 else 1)
    flat = (np.arange(count) * 2 + positive) * BINS + place
    # by weights, so that the table is made of floats at once: a client fills few of its bins
    table: Floats = np.bincount(flat.ravel(), np.ones(flat.size), count * 2 * BINS).astype(np.float64, copy=False)
    return table.reshape(count, 2, BINS)


def _over_classes(table: Floats, areas: Callable[[Floats, Floats], Floats]) -> float:
    """The mean over classes with rows both inside and outside; NaN if there is none."""
    filled = table[:, :, table.any(axis=(0, 1))]  # bins without rows change nothing, and a client has many of them
    both = np.all(filled.sum(axis=2) > 0, axis=1)
    return float(np.mean(areas(filled[both, 0], filled[both, 1]))) if both.any() else math.nan


def _auc(table: Floats) -> float:
    def areas(negative: Floats, positive: Floats) -> Floats:
        below = np.cumsum(negative, axis=1) - negative / 2
        found: Floats = (positive * below).sum(axis=1) / (positive.sum(axis=1) * negative.sum(axis=1))
        return found

    return _over_classes(table, areas)


def _average_precision(table: Floats) -> float:
    def areas(negative: Floats, positive: Floats) -> Floats:
        above = positive[:, ::-1]
        right = np.cumsum(above, axis=1)
        taken = right + np.cumsum(negative[:, ::-1], axis=1)
        found: Floats = (above * right / np.maximum(taken, 1)).sum(axis=1) / positive.sum(axis=1)
        return found

    return _over_classes(table, areas)


def _calibration(records: Floats) -> Floats:
    """Bins by rows, summed probabilities and right ones."""
    at = np.clip(np.ceil(records[:, 0] * WIDTHS) - 1, 0, WIDTHS - 1).astype(np.int64)
    sums = [np.bincount(at, weights, WIDTHS) for weights in (np.ones(len(at)), records[:, 0], records[:, 1])]
    return np.stack(sums, axis=1)


def _calibration_error(table: Floats) -> float:
    return float(np.abs(table[:, 1] - table[:, 2]).sum() / table[:, 0].sum())


def _mean(records: Floats) -> Floats:
    return np.array([records.sum(), len(records)])


def _moments(records: Floats) -> Floats:
    """Of each target: rows, their mean, squared deviations from it, squared errors."""
    z, y = np.split(records, 2, axis=1)
    centre = y.mean(axis=0)
    return np.stack([np.full(len(centre), len(y)), centre, ((y - centre) ** 2).sum(0), ((z - y) ** 2).sum(0)])


def _together(a: Floats, b: Floats) -> Floats:
    """Two groups' moments as one's (Chan, Golub and LeVeque)."""
    rows = a[0] + b[0]
    apart = b[1] - a[1]
    between = apart**2 * a[0] * b[0] / rows
    return np.stack([rows, a[1] + apart * b[0] / rows, a[2] + b[2] + between, a[3] + b[3]])


def _r2(table: Floats) -> float:
    """NaN where a target does not vary."""
    return float(np.mean(1 - table[3] / table[2])) if (table[2] > 0).all() else math.nan


def _given(z: Any, y: Any) -> Any:
    raise FedaxError("loss and accuracy are the problem's own")


def _on_classes(name: str, rows: Any, statistic: Any, finish: Any, **more: Any) -> Metric:
    return Metric(name, rows, **{"higher": True, "fits": "classes", **more}, statistic=statistic, finish=finish)


_TWO = (2, 2)
_KNOWN = (
    Metric("loss", _given, higher=False),
    Metric("accuracy", _given, higher=True, percent=True),
    Metric("top_5", _among_five, higher=True, percent=True, title="top-5 accuracy", fits="classes", classes=(6, None)),
    _on_classes("balanced_accuracy", _predicted, _confusion, _balanced, percent=True),
    _on_classes("macro_f1", _predicted, _confusion, _macro_f1, title="macro F1"),
    _on_classes("precision", _predicted, _confusion, _precision, percent=True, classes=_TWO),
    _on_classes("recall", _predicted, _confusion, _recall, percent=True, classes=_TWO),
    _on_classes("auc", _log_odds, _histograms, _auc, title="AUC"),
    _on_classes("average_precision", _log_odds, _histograms, _average_precision),
    _on_classes("calibration_error", _confidence, _calibration, _calibration_error, higher=False),
    _on_classes(
        "perplexity",
        _negative_log_likelihood,
        lambda records: records.sum(axis=0),
        lambda sums: math.exp(min(700.0, sums[0] / sums[1])),  # a float ends soon after
        higher=False,
    ),
    Metric("mae", _absolute, higher=False, title="MAE", fits="numbers"),
    Metric(
        "rmse",
        _squares,
        higher=False,
        title="RMSE",
        fits="numbers",
        statistic=_mean,
        finish=lambda sums: math.sqrt(sums[0] / sums[1]),
    ),
    Metric(
        "r2",
        _pairs,
        higher=True,
        title="R2",
        fits="numbers",
        statistic=_moments,
        finish=_r2,
        merge=_together,
    ),
)
#: The metrics that are built in, by name.
METRICS: dict[str, Metric] = {metric.name: metric for metric in _KNOWN}
_OWN: dict[str, Shown] = {}
