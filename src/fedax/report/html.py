"""The report as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Any

from fedax.errors import FedaxError
from fedax.report import packing
from fedax.report.chart_data import embed, payload
from fedax.report.columns import STRUCTURE, parse
from fedax.report.conclusion import conclusion
from fedax.report.fairness import held_equal, tuned
from fedax.report.glossary import glossary
from fedax.report.honest import constant_row, unbalanced
from fedax.report.markup import best, cell, swatch
from fedax.report.personal_html import protocol_tables
from fedax.report.quality_html import learnt_section, quality_section
from fedax.report.recorded_sweep import read_sweep
from fedax.report.sentences import obstacles, summary, title, warnings
from fedax.report.summary import Group, Spread, columns, flat, groups, read_all, rows, short
from fedax.runs.files import REPORT, write_whole
from fedax.runs.reading import RecordedRun

SCRIPTS = ("unpack.js", "target.js", "charts.js", "composite.js", "numbers.js", "script.js")


def write(folder: Path, run_folders: Iterable[Path]) -> Path:
    """Write `folder/report.html` on some runs, whole or not at all."""
    return combine(Path(folder) / REPORT, {Path(folder): run_folders})


def combine(path: Path, places: Mapping[Path, Iterable[Path]]) -> Path:
    """Write one page on the runs of some directories, whole or not at all.

    places: the run directories of each; it may hold the sweep that they are the best of, or how they were tuned.
    """
    runs = read_all(folder for folders in places.values() for folder in folders)
    if not runs:
        raise FedaxError("a report needs at least one run directory")
    content = page(runs, list(places)).encode("utf-8", errors="replace")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    except OSError as error:
        raise FedaxError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def page(runs: list[RecordedRun], folders: Sequence[Path]) -> str:
    """The whole page; folders may hold the sweeps that the runs are the best of."""

    found = groups(runs)
    comparable = not obstacles(found)
    sweeps = [sweep for folder in folders if (sweep := read_sweep(folder, _labels(folder, found)))]
    protocol = protocol_tables(found, comparable=comparable)
    return Template(own("template.html")).substitute(
        title=escape(title(runs)),
        style=own("style.css"),
        conclusion="".join(f"<p>{escape(sentence)}</p>" for sentence in conclusion(found)),
        setting=escape(summary(runs)),
        warnings=_warnings([*warnings(found, folders), *unbalanced(found)]),
        fairness=_fairness([held_equal(runs), *_tuned(folders)]),
        table=_table(found, comparable),
        glossary=glossary(found, personal=bool(protocol)),
        protocol=protocol,
        quality=quality_section(found) + learnt_section(found),
        sweep_words="".join(f"<p>{escape(words)}</p>" for sweep in sweeps for words in sweep.pop("words")),
        clients_title="Personal models" if protocol else "Client by client",
        clients_hidden="" if protocol else "hidden",
        experiment=_fields(found, lambda name: not name.startswith("versions.")),
        versions=_fields(found, lambda name: name.startswith("versions.")),
        data=packing.pack(embed(payload(found) | {"comparable": comparable, "sweeps": sweeps})),
        plotly=packing.plotly(),
        script="".join(map(own, SCRIPTS)),
    )


def own(name: str) -> str:
    """A file of this room: the style, a script or a template."""
    return (files("fedax.report") / name).read_text(encoding="utf-8")


def _warnings(sentences: list[str]) -> str:
    if not sentences:
        return ""
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f'<section class="warning" role="status"><h2>Please note</h2><ul>{items}</ul></section>'


def _labels(folder: Path, found: list[Group]) -> list[str]:
    """The methods' own labels; empty for those without a run in this directory."""
    here = folder.resolve()
    inside = [any(here in run.folder.resolve().parents for run in group.runs) for group in found]
    return [group.runs[0].label if there else "" for group, there in zip(found, inside, strict=True)]


def _tuned(folders: Sequence[Path]) -> list[str]:
    """How methods were tuned; with several directories each sentence names its own."""
    of = [f"In {folder}: " if len(folders) > 1 else "" for folder in folders]
    return [where + words for where, folder in zip(of, folders, strict=True) for words in tuned(folder)]


