"""Models on a table as HTML: how good each is in more than one number, and what a linear one has learnt."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from html import escape
from typing import Any

from fedax.report.honest import assessment
from fedax.report.markup import swatch
from fedax.report.pictures import bars, calibration, residuals
from fedax.report.summary import Group
from fedax.runs.files import COEFFICIENTS
from fedax.runs.reading import RecordedRun

HINTS = {
    "classes": "AUC: how often a row of the class that is looked for gets a higher probability than one of the other; "
    "0.5 is guessing, 1 is perfect. Average precision: how many of the rows that are ranked highest are of that class, "
    "averaged over all that are; guessing has the class's share of the rows. Of more than two classes both are "
    "means over the classes, each against the rest. Both are exact here; the summary counts scores in bins and may "
    "differ in the fourth digit. Calibration: on the dashed line, of rows with a predicted "
    "probability of 30 % three in ten are of the class.",
    "numbers": "RMSE: the root of the mean squared residual. MAE: the mean of residuals without their sign. R²: the "
    "share of the variance that is explained; always predicting the mean has 0. Residual: measured less predicted.",
}
WEIGHTED = (
    "Training rows were weighted ({weights}), so probabilities are those of rows with these weights: they rank rows, "
    "but they are not the shares to be expected, and the calibration curve may be far from its line."
)
SHOWN = 40  # coefficients
CLASSES = 12  # of a confusion matrix, and with coefficients
CLIENTS = 13  # with coefficients of their own, where there is no shared model
WHOSE = {"shared": "shared model", "personal": "personal models"}


def quality_section(groups: Sequence[Group]) -> str:
    """Ranking, calibration and confusion of each method's models, or residuals; nothing where no run is on a table."""
    parts = ""
    kinds: dict[str, None] = {}
    weights: dict[str, None] = {}
    for place, group in enumerate(groups):
        found = assessment(group.runs[0]).get("quality")
        if isinstance(found, dict):
            try:
                parts += _method(place, group, found)
                kinds["numbers" if found["labels"] is None else "classes"] = None
                asked = group.runs[0].get("data", "weights")
                weights |= {str(asked): None} if asked and found["labels"] is not None else {}
            except (KeyError, TypeError, ValueError, IndexError):
                parts += f"<p>{escape(group.label)}: its assessment cannot be read.</p>"
    if not parts:
        return ""
    said = [WEIGHTED.format(weights=escape(", ".join(weights)))] if weights else []
    hint = "".join(f'<p class="hint">{words}</p>' for words in (*said, *(HINTS[kind] for kind in kinds)))
    title = '<h2 id="quality-title">How good the models are</h2>'
    return f'<section aria-labelledby="quality-title">{title}{parts}{hint}</section>'


def learnt_section(groups: Sequence[Group]) -> str:
    """The coefficients of each method's linear model; nothing where there is none."""
    parts = ""
    for place, group in enumerate(groups):
        rows = _coefficients(group.runs[0])
        if rows:
            parts += f"<h3>{swatch(place)}{escape(group.label)}</h3>{_learnt(group.label, rows)}"
    if not parts:
        return ""
    hint = (
        '<p class="hint">Coefficient: for each unit of the column; for classes, of the log-odds. Standardised: for '
        "each standard deviation of it, by which the rows are sorted and the bars drawn. A category has a coefficient "
        "for each value, to be compared with each other. Clients' own: the range over "
        f"their personal models. All of them are in {COEFFICIENTS} beside the report.</p>"
    )
    title = '<h2 id="learnt-title">What was learnt</h2>'
    return f'<section aria-labelledby="learnt-title">{title}{parts}{hint}</section>'


def _method(place: int, group: Group, found: dict[str, Any]) -> str:
    seed = "" if group.runs[0].seed is None or len(group.runs) == 1 else f", seed {group.runs[0].seed}"
    rows = f"{found['rows']:,} {found['part']} rows"
    shown = f"<h3>{swatch(place)}{escape(group.label)} <small>{rows}{seed}</small></h3>"
    for whose, words in WHOSE.items():
        if whose in found:
            one = found[whose]
            made = _numbers(one) if found["labels"] is None else _classes(one, found["labels"])
            shown += f'<p class="quality">{words[0].upper()}{words[1:]}: {made}'
    return shown


