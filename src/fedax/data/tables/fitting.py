"""The numbers that a preparation takes from training rows, as sums over the places that hold rows.

A place answers questions on its own rows with counts and sums; the answers are added up, and nothing else leaves the
place. So the preparation is the same whether all rows are in one table, at twelve hospitals, or behind a network.

    counts      of each category, by value                                          one question
    bins        how many values share some leading bits, by the next eight          eight questions
    sums        of the numbers, of rows and of missing cells                        one question
    squares     of the deviations from the means                                    one question

The median is exact: a float64 is 64 bits that can be put in the order of the numbers, and each question on bins
settles eight of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedax.data.tables.applying import NUMERIC, Cells, is_missing

Floats = NDArray[np.float64]
Question = Mapping[str, Any]
Answer = dict[str, Any]  #: arrays, and for categories Counters: what can be added
Ask = Callable[[Question], Answer]  #: the sum of all places' answers
BITS = 8  # that a question on bins settles
STEPS = 64 // BITS


def answer(question: Question, cells: Cells) -> Answer:
    """One place's answers to questions on its own rows.

    >>> answer({"ask": "counts", "columns": ["blood"]}, {"blood": np.array(["A", "B", "A", None], object)})
    {'blood': Counter({'A': 2, 'B': 1})}
    """
    columns = question["columns"]
    if question["ask"] == "counts":
        return {name: Counter(value for value in cells[name] if value is not None) for name in columns}
    if question["ask"] == "bins":
        step, leading = question["step"], question["leading"]
        return {name: _bins(cells[name], step, leading[name]) for name in columns}
    if question["ask"] == "sums":
        return {name: _sums(cells[name]) for name in columns}
    means, fills = question["means"], question["fills"]
    return {name: _squares(cells[name], means[name], fills[name]) for name in columns}


def asker(places: Iterable[Cells]) -> Ask:
    """A function that asks some places a question and adds up their answers."""
    held = list(places)

    def ask(question: Question) -> Answer:
        total: Answer = {}
        for cells in held:
            for name, said in answer(question, cells).items():
                total[name] = total[name] + said if name in total else said
        return total

    return ask


def fit(columns: Sequence[Mapping[str, Any]], ask: Ask) -> list[dict[str, Any]]:
    """The columns with what encoding them needs: fill values, means and scales, categories.

    A column says its `name`, its `kind`, how it is filled (`by`: "median", "most_frequent" or None for not at all) and
    whether it has a `flag`.

    >>> age = {"name": "age", "kind": "number", "by": "median", "flag": False}
    >>> here, there = {"age": np.array([20.0, np.nan])}, {"age": np.array([40.0, 90.0])}
    >>> fit([age], asker([here, there]))[0]["fill"]
    40.0
    """
    texts = [c["name"] for c in columns if c["kind"] == "category"]
    numeric = [c for c in columns if c["kind"] in NUMERIC]
    names = [c["name"] for c in numeric]
    counts = ask({"ask": "counts", "columns": texts}) if texts else {}
    sums = ask({"ask": "sums", "columns": names}) if names else {}
    fills = _fills(numeric, sums, ask)
    means = {}
    for name in names:
        known, missing, total = sums[name]
        fill = fills.get(name)
        whole = total if fill is None else total + missing * fill
        rows = known if fill is None else known + missing
        means[name] = float(whole / rows) if rows else 0.0
    about = {"ask": "squares", "columns": names, "means": means, "fills": {name: fills.get(name) for name in names}}
    squares = ask(about) if names else {}
    fitted = []
    for column in columns:
        name, flag = column["name"], bool(column["flag"])
        kept = {key: value for key, value in column.items() if key not in ("by", "most")}
        if column["kind"] == "category":
            values, other = _categories(counts[name], column.get("most"))
            frequent = _most_frequent(counts[name]) if column["by"] else None
            fitted.append({**kept, "fill": frequent, "flag": flag, "values": values, "other": other})
            continue
        rows, sum_of_squares = squares[name]
        scale = float(np.sqrt(sum_of_squares / rows)) if rows else 0.0
        # a column that does not vary in the training rows becomes 0
        scale = scale if scale > 1e-12 * max(1.0, abs(means[name])) else 1.0
        fitted.append({**kept, "fill": fills.get(name), "flag": flag, "mean": means[name], "scale": scale})
    return fitted


def _fills(numeric: Sequence[Mapping[str, Any]], sums: Answer, ask: Ask) -> dict[str, float]:
    """The value that fills missing cells of each column of numbers; 0 for a column without a single value."""
    medians = [c["name"] for c in numeric if c["by"] and c["kind"] != "boolean"]
    found = _medians(medians, {name: int(sums[name][0]) for name in medians}, ask) if medians else {}
    for column in numeric:
        if column["by"] and column["kind"] == "boolean":
            known, _, total = sums[column["name"]]
            found[column["name"]] = float(2 * total > known)
    return found


def _medians(names: Sequence[str], counts: Mapping[str, int], ask: Ask) -> dict[str, float]:
    """The exact medians; of an even number of values the mean of the two in the middle."""
    ranks = {(name, side): (counts[name] - 1 + side) // 2 for name in names for side in (0, 1) if counts[name]}
    leading = dict.fromkeys(ranks, 0)
    for step in range(STEPS):
        asked = {name: sorted({leading[key] for key in ranks if key[0] == name}) for name in names if counts[name]}
        said = ask({"ask": "bins", "columns": list(asked), "step": step, "leading": asked})
        for key, rank in ranks.items():
            name = key[0]
            bins = said[name][asked[name].index(leading[key])]
            below = np.cumsum(bins)
            digit = int(np.searchsorted(below, rank, side="right"))
            ranks[key] = rank - int(below[digit - 1] if digit else 0)
            leading[key] = leading[key] << BITS | digit
    pairs = {name: [_number(leading[name, side]) for side in (0, 1)] for name in names if counts[name]}
    return {name: sum(pairs[name]) / 2 if name in pairs else 0.0 for name in names}


def _bins(values: Any, step: int, leading: Sequence[int]) -> NDArray[np.int64]:
    """For each prefix of 8 * step bits, the number of values with each pattern of the next eight bits."""
    keys = _ordered(values)
    after = np.uint64(64 - BITS * (step + 1))
    digit = (keys >> after) & np.uint64(2**BITS - 1)
    made = []
    for prefix in leading:
        inside = digit if not step else digit[(keys >> (after + np.uint64(BITS))) == np.uint64(prefix)]
        made.append(np.bincount(inside.astype(np.int64), minlength=2**BITS))
    return np.stack(made)


def _ordered(values: Any) -> NDArray[np.uint64]:
    """Numbers as integers in the same order, without those that are missing."""
    floats = np.asarray(values, np.float64)
    bits = (floats[~np.isnan(floats)] + 0.0).view(np.uint64)  # -0 is 0
    sign = np.uint64(1 << 63)
    return np.where(bits & sign, ~bits, bits | sign)


def _number(key: int) -> float:
    bits = key ^ (1 << 63) if key >> 63 else key ^ (2**64 - 1)
    return float(np.array(bits, np.uint64).view(np.float64))


def _sums(values: Any) -> Floats:
    missing = is_missing(values)
    return np.array([len(values) - missing.sum(), missing.sum(), np.nansum(values, dtype=np.float64)])


def _squares(values: Any, mean: float, fill: float | None) -> Floats:
    """Rows, and their squared deviations from the mean; missing cells count where they are filled."""
    missing = is_missing(values)
    known = float(np.nansum((np.asarray(values, np.float64) - mean) ** 2))
    filled = 0.0 if fill is None else missing.sum() * (fill - mean) ** 2
    rows = len(values) - (missing.sum() if fill is None else 0)
    return np.array([rows, known + filled])


def _most_frequent(counts: Counter[str]) -> str | None:
    """The most frequent value, of equally frequent ones the first."""
    most = max(counts.values(), default=0)
    return min((value for value, count in counts.items() if count == most), default=None)


def _categories(counts: Counter[str], most: int | None) -> tuple[list[str], bool]:
    """The most frequent values in sorted order, up to a limit, and whether rows with other values are left."""
    if most is None or len(counts) <= most:
        return sorted(counts), False
    kept = sorted(counts, key=lambda value: (-counts[value], value))[:most]
    return sorted(kept), True
