"""The protocol of personal experiments as HTML: a table for each moment and group of clients."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Any

from fedax.report.columns import MetricColumn
from fedax.report.markup import best, cell, swatch
from fedax.report.personal_table import protocol, worth
from fedax.report.summary import Group

MOMENTS = {"last": "last round", "chosen": "round chosen on validation rows"}
CLIENTS = {"all": "All clients", "joined": "Clients that took part", "unseen": "Clients held out from training"}
STATISTICS = {
    "weighted": "Weighted mean",
    "mean": "Mean",
    "std": "Deviation",
    "worst": "Worst tenth",
    "best": "Best tenth",
}
OTHERS = {"shared": "Personal against shared", "local": "Personal against local"}
Line = dict[str, Any]


def protocol_tables(groups: Sequence[Group], *, comparable: bool = True) -> str:
    """The tables on test rows; nothing where no run kept its clients. The best of a column is bold among methods whose
    runs all finished, if they can be compared."""
    metric, lines = protocol(groups)
    named = {group.label: (i, group) for i, group in enumerate(groups)}
    shown = ""
    for moment, at in MOMENTS.items():
        here = [line for line in lines if line["moment"] == moment]
        tables = ""
        for who in worth(here):
            inside = [line for line in here if line["group"] == who]
            about = MetricColumn("test", metric)
            caption = f"{CLIENTS[who]}: test {about.words}{', %' if about.percent else ''}, {at}"
            tables += _table(caption, inside, named, f"test_{metric}", comparable)
        if tables:
            shown += f'<div data-moment="{moment}">{tables}</div>'
    return shown


def _table(caption: str, lines: list[Line], named: dict[str, tuple[int, Group]], key: str, comparable: bool) -> str:
    # Training alone has its own line: under every other method it would say the same again.
    lines = [line for line in lines if line["model"] != "local"]
    others = [other for other in OTHERS if any(f"helped_{other}" in line for line in lines)]
    judged = [line for line in lines if comparable and named[line["algorithm"]][1].finished]
    bold = {name: best(key, [line[name] for line in judged]) for name in STATISTICS if name != "std"}
    over = "".join(f'<th scope="colgroup" colspan="3">{OTHERS[other]}</th>' for other in others)
    heads = "".join(f'<th scope="col">{title}</th>' for title in ("Clients", *STATISTICS.values()))
    heads += '<th scope="col">Helped</th><th scope="col">Harmed</th><th scope="col">p</th>' * len(others)
    body = ""
    for label, of in groupby(lines, lambda line: str(line["algorithm"])):
        place, group = named[label]
        body += _method(place, group, list(of), others, bold, key)
    return (
        f'<h3>{escape(caption)}</h3><div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0">'
        f'<table class="protocol" aria-label="{escape(caption)}"><thead>'
        f'<tr><td></td><th scope="colgroup" colspan="6">Over clients</th>{over}</tr>'
        f'<tr><th scope="col">Model</th>{heads}</tr></thead>{body}</table></div>'
    )


def _method(
    place: int, group: Group, lines: list[Line], others: list[str], bold: dict[str, str | None], key: str
) -> str:
    """A row that names the method, then its models, one a row."""
    models = [str(line["model"]) for line in lines]
    width = 2 + len(STATISTICS) + 3 * len(others)
    name = f"{swatch(place)}{escape(group.label)} <small>{escape('; '.join(_notes(group, lines)))}</small>"
    rows = f'<tr><th scope="rowgroup" colspan="{width}"><div>{name}</div></th></tr>'
    bold = bold if group.finished else {}
    for line in lines:
        model = "local" if "shared" not in models and line["model"] == "personal" else line["model"]
        cells = f'<th scope="row">{str(model).capitalize()}</th><td>{line["clients"]:.1f}</td>'.replace(".0<", "<")
        for name in STATISTICS:
            cells += cell(key, line[name], line.get("mean_ci") if name == "mean" else None, bold.get(name))
        rows += f"<tr>{cells}{''.join(_against(line, other) for other in others)}</tr>"
    return f"<tbody>{rows}</tbody>"


def _notes(group: Group, lines: list[Line]) -> list[str]:
    """Where a method's models were taken, and what it lacks."""
    models = {line["model"] for line in lines}
    seeds, reached = lines[0]["seeds"], lines[0]["round"]
    notes = [f"round {reached:.1f} on average" if reached % 1 else f"round {reached:.0f}"]
    if seeds < len(group.runs):
        notes.append(f"{seeds} of {len(group.runs)} seeds")
    if not group.finished:
        notes.append(group.status)
    if "personal" not in models:
        notes.append("no personal models: clients use the shared one")
    elif "shared" not in models:
        notes.append("no shared model: every client trains alone")
    return notes


def _against(line: Line, other: str) -> str:
    if f"helped_{other}" not in line:
        return "<td>–</td>" * 3
    helped, harmed, p = (line[f"{name}_{other}"] for name in ("helped", "harmed", "p"))
    chance = "&lt; 0.001" if p < 0.001 else f"{p:.3f}"
    return f"<td>{100 * helped:.0f} %</td><td>{100 * harmed:.0f} %</td><td>{chance}</td>"