def _classes(one: dict[str, Any], labels: Sequence[Any]) -> str:
    said = []
    if "auc" in one:
        said.append(f"AUC {one['auc']:.4f}, average precision {one['average_precision']:.4f}")
    known = [value for value in one["auc_by_client"].values() if value is not None]
    clients = len(one["auc_by_client"])
    if known and clients > 1:
        low, mean = min(known), sum(known) / len(known)
        said.append(f"AUC client by client: mean {mean:.4f}, lowest {low:.4f}, over {len(known)} of {clients} clients")
        if len(known) < clients:
            said.append("the others have rows of one class alone")
    elif clients > 1:
        said.append("no client has rows of both classes, so there is no AUC client by client")
    points = [(float(p), float(share)) for _, p, share in one["calibration"]]
    share = f"share of {labels[1]}" if len(labels) == 2 else "share that is predicted rightly"
    picture = calibration(points, f"Calibration: {share} against the predicted probability", share)
    looked_for = f"of {labels[1]}" if len(labels) == 2 else "of the predicted class"
    caption = f"Calibration: probability {looked_for}; each mark is a tenth of the rows"
    figure = f"<figure><figcaption>{escape(caption)}</figcaption>{picture}</figure>"
    return f'{"; ".join(said)}.</p><div class="pair">{figure}{_confusion(one["confusion"], labels)}</div>'


def _confusion(table: Sequence[Sequence[int]], labels: Sequence[Any]) -> str:
    if len(table) > CLASSES:
        return ""
    heads = "".join(f'<th scope="col">{escape(str(label))}</th>' for label in labels)
    body = ""
    for label, row in zip(labels, table, strict=True):
        body += f'<tr><th scope="row">{escape(str(label))}</th>{"".join(f"<td>{n:,}</td>" for n in row)}</tr>'
    return (
        "<figure><figcaption>Confusion matrix: rows by true class (down) and most probable class (across)</figcaption>"
        f'<table class="confusion"><thead><tr><td></td>{heads}</tr></thead><tbody>{body}</tbody></table></figure>'
    )


def _numbers(one: dict[str, Any]) -> str:
    r2 = "" if one["r2"] is None else f", R² {one['r2']:.4f}"
    low, high = one["quantiles"][0], one["quantiles"][-1]
    said = (
        f"RMSE {one['rmse']:.4g}, MAE {one['mae']:.4g}{r2}; nine in ten residuals are between {low:.3g} and {high:.3g}"
    )
    points = [(float(x), float(y)) for x, y in one["points"]]
    picture = residuals(points, "Residuals against predictions")
    return f"{said}.</p><figure><figcaption>Residuals against predictions</figcaption>{picture}</figure>"


def _coefficients(run: RecordedRun) -> list[dict[str, str]]:
    try:
        with (run.folder / COEFFICIENTS).open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except (OSError, ValueError, csv.Error):
        return []


def _learnt(label: str, rows: list[dict[str, str]]) -> str:
    try:
        if "coefficient" in rows[0]:
            return _one_output(label, rows)
        classes = [name.removeprefix("coefficient_") for name in rows[0] if name.startswith("coefficient_")]
        if not classes:
            return _alone(rows)
        shown = ""
        for i, name in enumerate(classes[:CLASSES]):
            inside = _one_output(f"{label}, {name}", _of_class(rows, name, classes))
            shown += f"<details{'' if i else ' open'}><summary>{escape(name)}</summary>{inside}</details>"
        more = len(classes) - CLASSES
        return shown + (f"<p>{more} more classes are in {COEFFICIENTS}.</p>" if more > 0 else "")
    except Exception:  # a file that somebody or something has changed
        return "<p>The coefficients cannot be read.</p>"


