"""The description of a reproduction: one TOML file in `tables/`, with the paper's figures and claims.

title, paper, where, note           what it is, and where in the paper
data, minutes, hours                what must be at hand, the rough time at small and, where it is long, at paper scale
departures.always, .paper, .small   where the setting is not the paper's, a sentence each
experiment                          an experiment as `fedax run` takes it, at the paper's scale, or
measure                             a function of `fedax.papers.reproductions.special` instead, with its settings
part                                several experiments: each changes some fields, and may take some methods alone
small                               the fields that change, and the parts and methods that are taken, at small scale
quantity                            what figures and claims are about unless they say otherwise
figures                             the paper's numbers: values by method, and the tolerance
claim                               larger = or smaller = this, than = that (a quantity, a method or a number), or
                                    at_least =, at_most = where the paper names a best one, which a tie leaves so
aside = true                        of a group of figures or a claim: shown and judged, but not counted
scale                               of a group of figures or a claim: asked for at this scale alone
gap                                 what does not come out as printed, why, and how the reason is known
picture                             the curves of the paper's figure, where it has any: what is drawn over what
reading                             where the verdict is about a reading of the paper that is not what it prints: which
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedax.errors import FedaxError
from fedax.papers.reproductions.merging import merged
from fedax.report.columns import parse as parse_column

if TYPE_CHECKING:
    from fedax.experiments import Experiment

Scale: TypeAlias = Literal["small", "paper"]
SCALES: tuple[Scale, ...] = ("small", "paper")
Relation: TypeAlias = Literal["larger", "smaller", "at_least", "at_most"]
RELATIONS: dict[Relation, str] = {
    "larger": "above",
    "smaller": "below",
    "at_least": "not below",
    "at_most": "not above",
}
ONE_SEED = "One seed: whether another would change the order it cannot say, and no difference has an interval."
PAPERS = {
    "apfl": "Deng, Kamani and Mahdavi (2020), Adaptive Personalized Federated Learning",
    "feddeper": "Zhou et al. (2022), Depersonalized Federated Learning",
    "fedspeed": "Sun, Shen, Huang, Ding and Tao (2023), FedSpeed",
    "pfedfbe": "Personalized Federated Composite Learning with Forward-Backward Envelopes (2022)",
    "thesis": "Yuan (2022), On Principled Local Optimization Methods for Federated Learning",
}


class DescriptionTable(BaseModel):
    """A table with a fixed set of fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Quantity(DescriptionTable):
    """A number of a method: a column of its history, at the last round unless a field says otherwise.

    part: of which part; without one, all parts together (folds, for one).
    model: "shared", "localised" or "personal": the mean over clients of that model's metric; "before": of the personal
        model before the server averages; "own": the personal model where there is one, else the shared.
    group: "all" the clients that training drew from, or those "unseen".
    reaches: the first evaluated round from 1 on at which the metric is this, or better where it is one that has a
        better side (an accuracy as a share of 1); infinite if there is none.
    quickest: with `reaches`, the least over all settings of a sweep, instead of that of the best setting.
    over: the number of last rounds over which the mean is taken; 0 for all evaluated rounds but the start.
    best: the best evaluated round instead of the last.
    each_round: of a column that grows, such as seconds: its growth a round, from the first evaluated one to the last.
    minus: the quantity that is subtracted, as changes of this one's fields.

    >>> str(Quantity(method="FedAvg", part="i.i.d.", model="localised", metric="test_accuracy"))
    'i.i.d.: FedAvg (localised test accuracy)'
    """

    method: str
    part: str | None = None
    metric: str = "test_accuracy"
    model: Literal["shared", "localised", "before", "personal", "own"] | None = None
    group: Literal["all", "unseen"] = "all"
    reaches: float | None = None
    quickest: bool = False
    over: int | None = None
    best: bool = False
    each_round: bool = False
    minus: dict[str, Any] | None = None

    @property
    def percent(self) -> bool:
        """Whether its number is given in percent."""
        parsed = parse_column(self.metric)
        return parsed is not None and parsed.percent and self.reaches is None

    @property
    def words(self) -> str:
        """What is measured, without the model that it is measured on."""
        owner = {None: "", "own": "", "before": "personal "}.get(self.model, f"{self.model} ")
        words = f"{owner}{self.metric.replace('_', ' ')}"
        if self.model == "before":
            words += ", before averaging"
        if self.reaches is not None:
            words = f"rounds to {words} = {self.reaches:g}" + ", quickest setting" * self.quickest
        if self.best:
            words += ", best round"
        if self.each_round:
            words += " a round"
        if self.over is not None:
            words += f", last {self.over} rounds" if self.over else ", mean over the rounds"
        if self.group == "unseen":
            words += ", new clients"
        return words

    def __str__(self) -> str:
        whole = f"{self.part}: " * bool(self.part) + f"{self.method} ({self.words})"
        return whole if self.minus is None else f"{whole}, less that of {', '.join(map(str, self.minus.values()))}"

    def subtrahend(self) -> Quantity | None:
        """The quantity that is subtracted."""
        return None if self.minus is None else self.model_copy(update={**self.minus, "minus": None})


