"""Pictures of results by plotly: a metric over the rounds, one method or several, the mean and the range over seeds.

fedax.plot.compare(comparison)                 what fedax.compare gave
fedax.plot.compare({"FedAvg": a, "mine": b})   results by their names, or lists of results, one a seed
fedax.plot.compare(a, b, metric="test_loss", against="floats")
result.plot(), sweep.plot(), federation.plot()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedax.errors import FedaxError, unknown
from fedax.report.chart_data import measures
from fedax.report.columns import AXES, parse

#: colours of Okabe and Ito, which the colour-blind can tell apart
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("solid", "dash", "dot")

Rows = Sequence[Mapping[str, Any]]


def compare(*given: Any, metric: str | None = None, against: str = "round") -> Any:
    """A plotly figure of one metric of several results; a method's own models are dashed beside the shared one.

    given: a `Comparison`, a dictionary of results or of lists of results by name, or results.
    metric: a column of the history; accuracy on test rows where there is one, else the first that there is.
    against: "round", "gradients", "floats" or "seconds".

    >>> import numpy as np, jax.numpy as jnp, fedax
    >>> mean = fedax.Problem(loss=lambda w, b: jnp.mean((b["x"] - w) ** 2) / 2, init=lambda key: jnp.zeros(()))
    >>> clients = fedax.Federation.from_clients([{"x": np.float32([1, 3])}, {"x": np.float32([6])}])
    >>> found = fedax.compare(mean, clients, [fedax.FedAvg(lr=0.5), fedax.SCAFFOLD(lr=0.5)], rounds=3, seeds=(0, 1))
    >>> figure = fedax.plot.compare(found)
    >>> [line.name for line in figure.data if line.showlegend], figure.layout.yaxis.title.text
    (['FedAvg', 'SCAFFOLD'], 'Training loss')
    """
    named = _named(given)
    keys = [key for histories in named.values() for row in histories[0] for key in row if _number(row[key])]
    chosen = _keys(metric, list(dict.fromkeys(keys)))
    if against not in AXES:
        raise unknown("against", against, AXES)
    return _figure(named, chosen, against)


def _named(given: tuple[Any, ...]) -> dict[str, list[Rows]]:
    """Histories by name, one a seed."""
    (only,) = given if len(given) == 1 else (given,)
    results = getattr(only, "results", only)
    if not isinstance(results, Mapping | list | tuple):
        results = [results]
    if not isinstance(results, Mapping):
        labels: dict[str, Any] = {}
        for one in results:
            label = str(getattr(one, "info", {}).get("algorithm", "run"))
            labels[label if label not in labels else f"{label} {len(labels) + 1}"] = one
        results = labels
    named = {name: list(one) if isinstance(one, list | tuple) else [one] for name, one in results.items()}
    if not named or not all(hasattr(one, "history") and one.history for of in named.values() for one in of):
        raise FedaxError(
            "plot.compare takes results with at least one evaluated round, a Comparison, or results by name"
        )
    return {name: [one.history for one in of] for name, of in named.items()}


def _keys(metric: str | None, there: list[str]) -> list[str]:
    """The columns to draw: a metric of the shared model and of the clients' own, or the one that is named."""
    if metric is not None:
        if metric not in there:
            raise unknown("metric", metric, there)
        return [metric]
    first = next((found for found in measures(key for key in there if parse(key)) if "shared" in found), None)
    if first is None:
        first = next(iter(measures(key for key in there if parse(key))), None)
    if first is None:
        raise FedaxError("the results have no metric to draw")
    return [first[whose] for whose in ("shared", "personal") if whose in first]


def _figure(named: Mapping[str, list[Rows]], keys: list[str], against: str) -> Any:
    import plotly.graph_objects as go

    figure = go.Figure()
    about = parse(keys[0])
    factor = 100 if about is not None and about.percent else 1
    for place, (name, histories) in enumerate(named.items()):
        for dash, key in zip(DASHES, keys, strict=False):
            colour = COLOURS[place % len(COLOURS)]
            points = _points(histories, key, against, factor)
            if not points:
                continue
            x, mean, low, high = map(list, zip(*points, strict=True))
            label = name if len(keys) == 1 or dash == "solid" else f"{name}, own models"
            line = {"color": colour, "dash": dash}
            if len(histories) > 1:
                band = {"x": x + x[::-1], "y": high + low[::-1], "fill": "toself", "fillcolor": colour, "opacity": 0.15}
                figure.add_scatter(**band, line={"width": 0}, hoverinfo="skip", showlegend=False, legendgroup=label)
            figure.add_scatter(x=x, y=mean, mode="lines", name=label, line=line, legendgroup=label, showlegend=True)
    title = about.title if about is not None else keys[0]
    figure.update_layout(
        template="plotly_white",
        height=420,
        margin={"t": 30, "r": 20},
        xaxis_title=AXES[against],
        yaxis_title=f"{title}, %" if factor == 100 else title,
    )
    return figure


def _points(histories: list[Rows], key: str, against: str, factor: float) -> list[tuple[float, float, float, float]]:
    """Place, mean, least and greatest over the seeds, at the evaluations that all seeds have."""
    found = []
    for rows in zip(*histories, strict=False):
        values = [factor * float(row[key]) for row in rows if _number(row.get(key))]
        places = [_place(row, against) for row in rows]
        if len(values) == len(rows) and None not in places:
            at = sum(place for place in places if place is not None) / len(places)
            found.append((at, sum(values) / len(values), min(values), max(values)))
    return found


def _place(row: Mapping[str, Any], against: str) -> float | None:
    if against == "floats":
        return float(row["floats_up"]) + float(row["floats_down"]) if "floats_up" in row else None
    value = row.get(against, row.get("time") if against == "seconds" else None)
    return float(value) if _number(value) else None


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
