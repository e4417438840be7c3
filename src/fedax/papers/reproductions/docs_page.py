"""docs/reproductions.md, from the tables and the saved results alone."""

from __future__ import annotations

from collections.abc import Iterator

from fedax.papers.reproductions import verdict
from fedax.papers.reproductions.description import PAPERS, SCALES, Reproduction, Scale, ids, load
from fedax.papers.reproductions.saving import ReproductionResult, saved
from fedax.papers.reproductions.verdict import judge, seeds
from fedax.papers.reproductions.wording import HEADINGS, answer, behind, cells, tolerance

NOT_RUN = "not run yet"
HEAD = """# Reproductions

Every experiment of the papers that Fedax was built from, the paper's figures beside ours. `fedax reproduce` lists
them, `fedax reproduce ID` runs one at small scale (within ten minutes on two cores) and prints its tables, `--scale
paper` runs the paper's own setting; the same command goes on with what was stopped. `--set algorithm.FedProx.mu=0.1`
shows what would come out in another setting than the paper's. This page is written by `fedax reproduce --page
docs/reproductions.md` from saved results. A number after ± is the half-width of the 95 % interval over seeds; without
one there was a single seed. Hours of what was not run are rough, within a factor of two or so, from a few steps of it
or of its network on two cores (`benchmarks/hours.py`).
"""


def page() -> str:
    """The whole page.

    >>> page().splitlines()[0]
    '# Reproductions'
    """
    every = [load(name) for name in ids()]
    rule = (verdict.__doc__ or "").split("\n\n", 1)[1]
    lines = [HEAD, "## The rule", "", rule, "## All of them", "", *_overview(every)]
    for reproduction in every:
        lines += ["", *_section(reproduction)]
    return "\n".join(lines) + "\n"


def _overview(every: list[Reproduction]) -> Iterator[str]:
    yield from _table(("id", "what", "data", "small scale", "the paper's scale"))
    for one in every:
        link = f"[{one.id}](#{one.id.lower()})"
        yield _line((link, one.title, ", ".join(one.data) or "–", *(summary(one, scale) for scale in SCALES)))


def summary(reproduction: Reproduction, scale: Scale) -> str:
    """What came out at a scale, in a line.

    >>> from fedax.papers.reproductions.description import load
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


def _section(one: Reproduction) -> Iterator[str]:
    yield f"## {one.id}"
    yield from ("", f"{one.title}. {PAPERS[one.paper]}, {one.where}. {one.note}".rstrip())
    yield from ("", "Departures from the paper:", "")
    results = {scale: saved(one.id, scale) for scale in SCALES}
    small, paper = (one.departing(scale, seeds(found.measured) if found else 1) for scale, found in results.items())
    yield from (f"- {words}" for words in small if words in paper)
    yield from (f"- At small scale: {words}" for words in small if words not in paper)
    yield from (f"- At the paper's scale: {words}" for words in paper if words not in small)
    for (scale, found), title in zip(results.items(), ("Small scale", "The paper's scale"), strict=True):
        yield from ("", f"**{title}**: {summary(one, scale)}")
        if found is not None:
            yield from _outcome(one, found)


def _outcome(one: Reproduction, found: ReproductionResult) -> Iterator[str]:
    judgement = judge(one, found.scale, found.measured)
    if found.note:
        yield from ("", found.note)
    if judgement.rows:
        yield from ("", *_table(HEADINGS))
        yield from (_line(cells(row)) for row in judgement.rows)
        yield from ("", f"Tolerance: {', '.join(dict.fromkeys(tolerance(row.figure) for row in judgement.rows))}.")
    if judgement.claims:
        yield from ("", *_table(("the paper's claim", "holds here")))
        yield from (_line((claim.claim.says, answer(claim))) for claim in judgement.claims)
    if numbers := behind(one, found.scale, found.measured):
        yield from ("", *_table(("behind the claims", "ours")))
        yield from map(_line, numbers)


def _table(titles: tuple[str, ...]) -> list[str]:
    return [_line(titles), "|" + "---|" * len(titles)]


def _line(words: tuple[str, ...]) -> str:
    return "| " + " | ".join(word.replace("|", "/") for word in words) + " |"
