"""The protocol of personal experiments: four models side by side, client by client, on rows that none trained on.

The models: the shared one, the shared one after K local steps (localised), the client's own as it is before the server
averages, K local steps further (before, where it is asked for) and after (personal), and one trained without federation
(local). The groups: all clients that training drew from, those of them that took part so
far, and the clients held out from training (unseen). The moments: the last round, and the round whose validation
metric was best (chosen). A table says for each how clients fare, and whom the personal model helps and harms.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedax.evaluation.metrics import shown
from fedax.evaluation.signed_rank import signed_rank

Floats = NDArray[np.float64]
MODELS = ("shared", "localised", "before", "personal", "local")
GROUPS = ("all", "joined", "unseen")
MOMENTS = ("last", "chosen")


@dataclasses.dataclass(frozen=True)
class Moment:
    """Every client's metrics at one round: values[model][part][metric] is an array over clients, NaN where unknown."""

    round: int
    values: dict[str, dict[str, dict[str, Floats]]]

    def get(self, model: str, part: str, metric: str) -> Floats | None:
        """One model's metric for every client, or None."""
        return self.values.get(model, {}).get(part, {}).get(metric)


@dataclasses.dataclass(frozen=True)
class Clients:
    """A run client by client, in the federation's order.

    rows: how many rows of each part a client has. joined: the first round it took part in, counted from 1, and 0 for
    one that never did. unseen: held out from training. moments: "last", and "chosen" where there are validation rows.
    """

    names: tuple[str, ...]
    rows: dict[str, NDArray[np.int64]]
    joined: NDArray[np.int64]
    unseen: NDArray[np.bool_]
    moments: dict[str, Moment]

    def group(self, name: str, moment: Moment) -> NDArray[np.bool_]:
        """The clients of a group at a moment."""
        if name == "unseen":
            return self.unseen
        if name == "joined":
            return ~self.unseen & (self.joined > 0) & (self.joined <= moment.round)
        return ~self.unseen

    def as_json(self) -> dict[str, Any]:
        """The run's values as plain lists and numbers, None for those that are not known."""
        return {
            "names": list(self.names),
            "rows": {part: count.tolist() for part, count in self.rows.items()},
            "joined": self.joined.tolist(),
            "unseen": self.unseen.tolist(),
            "moments": {name: {"round": m.round, "values": _lists(m.values)} for name, m in self.moments.items()},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Clients | None:
        """What `as_json` wrote, or None where a run kept no moments."""
        if not content.get("moments"):
            return None
        moments = {name: Moment(m["round"], _arrays(m["values"])) for name, m in content["moments"].items()}
        rows = {part: np.asarray(count, np.int64) for part, count in content["rows"].items()}
        joined, unseen = np.asarray(content["joined"], np.int64), np.asarray(content["unseen"], bool)
        return cls(tuple(content["names"]), rows, joined, unseen, moments)

    def with_local(self, other: Clients) -> Clients:
        """These clients with the models of a local-only run as a fourth column, moment by moment."""
        moments = {}
        for name, moment in self.moments.items():
            theirs = other.moments.get(name, other.moments["last"])
            local = {"local": theirs.values["personal"]} if "personal" in theirs.values else {}
            moments[name] = dataclasses.replace(moment, values={**moment.values, **local})
        return dataclasses.replace(self, moments=moments)


def _lists(values: Any) -> Any:
    if isinstance(values, dict):
        return {key: _lists(value) for key, value in values.items()}
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _arrays(values: Any) -> Any:
    if isinstance(values, Mapping):
        return {key: _arrays(value) for key, value in values.items()}
    return np.asarray([np.nan if value is None else value for value in values], np.float64)


def describe(values: Floats, rows: NDArray[Any], *, higher: bool = True) -> dict[str, float]:
    """How clients fare: means weighted by rows and not, spread, and the means of the worst and the best tenth.

    >>> describe(np.array([0.5, 1.0, np.nan]), np.array([1, 3, 0]))
    {'clients': 2, 'weighted': 0.875, 'mean': 0.75, 'std': 0.25, 'worst': 0.5, 'best': 1.0}
    """
    there = np.isfinite(values) & (rows > 0)
    if not there.any():
        return {"clients": 0}
    known, weight = values[there], rows[there]
    order = np.sort(known) if higher else np.sort(known)[::-1]
    tenth = max(1, round(len(order) / 10))
    return {
        "clients": len(known),
        "weighted": float(np.average(known, weights=weight)),
        "mean": float(known.mean()),
        "std": float(known.std()),
        "worst": float(order[:tenth].mean()),
        "best": float(order[-tenth:].mean()),
    }


def helped(own: Floats, other: Floats, *, higher: bool = True) -> dict[str, float]:
    """The shares of clients whose own model is better and worse than another, and a paired test's p-value.

    The test is Wilcoxon's signed-rank test over clients, two-sided; 1 where no client differs.

    >>> found = helped(np.array([0.9, 0.8, 0.7, 0.6]), np.array([0.8, 0.8, 0.8, 0.5]))
    >>> found["helped"], found["harmed"]
    (0.5, 0.25)
    """
    both = np.isfinite(own) & np.isfinite(other)
    if not both.any():
        return {}
    gain = (own - other)[both] * (1 if higher else -1)
    # differences of two means over a client's rows: differences by rounding alone are ties
    gain = np.where(np.abs(gain) < 1e-9, 0.0, gain)
    result = {"gain": float(gain.mean()), "helped": float(np.mean(gain > 0)), "harmed": float(np.mean(gain < 0))}
    return {**result, "p": signed_rank(gain)}


def interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """The mean over seeds and the half-width of its confidence interval by Student's t; NaN for a single seed.

    >>> mean, half = interval([1.0, 2.0, 3.0])
    >>> mean, round(half, 3)
    (2.0, 2.484)
    """
    known = np.asarray([v for v in values if math.isfinite(v)], float)
    if not len(known):
        return math.nan, math.nan
    if len(known) == 1:
        return float(known[0]), math.nan
    from scipy.special import stdtrit

    half = stdtrit(len(known) - 1, (1 + level) / 2) * known.std(ddof=1) / math.sqrt(len(known))
    return float(known.mean()), float(half)


def table(clients: Clients, *, part: str = "test", metric: str = "accuracy") -> list[dict[str, Any]]:
    """A line for each moment, group and model that there is: `describe`'s numbers, and for the personal model the
    shares of clients it helps and harms against the shared and the local one.

    >>> line = {"test": {"accuracy": np.array([0.5, 1.0])}}
    >>> own = {"test": {"accuracy": np.array([0.75, 1.0])}}
    >>> moment = Moment(9, {"shared": line, "personal": own})
    >>> rows = {"test": np.array([4, 4])}
    >>> two = Clients(("a", "b"), rows, np.array([1, 1]), np.array([False, False]), {"last": moment})
    >>> [(r["group"], r["model"], r["mean"], r.get("helped_shared")) for r in table(two)][:2]
    [('all', 'shared', 0.75, None), ('all', 'personal', 0.875, 0.5)]
    """
    higher = shown(metric).higher
    lines: list[dict[str, Any]] = []
    for name, moment in clients.moments.items():
        for group in GROUPS:
            inside = clients.group(group, moment)
            for model in MODELS:
                values = moment.get(model, part, metric)
                if values is None:
                    continue
                found = describe(np.where(inside, values, np.nan), clients.rows[part], higher=higher)
                if not found["clients"]:
                    continue
                line = {"moment": name, "round": moment.round, "group": group, "model": model, **found}
                if model == "personal":
                    line |= _against(moment, part, metric, inside, higher)
                lines.append(line)
    return lines


def _against(moment: Moment, part: str, metric: str, inside: NDArray[np.bool_], higher: bool) -> Mapping[str, float]:
    own = moment.get("personal", part, metric)
    assert own is not None
    found: dict[str, float] = {}
    for other in ("shared", "local"):
        values = moment.get(other, part, metric)
        if values is not None:
            pairs = helped(np.where(inside, own, np.nan), values, higher=higher)
            found |= {f"{key}_{other}": value for key, value in pairs.items()}
    return found


def over_seeds(tables: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Several seeds' tables as one: for each line the mean of every number, and `<number>_ci`, the half-width of its
    95 % confidence interval where there are at least two seeds; of p-values the largest.

    >>> one = [{"moment": "last", "group": "all", "model": "shared", "round": 3, "mean": 0.5}]
    >>> two = [{"moment": "last", "group": "all", "model": "shared", "round": 3, "mean": 0.7}]
    >>> round(over_seeds([one, two])[0]["mean_ci"], 3)
    1.271
    """
    lines: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for rows in tables:
        for row in rows:
            lines.setdefault((row["moment"], row["group"], row["model"]), []).append(row)
    merged = []
    for (moment, group, model), rows in lines.items():
        line: dict[str, Any] = {"moment": moment, "group": group, "model": model, "seeds": len(rows)}
        for key in dict.fromkeys(k for row in rows for k in row if k not in line):
            values = [row[key] for row in rows if key in row]
            if key.startswith("p_"):
                line[key] = max(values)  # the seeds share their rows, so their tests cannot be combined
                continue
            mean, half = interval(values)
            line[key] = mean
            if math.isfinite(half):
                line[f"{key}_ci"] = half
        merged.append(line)
    return merged
