"""What a search found: the ranking, what it costs, what was dropped when, and which method to take."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from fedax import notebook
from fedax.evaluation.protocol import interval
from fedax.report.columns import better
from fedax.runs.files import write_json
from fedax.selection.candidates import YARDSTICK, Track
from fedax.selection.display import costs, gain, in_words, names, number, spread, value
from fedax.selection.ranking import Standing, ahead


@dataclasses.dataclass(frozen=True, repr=False)
class Recommendation:
    """The result of a search.

    standings: the finalists, best first, by validation rows over the seeds, of which finals has a value a seed; test:
    their test metric, likewise. rows: of validation; least: the smallest difference that so few rows can show.
    chosen: each method's numbers as an experiment file writes them. costs: of a whole run of each method: rounds,
    gradients, floats, and the floats that a client keeps. dropped: the stage after which a method was dropped.
    left_out: methods that cannot run here, and why. facts: sentences about the federation.
    """

    track: Track
    metric: str
    rows: int
    least: float
    standings: list[Standing]
    finals: dict[str, list[float]]
    test: dict[str, list[float]]
    chosen: dict[str, dict[str, Any]]
    costs: dict[str, dict[str, float]]
    dropped: dict[str, int]
    scores: dict[str, float | None]  #: of each method when it was last judged, on validation rows
    left_out: dict[str, str]
    facts: list[str]
    diagnostics: dict[str, dict[str, float]]
    trials: int
    attempts: int
    budget: str
    seconds: float

    @property
    def winner(self) -> dict[str, Any]:
        """The table of the recommended method."""
        return self.chosen[self.best]

    @property
    def best(self) -> str:
        """The label of the recommended method: the cheapest of the `equals`, and at the same cost the plain one."""
        return min(self.equals, key=self._expense)

    @property
    def equals(self) -> list[str]:
        """The methods that are as good as the best: within noise of it and at most a point behind; best first.

        With one seed nothing is known about noise, and the best stands alone.
        """
        top = self.standings[0]
        point = 0.01 if better(self.metric) == "max" else 0.01 * abs(top.mean)
        return [
            place.label
            for place in self.standings
            if place is top or (place.rank == 1 and math.isfinite(place.half) and place.behind <= point)
        ]

    def _expense(self, label: str) -> tuple[float, float, bool, int]:
        order = [place.label for place in self.standings]
        floats, least = self.costs[label]["floats"], min(self.costs[p.label]["floats"] for p in self.standings)
        same = floats <= 1.05 * least  # whole rounds never use up a budget to the last float
        return 0.0 if same else floats, self.costs[label]["kept"], label != YARDSTICK[self.track], order.index(label)

    def ranking(self) -> tuple[list[str], list[list[str]]]:
        """The finalists as a table: columns and rows."""
        metric = self.metric
        columns = ["rank", "method", in_words(metric), "behind", "on test rows", "rounds", "gradients", "floats"]
        rows = [
            [
                f"{place.rank}{'=' if place.tied else ''}",
                place.label,
                spread(metric, place.mean, place.half),
                "" if place is self.standings[0] else spread(metric, place.behind, place.behind_half),
                value(metric, sum(self.test[place.label]) / len(self.test[place.label])),
                *costs(self.costs[place.label]),
                number(self.diagnostics[place.label].get("drift")),
                number(self.diagnostics[place.label].get("diversity")),
            ]
            for place in self.standings
        ]
        return [*columns, "kept", "drift", "diversity"], rows

    def others(self) -> tuple[list[str], list[list[str]]]:
        """The methods that did not come to the final as a table: columns and rows."""
        columns = ["method", "dropped after", in_words(self.metric), "rounds", "gradients", "floats", "kept"]
        rows = [
            [label, f"stage {stage}", value(self.metric, self.scores[label]), *costs(self.costs[label])]
            for label, stage in self.dropped.items()
        ]
        return columns, rows

    def limit(self) -> str | None:
        """What the validation rows can show at all."""
        if not self.least:
            return None
        return f"{self.rows:,} validation rows: a difference below {100 * self.least:.1f} points is a tie"

    def sentence(self) -> str:
        """The conclusion."""
        others = [label for label in self.equals if label != self.best]
        shown = (
            f"{in_words(self.metric)} {value(self.metric, sum(self.finals[self.best]) / len(self.finals[self.best]))}"
        )
        if len(self.standings) == 1:
            return f"Take {self.best}: {shown}; it alone came to the final."
        if len(self.finals[self.best]) == 1:
            return f"Take {self.best}: {shown}, the best of the finalists; with one seed, that may be chance."
        if self.best == YARDSTICK["personal"]:
            than = f"as good as {names(others)}" if others else "better than any finalist beyond noise"
            return f"Train alone: {shown}, {than}, without sending anything."
        if others:
            why = "the cheapest of the finalists that are within noise and one point of the best"
            return f"Take {self.best}: {shown}; it is {why} ({names(others)} too). {self._gain()}".rstrip()
        if any(place.rank == 1 for place in self.standings[1:]):
            why = "the best of the finalists by more than a point, which may be chance"
            return f"Take {self.best}: {shown}, {why}. {self._gain()}".rstrip()
        return f"Take {self.best}: {shown}, ahead of all other finalists beyond noise. {self._gain()}".rstrip()

    def _gain(self) -> str:
        """What the recommended method adds to the yardstick."""
        plain = YARDSTICK[self.track]
        if plain == self.best or plain not in self.finals:
            return ""
        name, higher = "training alone" if self.track == "personal" else plain, better(self.metric) == "max"
        mine, theirs = self.finals[self.best], self.finals[plain]
        if ahead(mine, theirs, higher=higher, least=self.least):
            mean, half = interval([a - b if higher else b - a for a, b in zip(mine, theirs, strict=True)])
            return f"It is {gain(self.metric, mean, half)} better than {name}."
        return f"It is not better than {name} beyond noise."

    def __repr__(self) -> str:
        columns, rows = self.ranking()
        widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
        table = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in (columns, *rows)]
        left = [f"{label} left out: {why}" for label, why in self.left_out.items()]
        return "\n".join([*self.facts, *table, *filter(None, [self.limit()]), *left, self.sentence()])

    def _repr_html_(self) -> str:
        """The ranking and the conclusion, for a notebook."""
        columns, rows = self.ranking()
        return notebook.table("Recommendation", [tuple(row) for row in rows], tuple(columns), self.sentence())

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        write_json(path, {**dataclasses.asdict(self), "winner": self.winner})
