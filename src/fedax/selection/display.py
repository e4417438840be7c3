"""How numbers and names of a recommendation are written."""

from __future__ import annotations

from collections.abc import Sequence


def in_words(column: str) -> str:
    """A column of validation rows, as a reader would call it.

    >>> in_words("personal_validation_balanced_accuracy"), in_words("validation_loss")
    ('balanced accuracy of own models', 'loss')
    """
    name = column.removeprefix("personal_").removeprefix("validation_").replace("_", " ")
    return f"{name} of own models" if column.startswith("personal_") else name


def names(labels: Sequence[str]) -> str:
    """Names in a sentence.

    >>> names(["FedAvg"]), names(["FedAvg", "FedProx", "SCAFFOLD"])
    ('FedAvg', 'FedAvg, FedProx and SCAFFOLD')
    """
    return " and ".join(filter(None, [", ".join(labels[:-1]), labels[-1]]))


def value(metric: str, found: float | None) -> str:
    """A score; that of a method whose runs all diverged is None or NaN."""
    if found is None or found != found:
        return "diverged"
    return f"{100 * found:.1f} %" if "accuracy" in metric else f"{found:.4g}"


def spread(metric: str, mean: float, half: float) -> str:
    """A mean and the half-width of its interval, which one seed does not have."""
    if half != half:
        return value(metric, mean)
    return f"{100 * mean:.1f} ± {100 * half:.1f} %" if "accuracy" in metric else f"{mean:.4g} ± {half:.2g}"


def gain(metric: str, mean: float, half: float) -> str:
    """A difference of scores."""
    return f"{100 * mean:.1f} ± {100 * half:.1f} points" if "accuracy" in metric else f"{mean:.4g} ± {half:.2g}"


def costs(cost: dict[str, float]) -> list[str]:
    """Rounds, gradients, floats, and the floats that a client keeps."""
    return [f"{cost['rounds']:,.0f}", *(_big(cost[name]) for name in ("gradients", "floats", "kept"))]


def _big(count: float) -> str:
    return f"{count:,.0f}" if count < 1e5 else f"{count:.2g}"


def number(found: float | None) -> str:
    """A diagnostic, which some methods do not have."""
    return "" if found is None else f"{found:.3g}"