def _of_class(rows: list[dict[str, str]], name: str, classes: Sequence[str]) -> list[dict[str, str]]:
    """One class's coefficients under the names that a single output's have.

    >>> row = {"feature": "age", "coefficient_b": "1", "standardised_b": "2", "zero_b": "False", "Oslo b": "3"}
    >>> _of_class([row | {"Oslo a": "4"}], "b", ["a", "b"])
    [{'feature': 'age', 'coefficient': '1', 'standardised': '2', 'zero': 'False', 'Oslo': '3'}]
    """
    kept = {"feature": "feature", **{f"{kind}_{name}": kind for kind in ("coefficient", "standardised", "zero")}}
    others = {f"{kind}_{one}" for kind in ("coefficient", "standardised", "zero") for one in classes}
    for column in rows[0]:
        ending = [one for one in classes if column.endswith(f" {one}")]
        if column not in others and ending and max(ending, key=len) == name:
            kept[column] = column.removesuffix(f" {name}")
    return [{new: row[old] for old, new in kept.items()} for row in rows]


def _one_output(label: str, rows: list[dict[str, str]]) -> str:
    known = ("feature", "coefficient", "standardised", "zero")
    clients = [name for name in rows[0] if name not in known]
    intercept, *features = rows
    features = sorted(features, key=lambda row: -abs(float(row["standardised"])))
    zero = [row["feature"] for row in features if row["zero"] == "True"]
    used = [row for row in features if row["zero"] != "True"][:SHOWN]
    body = ""
    for row in (intercept, *used):
        own = [float(row[name]) for name in clients]
        body += (
            f'<tr><th scope="row">{escape(row["feature"])}</th><td>{float(row["coefficient"]):.4g}</td>'
            f"<td>{float(row['standardised']):.4g}</td>"
            + (f"<td>{min(own):.4g} to {max(own):.4g}</td>" if clients else "")
            + "</tr>"
        )
    heads = ["Feature", "Coefficient", "Standardised", *(["Clients' own"] if clients else [])]
    head = "".join(f'<th scope="col">{title}</th>' for title in heads)
    table = f'<table class="learnt"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    drawn = [(row["feature"], float(row["standardised"]), _marks(row, clients)) for row in used]
    picture = bars(drawn, f"Standardised coefficients of {label}")
    caption = "Standardised coefficients" + ("; the marks are the clients' own" if clients else "")
    left = len(features) - len(zero) - len(used)
    said = f"{len(features) - len(zero)} of {len(features)} coefficients are not zero"
    said += f"; zero: {', '.join(zero[:30])}{' ...' if len(zero) > 30 else ''}" if zero else ""
    said += f"; {left} smaller ones are not shown" if left > 0 else ""
    figure = f"<figure><figcaption>{caption}</figcaption>{picture}</figure>"
    return f'<p>{escape(said)}.</p><div class="pair beside"><div class="scroll">{table}</div>{figure}</div>'


def _marks(row: dict[str, str], clients: Sequence[str]) -> list[float]:
    """Clients' own coefficients for each standard deviation of the column."""
    unit = float(row["coefficient"])
    scale = float(row["standardised"]) / unit if unit else 1.0
    return [float(row[name]) * scale for name in clients]


def _alone(rows: list[dict[str, str]]) -> str:
    """Coefficients of clients that have no shared model: a column for each of the first ones."""
    names = list(rows[0])
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names[: CLIENTS + 1])
    body = ""
    for row in rows[: SHOWN + 1]:
        cells = "".join(f"<td>{float(row[name]):.4g}</td>" for name in names[1 : CLIENTS + 1])
        body += f'<tr><th scope="row">{escape(row["feature"])}</th>{cells}</tr>'
    table = f'<table class="learnt"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    hidden = [(len(rows) - 1 - SHOWN, "features"), (len(names) - 1 - CLIENTS, "clients")]
    left = " and ".join(f"{count:,} more {what}" for count, what in hidden if count > 0)
    said = f"<p>{left} are in {COEFFICIENTS}.</p>" if left else ""
    return f'<p>Each client\'s own coefficients.</p><div class="scroll">{table}</div>{said}'
