"""Figures for a paper, by matplotlib: curves over seeds, a sweep's heat maps, the clients one by one.

Colours are those of Okabe and Ito, which the colour-blind can tell apart; fonts are embedded as TrueType; a figure is
as wide as a column, or as the page.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedax.errors import FedaxError
from fedax.report.chart_data import payload
from fedax.report.columns import AXES, STRUCTURE, MetricColumn, parse
from fedax.report.summary import Group, columns, rows

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
DASHES = ("-", "--", "-.", ":")
COLUMN, PAGE = 3.3, 6.8  # inches
LOOK: Any = {
    "pdf.fonttype": 42,
    "font.size": 8,
    "axes.titlesize": 8,
    "legend.fontsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.2,
}
AGAINST = ("round", "gradients", "floats", "epsilon", "row_epsilon")
ORDERS = 100  # between the least and the largest value from which a logarithmic axis shows more


def draw(groups: Sequence[Group], sweep: dict[str, Any] | None = None, *, wide: bool = False) -> dict[str, Any]:
    """Every figure that the runs have the numbers for, by name: `<metric>-<axis>`, `clients`, `sweep-<method>`."""
    try:
        import matplotlib
    except ImportError:
        raise FedaxError("figures need matplotlib: pip install 'fedax[figures]'") from None
    numbers = payload(list(groups))
    titles = columns(rows(groups))
    metrics = {
        key: parse(key)
        for key in titles
        if key in STRUCTURE or (parse(key) or MetricColumn("", "", "std")).statistic == ""
    }
    found: dict[str, Any] = {}
    with matplotlib.rc_context(LOOK):
        for key, metric in metrics.items():
            for axis in AGAINST:
                if figure := _curves(numbers, key, metric, axis, wide):
                    found[f"{key}-{axis}".replace("_", "-")] = figure
        if figure := _clients(numbers, wide):
            found["clients"] = figure
        for method in (sweep or {}).get("methods", []):
            found[f"sweep-{method['label']}"] = _heat(sweep or {}, method, wide)
    return found


def encode(figure: Any, kind: str) -> bytes:
    """A figure as "pdf" or "png", the same bytes for the same numbers."""
    import matplotlib

    file = io.BytesIO()
    dated = {"metadata": {"CreationDate": None}} if kind == "pdf" else {}
    with matplotlib.rc_context(LOOK):
        figure.savefig(file, format=kind, dpi=300, **dated)
    return file.getvalue()


def _axes(wide: bool) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(PAGE, 2.8) if wide else (COLUMN, 2.3), layout="constrained")
    return figure, figure.subplots()


def _look(place: int) -> dict[str, Any]:
    """A method's colour and dashes; dashes are for print in grey, and change when the colours repeat."""
    again = place // len(OKABE_ITO)
    return {"color": OKABE_ITO[place % len(OKABE_ITO)], "linestyle": DASHES[(place + again) % len(DASHES)]}


def _curves(numbers: dict[str, Any], key: str, metric: MetricColumn | None, axis: str, wide: bool) -> Any:
    """The mean over seeds against rounds or costs, in a band from the lowest seed to the highest."""
    there = [(i, curve) for i, curve in enumerate(numbers["curves"]) if key in curve["y"] and axis in curve["x"]]
    if not there or all(len(curve["x"][axis]) < 2 for _, curve in there):
        return None
    figure, axes = _axes(wide)
    percent = metric is not None and metric.percent
    drawn: list[float] = []
    for i, curve in there:
        x = np.asarray(curve["x"][axis], float)
        mean, low, high = (
            (100 if percent else 1) * np.asarray(curve["y"][key][k], float) for k in ("mean", "low", "high")
        )
        axes.plot(x, mean, label=numbers["groups"][i]["label"], **_look(i))
        if numbers["groups"][i]["runs"] > 1:
            axes.fill_between(x, low, high, color=_look(i)["color"], alpha=0.2, linewidth=0)
        drawn += [value for value in mean.tolist() if math.isfinite(value)]
    if drawn and min(drawn) > 0 and max(drawn) > ORDERS * min(drawn):
        axes.set_yscale("log")
    if axis != "round":
        from matplotlib.ticker import EngFormatter

        axes.xaxis.set_major_formatter(EngFormatter())  # 200 k rather than 200000
    axes.set_xlabel(AXES[axis])
    axes.set_ylabel(_title(key, metric) + (", %" if percent else ""))
    axes.legend(frameon=False)
    return figure


def _title(key: str, metric: MetricColumn | None) -> str:
    if metric is None:
        return STRUCTURE[key]
    return f"Personal {metric.title.lower()}" if metric.personal else metric.title


def _clients(numbers: dict[str, Any], wide: bool) -> Any:
    """The main metric of each client at the end, its mean over seeds, from the worst client to the best."""
    by_group: dict[int, list[Any]] = {}
    for run in numbers["clients"]:
        for measure in numbers["measures"][:1]:
            values = run["moments"].get("last", {}).get("metrics", {}).get(measure["title"], {})
            of = values.get("personal") or values.get("shared")
            if of:
                by_group.setdefault(run["group"], []).append(np.asarray(of, float))
    if not by_group:
        return None
    measure = numbers["measures"][0]
    figure, axes = _axes(wide)
    for i, seeds in by_group.items():
        if len({len(values) for values in seeds}) > 1:
            continue
        stacked = np.stack(seeds)
        mean = stacked[:, ~np.isnan(stacked).any(axis=0)].mean(axis=0) * (100 if measure["percent"] else 1)
        ordered = np.sort(mean) if measure["better"] == "max" else np.sort(mean)[::-1]
        axes.plot(np.arange(1, len(ordered) + 1), ordered, marker=".", label=numbers["groups"][i]["label"], **_look(i))
    axes.set_xlabel("Clients, from the worst to the best")
    axes.set_ylabel(measure["title"] + (", %" if measure["percent"] else ""))
    axes.legend(frameon=False)
    return figure


def _heat(sweep: dict[str, Any], method: dict[str, Any], wide: bool) -> Any:
    """A method's score over two hyper-parameters; a setting that diverged has an empty cell."""
    figure, axes = _axes(wide)
    z = np.asarray([[math.nan if value is None else value for value in line] for line in method["z"]], float)
    shown = axes.imshow(z, origin="lower", aspect="auto", cmap="cividis" if sweep["goal"] == "max" else "cividis_r")
    axes.set_facecolor("0.9")
    axes.set_xticks(range(z.shape[1]), sweep["axes"][0])
    axes.set_xlabel(sweep["fields"][0])
    if len(sweep["fields"]) > 1:
        axes.set_yticks(range(z.shape[0]), sweep["axes"][1])
        axes.set_ylabel(sweep["fields"][1])
    else:
        axes.set_yticks([])
    axes.set_title(method["label"])
    figure.colorbar(shown, label=sweep["title"])
    return figure
