"""The result of a reproduction as a file, and those that come with Fedax."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedax.errors import FedaxError
from fedax.papers.reproductions.curves import Curves
from fedax.papers.reproductions.description import SCALES, Reproduction, Scale
from fedax.papers.reproductions.verdict import Measured
from fedax.runs.files import write_json

RESULT, ABOUT = "result.json", "reproduction.json"
SAVED = Path(__file__).parent / "results"  # read for the list and the page, written by `--save`


@dataclasses.dataclass(frozen=True)
class ReproductionResult:
    """What was measured, by the names of the quantities, in how many minutes and with which versions.

    note: what else must be known about it.
    curves: of the paper's figure, by part and method.
    """

    id: str
    scale: Scale
    measured: dict[str, Measured]
    minutes: float | None = None
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    note: str = ""
    curves: Curves = dataclasses.field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """As plain numbers and words; a number that is not finite is a word.

        >>> ReproductionResult("apfl-fig2", "small", {"FedAvg (f1)": Measured(math.inf)}).as_json()["measured"]
        {'FedAvg (f1)': {'mean': 'inf', 'half': None, 'runs': 1, 'values': []}}
        """
        numbers = {name: dataclasses.asdict(value) for name, value in self.measured.items()}
        for number in numbers.values():
            number["mean"] = _plain(number["mean"])
            number["values"] = [_plain(value) for value in number["values"]]
        minutes = None if self.minutes is None else round(self.minutes, 1)
        about = {"reproduction": self.id, "scale": self.scale, "minutes": minutes, "versions": self.versions}
        known = {"note": self.note, "measured": numbers, "curves": _written(self.curves)}
        return {**about, **{key: value for key, value in known.items() if value or key == "measured"}}


def read(path: Path) -> ReproductionResult:
    """A result from its file."""
    try:
        about = json.loads(path.read_text())
        numbers = {name: _measured(number) for name, number in about["measured"].items()}
        curves = {
            part: {label: list(zip(_numbers(at["x"]), _numbers(at["y"]), strict=True)) for label, at in of.items()}
            for part, of in about.get("curves", {}).items()
        }
        known = about["reproduction"], about["scale"], numbers, about["minutes"], about["versions"]
        return ReproductionResult(*known, about.get("note", ""), curves)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FedaxError(f"{path} is not the result of a reproduction: {error}") from None


def _written(curves: Curves) -> dict[str, Any]:
    """Curves with the numbers of an axis in one line of text, which JSON would spread over as many lines."""

    def line(numbers: Iterable[float]) -> str:
        return " ".join(f"{number:g}" for number in numbers)

    return {
        part: {label: {"x": line(x for x, _ in curve), "y": line(y for _, y in curve)} for label, curve in of.items()}
        for part, of in curves.items()
    }


def _numbers(line: str) -> list[float]:
    return [float(number) for number in line.split()]


def _plain(value: float) -> float | str:
    """A number as JSON has it; one that is not finite as a word."""
    return value if math.isfinite(value) else str(value)


def _measured(number: dict[str, Any]) -> Measured:
    values = tuple(float(value) for value in number.get("values", ()))
    return Measured(float(number["mean"]), number["half"], number["runs"], values)


def saved(name: str, scale: Scale, folder: Path | None = None) -> ReproductionResult | None:
    """The saved result of a reproduction at a scale, or None.

    >>> saved("apfl-fig2", "no such scale") is None
    True
    """
    path = where(name, scale, folder)
    return read(path) if path.is_file() else None


def joined(result: ReproductionResult, asked: Iterable[str], folder: Path | None = None) -> ReproductionResult:
    """A result joined with the saved one's note and with its measurements of other parts.

    asked: the names of all quantities that there are, for those of an earlier table are left behind.
    """
    before = saved(result.id, result.scale, folder)
    if before is None:
        return result
    wanted = set(asked) - set(result.measured)
    others = {name: value for name, value in before.measured.items() if name in wanted}
    minutes = None if others else result.minutes
    curves = {part: before.curves.get(part, {}) | result.curves.get(part, {}) for part in before.curves | result.curves}
    numbers = others | result.measured
    return dataclasses.replace(result, measured=numbers, minutes=minutes, note=before.note, curves=curves)


def keep(reproduction: Reproduction, result: ReproductionResult) -> None:
    """Write a result to those that come with Fedax; at the other scale too, where both run the same."""
    ran = reproduction.at(result.scale)
    kept = joined(result, map(str, reproduction.quantities(result.scale)))
    for scale in (known for known in SCALES if reproduction.at(known) == ran):
        path = where(reproduction.id, scale)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, dataclasses.replace(kept, scale=scale).as_json())


def where(name: str, scale: Scale, folder: Path | None = None) -> Path:
    """The file of a saved result."""
    return (SAVED if folder is None else folder) / f"{name}-{scale}.json"