class Figure(DescriptionTable):
    """A number that the paper prints; `tolerance` is absolute, `factor` a ratio; `aside` is not counted.

    scale: the one at which it is asked for, where it is not both.
    """

    quantity: Quantity
    value: float
    tolerance: float | None = None
    factor: float | None = None
    aside: bool = False
    scale: Scale | None = None

    @model_validator(mode="after")
    def _is_judged(self) -> Figure:
        if self.tolerance is None and self.factor is None and not self.quantity.percent:
            raise FedaxError(f"{self.quantity} needs a tolerance or a factor: only accuracies have a default")
        return self


class PaperClaim(DescriptionTable):
    """A sentence of the paper about two quantities, or one and a number; `aside` and `scale` as of a figure."""

    says: str
    left: Quantity
    relation: Relation
    right: Quantity | float
    aside: bool = False
    scale: Scale | None = None

    @property
    def quantities(self) -> list[Quantity]:
        """Those it is about."""
        return [q for q in (self.left, self.right) if isinstance(q, Quantity)]


class Departures(DescriptionTable):
    """Where the setting is not the paper's: at either scale, at each."""

    always: list[str] = []
    paper: list[str] = []
    small: list[str] = []


class Gap(DescriptionTable):
    """Something that does not come out as the paper prints it.

    what: figures or claims, in words. why: the reason, one sentence. evidence: the proof, or what was measured.
    known_by: "proof"; "measurement" of what the reason predicts; "scale", where only a smaller scale was run; or
        "open", where no reason is known.
    scale: at which scale, where it is not both.
    """

    what: str
    why: str
    known_by: Literal["proof", "measurement", "scale", "open"]
    evidence: str = ""
    scale: Scale | None = None


class Picture(DescriptionTable):
    """Curves of the runs, one panel a part; without one a reproduction is drawn as its numbers beside the paper's.

    y: a column of the history, drawn over the column x. model: "own" takes each client's own model where there is one.
    log: the axes with a logarithmic scale.
    """

    y: str
    x: str = "round"
    model: Literal["shared", "own"] = "own"
    log: list[Literal["x", "y"]] = []
    methods: list[str] = []

    def column(self, columns: Iterable[str]) -> str:
        """The column of the history that y stands for, among the given ones."""
        own = f"personal_{self.y}"
        return own if self.model == "own" and own in columns else self.y


class Part(DescriptionTable):
    """One experiment of several, as a change of the common one."""

    name: str = ""
    set: dict[str, Any] = {}
    methods: list[str] = []


class Small(DescriptionTable):
    """The difference between the paper's scale and the small one: for all parts, and for some."""

    set: dict[str, Any] = {}
    part: dict[str, dict[str, Any]] = {}
    parts: list[str] = []
    methods: list[str] = []


