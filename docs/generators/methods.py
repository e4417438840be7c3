"""The methods' cards: formulas, what a method sends and keeps, its identities, its numbers, its reproductions."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Iterator
from typing import Any

from formulas import typeset


def pages() -> dict[str, str]:
    """A page a method, and the list of all."""
    from fedax.algorithms import ALGORITHMS
    from fedax.cli.listing import _known_costs

    measured = _known_costs(ALGORITHMS)
    where = _reproductions()
    found = {
        f"reference/methods/{name.lower()}.md": "\n".join(_card(name, cls, measured[name], where.get(name, {})))
        for name, cls in ALGORITHMS.items()
    }
    return found | {"reference/methods/index.md": "\n".join(_index(ALGORITHMS, measured))}


def _index(methods: dict[str, Any], measured: Any) -> Iterator[str]:
    yield "# Methods\n\nd is the number of parameters, K the number of local steps. What a method sends, keeps and"
    yield "computes in a client's round is measured on a traced round, as `fedax list` does.\n"
    yield "| method | kind | a client keeps | floats down, up | gradients | reference |\n|---|---|---|---|---|---|"
    from fedax.cli.listing import kind

    for name, cls in methods.items():
        kept, sent, gradients = measured[name]
        yield f"| [{name}]({name.lower()}.md) | {kind(cls)} | {kept} | {sent} | {gradients} | {cls.reference} |"


def _card(name: str, cls: Any, costs: Any, reproductions: dict[str, str]) -> Iterator[str]:
    from fedax.cli.listing import kind

    text = inspect.cleandoc(sys.modules[cls.__module__].__doc__ or "")
    title, _, body = text.partition("\n\n")
    kept, sent, gradients = costs
    yield f"# {name}\n\n{' '.join(title.split())}\n"
    yield from ("## Formulas\n", typeset(body), "")
    yield "## A client's round\n\n| a client keeps | floats down, up | gradients | kind |\n|---|---|---|---|"
    yield f"| {kept} | {sent} | {gradients} | {kind(cls)} |\n"
    yield "Measured on a traced round; d is the number of parameters, K that of local steps.\n"
    yield "## Identities\n"
    claims = [claim.text for claim in cls.claims] if isinstance(cls.claims, tuple) else []
    yield from (f"- {name} {text}." for text in claims)
    yield (
        f"\n`fedax check {name}` checks them on random problems, with the contract's properties.\n"
        if claims
        else f"The method claims none; `fedax check {name}` checks the contract's properties.\n"
    )
    if "theorem" in vars(cls):
        yield f"\n[`fedax advise`](../commands.md#fedax-advise) proposes {name}'s step sizes by its theorem.\n"
    yield "## Reproductions\n"
    if reproductions:
        yield from (f"- [{i}](../../reproductions.md#{i.lower()}): {about}" for i, about in reproductions.items())
    else:
        yield "No reproduction of a paper's experiment has this method."
    yield "\n## Numbers\n\n| field | default |\n|---|---|"
    for field in dataclasses.fields(cls):
        default = "required" if field.default is dataclasses.MISSING else f"`{field.default!r}`"
        yield f"| `{field.name}` | {default} |"
    yield f"\n## In Python\n\n::: {cls.__module__}.{name}"
    yield f'    options:\n      heading: "{name}"\n      show_source: true\n'
    yield f"Reference: {cls.reference}."


def _reproductions() -> dict[str, dict[str, str]]:
    """The reproductions that each method is part of, with what came out at the larger scale that was run."""
    from fedax.algorithms import ALGORITHMS
    from fedax.papers.reproductions import ids, load
    from fedax.papers.reproductions.docs_page import summary

    by_lower = {name.lower(): name for name in ALGORITHMS}
    found: dict[str, dict[str, str]] = {}
    for one in map(load, ids()):
        tables = (one.experiment or {}).get("algorithm", [])
        for table in tables if isinstance(tables, list) else [tables]:
            name = by_lower.get(str(table.get("name", "")).lower())
            if name is not None:
                outcome = summary(one, "paper")
                said = summary(one, "small") if outcome.startswith("not run") else outcome
                scale = "small scale" if outcome.startswith("not run") else "the paper's scale"
                found.setdefault(name, {})[one.id] = f"{one.title}; {scale}: {said}"
    return found
