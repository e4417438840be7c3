"""The reproductions by their ids, each read from its file in `tables/`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from fedax.errors import unknown
from fedax.papers.reproductions.description import (
    PAPERS,
    RELATIONS,
    Figure,
    PaperClaim,
    Quantity,
    Relation,
    Reproduction,
)


def ids() -> list[str]:
    """The ids, in order.

    >>> "apfl-table2" in ids()
    True
    """
    found = (entry.name for entry in (files("fedax.papers.reproductions") / "tables").iterdir())
    return sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml"))


@cache
def load(name: str) -> Reproduction:
    """A reproduction by its id.

    >>> load("apfl-table2").where
    'Table 2'
    >>> load("apfl-tabel2")
    Traceback (most recent call last):
    fedax.errors.FedaxError: unknown reproduction 'apfl-tabel2': did you mean 'apfl-table2'? Allowed: apfl-fig2, ...
    """
    if name not in ids():
        raise unknown("reproduction", name, ids())
    text = (files("fedax.papers.reproductions") / "tables" / f"{name}.toml").read_text(encoding="utf-8")
    return described(name, tomllib.loads(text))


def described(name: str, table: Mapping[str, Any]) -> Reproduction:
    """A reproduction from the table of its file."""
    plain = {key: value for key, value in table.items() if key not in ("quantity", "figures", "claim", "pooled")}
    common, parts = table.get("quantity", {}), [part["name"] for part in table.get("part", ())]
    if table.get("pooled"):
        parts = []
    if plain["paper"] not in PAPERS:
        raise unknown("paper", plain["paper"], PAPERS)
    figures = [figure for group in table.get("figures", ()) for figure in _figures(group, common)]
    claims = [claim for one in table.get("claim", ()) for claim in _claims(one, common, parts)]
    return Reproduction(id=name, **plain, figures=figures, claims=claims)


def _figures(group: Mapping[str, Any], common: Mapping[str, Any]) -> Iterator[Figure]:
    """One figure for each method of a group."""
    judged = {key: group[key] for key in ("tolerance", "factor", "aside", "scale") if key in group}
    about = {
        key: value for key, value in group.items() if key not in ("values", "tolerance", "factor", "aside", "scale")
    }
    for method, value in group["values"].items():
        yield Figure(quantity=Quantity(**{**common, **about, "method": method}), value=value, **judged)


def _claims(one: Mapping[str, Any], common: Mapping[str, Any], parts: Sequence[str]) -> Iterator[PaperClaim]:
    """One claim for each of the things that it is larger or smaller than; for each part, where it names none."""
    relation = next(known for known in RELATIONS if known in one)
    about = {k: v for k, v in one.items() if k not in ("says", "than", "aside", "scale", *RELATIONS)}
    several = one["than"] if isinstance(one["than"], list) else [one["than"]]
    for other in several:
        named = any("part" in side for side in (about, one[relation], other) if isinstance(side, Mapping))
        for part in [None] if named or not parts else parts:
            at = {**common, **about, **({} if part is None else {"part": part})}
            left, right = (_quantity(side, at) for side in (one[relation], other))
            assert isinstance(left, Quantity)
            says = one.get("says") or _sentence(left, relation, right)
            says = f"{part}: {says}" if part and "says" in one else says
            counted = {key: one[key] for key in ("aside", "scale") if key in one}
            yield PaperClaim(says=says, left=left, relation=relation, right=right, **counted)


def _quantity(side: Any, about: Mapping[str, Any]) -> Quantity | float:
    if isinstance(side, int | float):
        return float(side)
    return Quantity(**{**about, **({"method": side} if isinstance(side, str) else side)})


def _sentence(left: Quantity, relation: Relation, right: Quantity | float) -> str:
    words = RELATIONS[relation]
    if not isinstance(right, Quantity):
        return f"{left} {words} {right:g}"
    whole = "" if left.part is None else f"{left.part}: "
    if left.model_copy(update={"method": right.method}) == right:
        return f"{whole}{left.method} {words} {right.method} in {left.words}"
    other = str(right).removeprefix(whole)
    return f"{left} {words} {other}"