def _fairness(sentences: list[str]) -> str:
    return "".join(f'<p class="hint">{escape(sentence)}</p>' for sentence in sentences if sentence)


def _table(found: list[Group], comparable: bool) -> str:
    """The summary, with the best finished value of each column in bold if the runs can be compared."""
    lines = rows(found)
    titles = columns(lines)
    over = "".join(
        f'<th scope="colgroup" colspan="{len(list(keys))}">{kind}</th>' for kind, keys in groupby(titles, _kind)
    )
    heads = "".join(f'<th scope="col">{escape(_head(key, titles[key]))}</th>' for key in titles)
    judged = [line for line, group in zip(lines, found, strict=True) if comparable and group.finished]
    bold = {key: best(key, [line[key].mean for line in judged if key in line]) for key in titles}
    body = "".join(_line(i, line, bold) for i, line in enumerate(lines))
    constant = constant_row(found) if comparable else None
    if constant is not None:
        cells = "".join(cell(key, constant[key].mean if key in constant else None, None, None) for key in titles)
        name = escape(constant["algorithm"])
        body += f'<tr class="constant"><th scope="row">{name}</th>{cells}<td>–</td><td>constant</td></tr>'
    return (
        '<table class="summary"><thead>'
        f'<tr><td></td>{over}<td colspan="2"></td></tr>'
        f'<tr><th scope="col">Method</th>{heads}<th scope="col">Rounds</th>'
        f'<th scope="col">Status</th></tr></thead><tbody>{body}</tbody></table>'
    )


def _kind(key: str) -> str:
    metric = parse(key)
    if key in STRUCTURE:
        return "Structure"
    return "Cost" if metric is None else "Personal models" if metric.personal else "Shared model"


def _head(key: str, title: str) -> str:
    metric = parse(key)
    return short(metric) if metric else title


def _line(place: int, line: dict[str, Any], bold: dict[str, str | None]) -> str:
    cells = ""
    ended = line["status"] == "finished"
    for key in bold:
        value = line.get(key)
        mean, half = (value.mean, value.half) if isinstance(value, Spread) else (None, None)
        half = None if key == "seconds" else half  # the first seed compiles for all, so an interval says nothing
        cells += cell(key, mean, half, bold[key] if ended else None)
    alert = "" if ended else ' class="unfinished"'
    status = line["status"] if line["runs"] == 1 or "," in line["status"] else f"{line['runs']} {line['status']}"
    reached = "–" if line["round"] is None else line["round"]
    return (
        f'<tr><th scope="row">{swatch(place)}{escape(line["algorithm"])}</th>{cells}'
        f"<td>{reached}</td><td{alert}>{escape(status)}</td></tr>"
    )


def _fields(found: list[Group], wanted: Callable[[str], bool]) -> str:
    """The experiment's fields: one column where all methods agree, else one column a method."""
    found = [group for group in found if group.runs[0].experiment]
    settings = [[flat(run.experiment) for run in group.runs] for group in found]
    names = [name for name in dict.fromkeys(n for runs in settings for one in runs for n in one) if wanted(name)]
    if not names:
        return "<p>Not recorded.</p>"
    values = {name: [_joined(one.get(name, "") for one in runs) for runs in settings] for name in names}
    same = [name for name in names if len(set(values[name])) == 1]
    apart = [name for name in names if name not in same]
    heads = "".join(f'<th scope="col">{escape(group.label)}</th>' for group in found)
    shared = _rows((name, values[name][:1]) for name in same)
    shown = f'<table class="fields"><tbody>{shared}</tbody></table>' if same else ""
    if apart:
        own = _rows((name, values[name]) for name in apart)
        shown += f'<table class="fields"><thead><tr><td></td>{heads}</tr></thead><tbody>{own}</tbody></table>'
    return shown


def _joined(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys("none" if value is None else str(value) for value in values))


def _rows(items: Iterable[tuple[str, list[str]]]) -> str:
    return "".join(
        f'<tr><th scope="row">{escape(name.removeprefix("versions."))}</th>'
        f"{''.join(f'<td>{escape(value)}</td>' for value in values)}</tr>"
        for name, values in items
    )