class ScaledSetting(DescriptionTable):
    """A part at a scale: the experiment's table, or what a measure is told."""

    part: str
    table: dict[str, Any]

    def experiment(self) -> Experiment:
        """The experiment that the table describes."""
        from fedax.experiments import parse

        return parse(self.table)

    @property
    def methods(self) -> list[str]:
        """The labels of its methods."""
        if "algorithm" in self.table:
            return [str(one.get("label", one["name"])) for one in self.table["algorithm"]]
        return [str(label) for label in self.table.get("methods", ())]


class Reproduction(DescriptionTable):
    """An experiment of a paper. `library.load` gives it by its id."""

    id: str
    title: str
    paper: str
    where: str
    note: str
    reading: str = ""
    data: list[str] = []
    minutes: float
    hours: float | None = None
    departures: Departures = Departures()
    experiment: dict[str, Any] | None = None
    measure: str | None = None
    settings: dict[str, Any] = {}
    part: list[Part] = Field(default=[Part()], min_length=1)
    small: Small = Small()
    figures: list[Figure] = []
    claims: list[PaperClaim] = []
    gap: list[Gap] = []
    picture: Picture | None = None

    def at(self, scale: Scale) -> list[ScaledSetting]:
        """The parts at a scale."""
        common = self.settings if self.experiment is None else {"name": self.id, **self.experiment}
        settings = [ScaledSetting(part=p.name, table=merged(common, p.set, only=p.methods)) for p in self.part]
        if scale == "paper":
            return settings
        return [self._smaller(one) for one in settings if not self.small.parts or one.part in self.small.parts]

    def _smaller(self, whole: ScaledSetting) -> ScaledSetting:
        """A part at small scale."""
        table = merged(merged(whole.table, self.small.set), self.small.part.get(whole.part, {}))
        return ScaledSetting(
            part=whole.part, table=merged(table, {}, only=[m for m in self.small.methods if m in whole.methods])
        )

    def seeds(self, scale: Scale) -> int:
        """The smallest number of seeds that a part runs with at a scale."""
        return min(len(setting.table.get("seeds", [0])) for setting in self.at(scale))

    def departing(self, scale: Scale, seeds: int | None = None) -> list[str]:
        """Every place where the setting at a scale departs from the paper, what one seed cannot say among it.

        seeds: how many were run, where it is not the table's number.

        >>> from fedax.papers.reproductions import load
        >>> load("fco-lowrank-I").departing("paper")[-1]
        'One seed: whether another would change the order it cannot say, and no difference has an interval.'
        """
        reading = [f"A reading: {self.reading}"] if self.reading else []
        every = [
            *reading,
            *self.departures.always,
            *(self.departures.small if scale == "small" else self.departures.paper),
        ]
        return every + [ONE_SEED] * ((seeds or self.seeds(scale)) == 1)

    def asked(self, scale: Scale) -> tuple[list[Figure], list[PaperClaim]]:
        """The figures and claims about what is run at a scale."""
        there = {setting.part: setting.methods for setting in self.at(scale)}

        def run(quantity: Quantity) -> bool:
            both = [quantity, *[q for q in [quantity.subtrahend()] if q is not None]]
            return all(any(q.part in (None, part) and q.method in m for part, m in there.items()) for q in both)

        figures = [figure for figure in self.figures if figure.scale in (None, scale) and run(figure.quantity)]
        claims = [claim for claim in self.claims if claim.scale in (None, scale) and all(map(run, claim.quantities))]
        return figures, claims

    def quantities(self, scale: Scale) -> list[Quantity]:
        """All quantities that figures and claims need at a scale."""
        figures, claims = self.asked(scale)
        every = [*(figure.quantity for figure in figures), *(q for claim in claims for q in claim.quantities)]
        return list({str(quantity): quantity for quantity in every}.values())
