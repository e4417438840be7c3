"""docs/reproductions.md and its pictures, from the tables and the saved results alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fedax.papers.reproductions import verdict
from fedax.papers.reproductions.description import PAPERS, SCALES, Gap, Reproduction, Scale
from fedax.papers.reproductions.drawn import picture
from fedax.papers.reproductions.library import ids, load
from fedax.papers.reproductions.saving import ReproductionResult, saved
from fedax.papers.reproductions.verdict import Verdict, judge, seeds
from fedax.papers.reproductions.wording import HEADINGS, answer, behind, cells, tolerance

NOT_RUN = "not run yet"
KINDS: tuple[Verdict, ...] = ("agrees", "same order", "does not")
AT: dict[Scale, str] = {"small": "small scale", "paper": "the paper's scale"}
KNOWN_BY = {
    "proof": "a proof",
    "measurement": "a measurement",
    "scale": "not decided at this scale",
    "open": "**not known**",
}
HEAD = """# Reproductions

Every experiment of the papers that Fedax was built from, our numbers beside the paper's. `fedax reproduce ID` runs one
at small scale, within ten minutes on two cores; `--scale paper` runs the paper's own setting. `fedax reproduce --page
docs/reproductions.md` writes this page and its pictures from saved results and runs nothing.
"""
FOOT = """`fedax reproduce` lists them all. The same command goes on with what was stopped. `--set
algorithm.FedProx.mu=0.1` shows what would come out in another setting than the paper's. A number after ± is the
half-width of the 95 % interval over seeds; without one there was a single seed. Hours of what was not run are rough,
within a factor of two or so, from a few steps of it or of its network on two cores (`benchmarks/hours.py`).
"""


def page(folder: str = "reproductions") -> str:
    """The whole page, whose pictures are in a folder beside it.

    >>> page().splitlines()[0]
    '# Reproductions'
    """
    every = [load(name) for name in ids()]
    rule = (verdict.__doc__ or "").split("\n\n", 1)[1]
    lines = [HEAD, "## What came out", "", *_counts(every), "", *_folded("The rule, and how to read the numbers")]
    lines += [rule, FOOT, "</details>", "", "## Why the rest differs", "", *_gaps(every)]
    lines += ["", "## All of them", "", *_overview(every)]
    for reproduction in every:
        lines += ["", *_section(reproduction, folder)]
    return "\n".join(lines) + "\n"


def pictures() -> dict[str, str]:
    """Each reproduction's picture as the text of an SVG file, by id.

    >>> pictures()["apfl-table1"][:4]
    '<svg'
    """
    drawn = {name: picture(load(name)) for name in ids()}
    return {name: found[0] for name, found in drawn.items() if found is not None}


def outcome(one: Reproduction, scale: Scale) -> Verdict | None:
    """The verdict at a scale; None where nothing that counts was run."""
    found = saved(one.id, scale)
    kind = None if found is None else judge(one, scale, found.measured).verdict
    return None if kind == "not measured" else kind


def summary(reproduction: Reproduction, scale: Scale) -> str:
    """What came out at a scale, in a line.

    >>> summary(load("fedspeed-table1"), "paper")
    'not run (about 300 hours on two cores)'
    """
    found = saved(reproduction.id, scale)
    if found is None and scale == "paper" and reproduction.hours is not None:
        return f"not run (about {reproduction.hours:,g} hours on two cores)"
    if found is None:
        return NOT_RUN
    judgement = judge(reproduction, scale, found.measured)
    return f"{judgement.verdict}{', as far as run' if judgement.missing else ''} ({judgement.counts})"


def _counts(every: list[Reproduction]) -> Iterator[str]:
    """How many agree, stand in order and do not: in a sentence for each scale, then paper by paper."""
    for scale in SCALES:
        found = Counter(str(kind) for one in every if (kind := outcome(one, scale)) is not None)
        agree, order, rest = (found[kind] for kind in KINDS)
        run = f"all {len(every)}" if found.total() == len(every) else f"{found.total()} of {len(every)}"
        yield (
            f"- At {AT[scale]}, where {run} were run: **{agree} agree** with the paper, "
            f"**{order} stand in its order**, **{rest} do not**."
        )
    yield ""
    yield from _table(("paper", "reproductions", *(f"{AT[s]}: agree / in order / do not" for s in SCALES)))
    for key, title in PAPERS.items():
        mine = [one for one in every if one.paper == key]
        cells = []
        for scale in SCALES:
            found = Counter(str(outcome(one, scale) or "not run") for one in mine)
            missing = f", {found['not run']} not run" * bool(found["not run"])
            cells.append(" / ".join(str(found[kind]) for kind in KINDS) + missing)
        yield _line((title, str(len(mine)), *cells))


def _gaps(every: list[Reproduction]) -> Iterator[str]:
    """The reasons as a table; reproductions without one are named below it."""
    some = [(one, gap) for one in every for gap in one.gap]
    if some:
        yield from _table(("what differs", "why", "known by"))
        for one, gap in some:
            yield _line((f"{_link(one)}{_at(gap)}: {gap.what}", gap.why, _evidence(gap)))
    silent = [_link(one) for one in every if not one.gap and any(outcome(one, s) == "does not" for s in SCALES)]
    if silent:
        yield from ("", f"No reason is known yet for {', '.join(silent)}.")


def _at(gap: Gap) -> str:
    return "" if gap.scale is None else f" at {AT[gap.scale]}"


def _evidence(gap: Gap) -> str:
    return f"{KNOWN_BY[gap.known_by]}{': ' * bool(gap.evidence)}{gap.evidence}"


def _overview(every: list[Reproduction]) -> Iterator[str]:
    yield from _table(("id", "what", "data", "small scale", "the paper's scale"))
    for one in every:
        yield _line((_link(one), one.title, ", ".join(one.data) or "–", *(_short(one, scale) for scale in SCALES)))


def _short(one: Reproduction, scale: Scale) -> str:
    """The verdict, the seeds and the counts."""
    found = saved(one.id, scale)
    if found is None:
        return summary(one, scale)
    count = seeds(found.measured)
    return f"{summary(one, scale)}, {count} {'seed' if count == 1 else 'seeds'}"


def _link(one: Reproduction) -> str:
    return f"[{one.id}](#{one.id.lower()})"


def _section(one: Reproduction, folder: str) -> Iterator[str]:
    yield f"## {one.id}"
    yield from ("", f"{one.title}. {PAPERS[one.paper]}, {one.where}. {one.note}".rstrip(), "")
    if one.reading:
        yield from (f"**A reading of the paper, not its print:** {one.reading}", "")
    yield from (f"- At {AT[scale]}: {_short(one, scale)}." for scale in SCALES)
    for gap in one.gap:
        yield f"- {gap.what}{_at(gap)}: {gap.why} Known by {_evidence(gap)}"
    drawn = picture(one)
    if drawn is not None:
        yield from ("", f"![{drawn[1]}]({folder}/{one.id}.svg)", "", drawn[1])
    yield from ("", *_departures(one))
    results = {AT[scale]: found for scale in SCALES if (found := saved(one.id, scale)) is not None}
    if len(results) == 2 and one.at("small") == one.at("paper"):
        results = {"either scale": results[AT["paper"]]}
    for where, found in results.items():
        yield from ("", *_folded(f"All numbers at {where}"), *_outcome(one, found), "", "</details>")


def _departures(one: Reproduction) -> Iterator[str]:
    results = [saved(one.id, scale) for scale in SCALES]
    small, paper = (
        one.departing(scale, seeds(found.measured) if found else None)
        for scale, found in zip(SCALES, results, strict=True)
    )
    yield from _folded("Departures from the paper")
    yield from (f"- {words}" for words in small if words in paper)
    yield from (f"- At small scale: {words}" for words in small if words not in paper)
    yield from (f"- At the paper's scale: {words}" for words in paper if words not in small)
    yield from ("", "</details>")


def _outcome(one: Reproduction, found: ReproductionResult) -> Iterator[str]:
    judgement = judge(one, found.scale, found.measured)
    if found.note:
        yield from (found.note, "")
    if judgement.rows:
        yield from _table(HEADINGS)
        yield from (_line(cells(row)) for row in judgement.rows)
        yield from ("", f"Tolerance: {', '.join(dict.fromkeys(tolerance(row.figure) for row in judgement.rows))}.", "")
    if judgement.claims:
        yield from _table(("the paper's claim", "holds here"))
        yield from (_line((claim.claim.says, answer(claim))) for claim in judgement.claims)
    if numbers := behind(one, found.scale, found.measured):
        yield from ("", *_table(("behind the claims", "ours")))
        yield from map(_line, numbers)


def _folded(title: str) -> tuple[str, str]:
    """The beginning of a folded block, whose end is </details>."""
    return f"<details><summary>{title}</summary>", ""


def _table(titles: tuple[str, ...]) -> list[str]:
    return [_line(titles), "|" + "---|" * len(titles)]


def _line(words: tuple[str, ...]) -> str:
    return "| " + " | ".join(word.replace("|", "/") for word in words) + " |"
