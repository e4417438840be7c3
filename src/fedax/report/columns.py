"""What the names of a metrics log mean, and how their values are printed.

A name is `[personal_]<part>_<name>[_mean|_std|_worst]`: `personal_test_accuracy_worst` is the accuracy of the
clients' own models on test rows, averaged over the worst tenth of the clients. Anything else is a counter or
a diagnostic.
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

from fedax.evaluation.metrics import BALANCED, shown

PARTS = {"test": "Test", "validation": "Validation", "train": "Training"}
STATISTICS = {
    "": "",
    "worst": ", worst tenth of clients",
    "mean": ", mean over clients",
    "std": ", spread over clients",
}
#: What a regularizer is for, on a composite problem; `personal_` before it for the clients' own models.
STRUCTURE = {
    "f1": "Support F1",
    "recovery_error": "Recovery error",
    "density": "Density",
    "rank": "Rank",
    "violation": "Violation",
}
STRUCTURE |= {f"personal_{key}": f"Personal {title.lower().replace('f1', 'F1')}" for key, title in STRUCTURE.items()}
#: How the rounds went and how far the models are from stationary, each with what it tells; `personal_` as above.
DIAGNOSTICS = {
    "drift": ("Drift", "how far clients go in a round: the root mean square of what they send"),
    "diversity": ("Diversity", "1 where all clients send the same, larger the more they differ"),
    "residual": ("Residual", "how far the clients' own states move in a round: control variates, duals, own models"),
    "prox_gradient": ("Prox gradient", "‖x − prox(x − ∇f(x))‖, which is 0 exactly at stationary points"),
}
COUNTERS = {
    "gradients": "Gradients",
    "floats_up": "Floats up",
    "floats_down": "Floats down",
    "seconds": "Seconds",
    "epsilon": "Epsilon of a client",
    "row_epsilon": "Epsilon of a row",
}
#: What a curve can be drawn against.
AXES = {
    "round": "Rounds",
    "gradients": "Gradient evaluations",
    "floats": "Floats sent, up and down",
    "seconds": "Seconds",
    "epsilon": "Privacy: epsilon of a client",
    "row_epsilon": "Privacy: epsilon of a row",
}
_NAME = re.compile(rf"(personal_)?({'|'.join(PARTS)})_(.+?)(?:_(mean|std|worst))?")


@dataclasses.dataclass(frozen=True)
class MetricColumn:
    """A column of the history that holds a metric: its name, parsed."""

    part: str
    name: str
    statistic: str = ""
    personal: bool = False

    @property
    def higher(self) -> bool:
        """Whether more is better."""
        return shown(self.name).higher and self.statistic != "std"

    @property
    def percent(self) -> bool:
        """Whether it is shown in per cent."""
        return shown(self.name).percent

    def shown(self, value: Any) -> str:
        """A value in short, with its unit.

        >>> MetricColumn("test", "accuracy").shown(0.958), MetricColumn("test", "loss").shown(0.14601)
        ('95.8 %', '0.146')
        """
        if not isinstance(value, int | float):
            return "–"
        return f"{100 * value:.1f} %" if self.percent else f"{value:.4g}"

    @property
    def words(self) -> str:
        """The metric's own title."""
        return shown(self.name).title

    @property
    def title(self) -> str:
        """In words, without saying whose model.

        >>> MetricColumn("test", "accuracy", "worst").title
        'Test accuracy, worst tenth of clients'
        """
        return f"{PARTS[self.part]} {self.words}{STATISTICS[self.statistic]}"

    @property
    def heading(self) -> str:
        """In words, with whose model.

        >>> MetricColumn("test", "accuracy", personal=True).heading
        'Own models: test accuracy'
        """
        return f"Own models: {self.title[0].lower()}{self.title[1:]}" if self.personal else self.title

    @property
    def order(self) -> tuple[int, bool, bool, str, int]:
        """Test first, AUC and its like before accuracy before loss, the plain value before its spread."""
        part, statistic = list(PARTS).index(self.part), list(STATISTICS).index(self.statistic)
        return part, self.name not in BALANCED, self.name != "accuracy", self.name, statistic


def parse(key: str) -> MetricColumn | None:
    """The parts of a name; None for a counter or a diagnostic.

    >>> parse("personal_test_loss")
    MetricColumn(part='test', name='loss', statistic='', personal=True)
    >>> parse("gradients")
    """
    found = _NAME.fullmatch(key)
    if not found:
        return None
    personal, part, name, statistic = found.groups()
    return MetricColumn(part, name, statistic or "", bool(personal))


def better(key: str) -> str:
    """Which values of a metric are better: "max", "min", or nothing if neither is, as for seconds, which are the
    machine's and not the method's.

    >>> better("test_accuracy"), better("personal_f1"), better("train_loss"), better("density"), better("seconds")
    ('max', 'max', 'min', '', '')
    """
    metric, plain = parse(key), key.removeprefix("personal_")
    if plain in ("f1", "precision", "recall") or (metric is not None and metric.higher):
        return "max"
    less = ("recovery_error", "violation", "prox_gradient")
    return "min" if metric or (key in COUNTERS and key != "seconds") or plain in less else ""


def title(key: str) -> str:
    """A name in words, without saying whose model.

    >>> title("personal_test_loss"), title("f1"), title("personal_prox_gradient"), title("recall")
    ('Test loss', 'Support F1', 'Prox gradient', 'Recall')
    """
    metric, plain = parse(key), key.removeprefix("personal_")
    if metric:
        return metric.title
    known = STRUCTURE | {name: words for name, (words, _) in DIAGNOSTICS.items()}
    return known.get(plain) or plain.replace("_", " ").capitalize()


def number(value: Any) -> float:
    """A value of a log as a float; NaN for null, infinity and what is not a number.

    >>> number(True), number(3), number("x")
    (nan, 3.0, nan)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value) if math.isfinite(value) else math.nan
    except OverflowError:
        return math.nan


def text(key: str, mean: float | None, std: float | None = None) -> str:
    """A value as the tables print it: accuracy and its like in per cent, counts in thousands, millions and so on.

    >>> text("test_accuracy", 0.91234, 0.0041)
    '91.23 ± 0.41'
    >>> text("floats_up", 12_345_678.0)
    '12.3 M'
    """
    if mean is None or not math.isfinite(mean):
        return "–"
    metric = parse(key)
    if metric and metric.percent:
        mean, std = 100 * mean, None if std is None else 100 * std
        value, spread = f"{mean:.2f}", f"{std or 0:.2f}"
    elif key in COUNTERS and key not in ("seconds", "epsilon", "row_epsilon"):
        # A budget is the same for every seed but for the sizes of the clients drawn: its spread is noise.
        return _count(mean)
    else:
        value, spread = f"{mean:.4g}", f"{std or 0:.2g}"
    return value if std is None or not math.isfinite(std) else f"{value} ± {spread}"


def _count(value: float) -> str:
    for size, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            scaled = value / (1e3 if name == "k" else size)
            return f"{scaled:.3g} {name}" if scaled < 1000 else f"{scaled:.0f} {name}"
    return f"{value:.0f}"
