"""Pictures of reproductions as SVG files of a few kilobytes: the same text for the same numbers.

`panels` draws the curves of a paper's figure from our runs, `beside` our numbers beside the paper's, a line each, and
`against` many of them as points, the paper's number across and ours up.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal
from xml.sax.saxutils import escape

Lines = Iterator[str]
INK, PALE = "#222222", "#d0d0d0"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6a3d9a", "#7f7f7f", "#b15928")
ROW, GAP, TEXT = 17, 14, 11


@dataclasses.dataclass(frozen=True)
class Number:
    """A number of ours, with the half-width of its interval and the paper's number where it prints one."""

    name: str
    ours: float
    half: float | None = None
    paper: float | None = None


@dataclasses.dataclass(frozen=True)
class Axis:
    """From numbers to places along `length` pixels."""

    low: float
    high: float
    length: float
    log: bool = False

    @classmethod
    def over(cls, values: Sequence[float], length: float, log: bool | None = None) -> Axis:
        """The axis that holds these numbers with a little room; logarithmic where they span factors of a hundred.

        >>> axis = Axis.over([1.0, 3.0], 100.0)
        >>> axis.log, round(axis.at(2.0))
        (False, 50)
        """
        known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
        low, high = min(known), max(known)
        if log is None:
            log = low > 0 and high > 100 * low
        if log:
            known = [value for value in known if value > 0] or [1.0]
            low, high = min(known), max(known)
            room = (high / low) ** 0.05 if high > low else 2.0
            return cls(low / room, high * room, length, log=True)
        room = 0.05 * (high - low) or abs(high) * 0.1 or 1.0
        return cls(low - room, high + room, length)

    def at(self, value: float) -> float:
        """Where a number is; one that is beyond the axis is at its end."""
        if self.log:
            value = max(value, self.low)
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(max(share, 0.0), 1.0) * self.length

    def ticks(self) -> list[float]:
        """A few round numbers.

        >>> Axis(0.2, 10.4, 100.0).ticks(), Axis(0.02, 2000.0, 100.0, log=True).ticks()
        ([2.0, 4.0, 6.0, 8.0, 10.0], [0.1, 10.0, 1000.0])
        """
        if self.log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            if first < last:
                return [10.0**e for e in range(first, last + 1, max(1, (last - first) // 3 + 1))]
            return [self.low, self.high]
        rough = (self.high - self.low) / 6
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(s * unit for s in (1, 2, 5, 10) if s * unit >= rough)
        return [round(step * n, 12) for n in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


def panels(
    curves: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], x: str, y: str, log: Sequence[str] = ()
) -> str:
    """Curves by panel and name; x and y are the words at the axes."""
    names = list(dict.fromkeys(name for panel in curves.values() for name in panel))
    colour = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    dash = {name: "" if i < len(COLOURS) else ' stroke-dasharray="4 2"' for i, name in enumerate(names)}
    across = min(3, len(curves))
    width, height, left = 250, 170, 52

    def draw() -> Lines:
        for n, (title, panel) in enumerate(curves.items()):
            at_x, at_y = n % across * (width + left + GAP) + left, n // across * (height + 58) + 24
            points = [point for curve in panel.values() for point in curve]
            sides = (
                Axis.over([p[0] for p in points], width, "x" in log),
                Axis.over([p[1] for p in points], height, "y" in log),
            )
            yield f'<g transform="translate({at_x} {at_y})">'
            yield _text(width / 2, -8, title, "middle")
            yield from _frame(*sides, width, height)
            for name, curve in panel.items():
                path = " ".join(
                    f"{sides[0].at(a):.1f},{height - sides[1].at(b):.1f}" for a, b in curve if _shows(b, sides[1])
                )
                yield f'<polyline points="{path}" fill="none" stroke="{colour[name]}" stroke-width="1.5"{dash[name]}/>'
            yield _text(width / 2, height + 30, x, "middle")
            yield _text(-40, height / 2, y, "middle", turned=True)
            yield "</g>"
        top = rows * (height + 58) + 8
        for i, name in enumerate(names):
            at_x, at_y = i % 3 * 290 + 20, top + i // 3 * ROW
            stroke = f'stroke="{colour[name]}" stroke-width="2"{dash[name]}'
            yield f'<line x1="{at_x}" x2="{at_x + 22}" y1="{at_y}" y2="{at_y}" {stroke}/>'
            yield _text(at_x + 28, at_y + 4, name)

    rows = -(-len(curves) // across)
    whole = max(across * (width + left + GAP) + GAP, 290 * min(3, len(names)))
    return _whole(whole, rows * (height + 58) + 8 + -(-len(names) // 3) * ROW + GAP, draw())


def beside(tables: Mapping[str, Sequence[Number]]) -> str:
    """Numbers a line each, in a table for each of the quantities: ours a dot, the paper's a ring."""
    left, width = 330, 380
    heights = [len(numbers) * ROW + 56 for numbers in tables.values()]

    def draw() -> Lines:
        top = 34.0
        for (title, numbers), height in zip(tables.items(), heights, strict=True):
            inside = len(numbers) * ROW
            ends = [end for n in numbers for end in (n.ours - (n.half or 0), n.ours + (n.half or 0), n.ours, n.paper)]
            axis = Axis.over([end for end in ends if end is not None], width)
            yield f'<g transform="translate({left} {top})">'
            yield _text(width / 2, -10, title, "middle")
            yield from _frame(axis, None, width, inside)
            for i, number in enumerate(numbers):
                yield from _dot(number, axis, (i + 0.5) * ROW)
            yield "</g>"
            top += height

    key = _key() if any(n.paper is not None for numbers in tables.values() for n in numbers) else ""
    return _whole(left + width + 60, int(sum(heights)) + 24, draw(), key)


def against(tables: Mapping[str, Sequence[Number]]) -> str:
    """Many numbers as points in a square for each of the quantities: the paper's across, ours up."""
    side, left = 300, 60

    def draw() -> Lines:
        for n, (title, numbers) in enumerate(tables.items()):
            known = [(number.paper, number.ours) for number in numbers if number.paper is not None]
            axis = Axis.over([value for pair in known for value in pair], side)
            yield f'<g transform="translate({n * (side + left + GAP) + left} 30)">'
            yield _text(side / 2, -10, title, "middle")
            yield from _frame(axis, axis, side, side)
            yield f'<line x1="0" y1="{side}" x2="{side}" y2="0" stroke="{PALE}"/>'
            for paper, ours in known:
                if math.isfinite(ours):
                    yield _circle(axis.at(paper), side - axis.at(ours), 3)
            yield _text(side / 2, side + 32, "the paper", "middle")
            yield _text(-46, side / 2, "here", "middle", turned=True)
            yield "</g>"

    return _whole(len(tables) * (side + left + GAP) + GAP, side + 72, draw())


def _shows(value: float, axis: Axis) -> bool:
    return math.isfinite(value) and (value > 0 or not axis.log)


def _dot(number: Number, axis: Axis, y: float) -> Lines:
    yield _text(-10, y + 4, number.name, "end")
    if number.paper is not None:
        yield _circle(axis.at(number.paper), y, 4.5, filled=False)
    if not math.isfinite(number.ours):
        yield _text(axis.length + 6, y + 4, "never" if math.isinf(number.ours) else "diverged")
        return
    if number.half:
        low, high = axis.at(number.ours - number.half), axis.at(number.ours + number.half)
        yield f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}" stroke="{COLOURS[0]}" stroke-width="1.5"/>'
    yield _circle(axis.at(number.ours), y, 3)


def _circle(x: float, y: float, r: float, *, filled: bool = True) -> str:
    """A dot of ours, or a ring of the paper's."""
    look = f'fill="{COLOURS[0]}" fill-opacity="0.7"' if filled else f'fill="none" stroke="{COLOURS[1]}"'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:g}" {look}/>'


def _key() -> str:
    ring = _circle(14, 12, 4.5, filled=False)
    dot = _circle(104, 12, 3)
    return ring + _text(24, 16, "the paper") + dot + _text(112, 16, "here, with its 95 % interval")


def _frame(across: Axis, up: Axis | None, width: float, height: float) -> Lines:
    for tick in across.ticks():
        at = across.at(tick)
        yield f'<line x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{height}" stroke="{PALE}" stroke-width="0.5"/>'
        yield _text(at, height + 14, f"{tick:g}", "middle")
    for tick in up.ticks() if up is not None else ():
        at = height - up.at(tick) if up is not None else 0.0
        yield f'<line x1="0" x2="{width}" y1="{at:.1f}" y2="{at:.1f}" stroke="{PALE}" stroke-width="0.5"/>'
        yield _text(-5, at + 4, f"{tick:g}", "end")
    yield f'<rect width="{width}" height="{height}" fill="none" stroke="{INK}" stroke-width="0.7"/>'


def _text(
    x: float, y: float, words: str, anchor: Literal["start", "middle", "end"] = "start", *, turned: bool = False
) -> str:
    about = "" if anchor == "start" else f' text-anchor="{anchor}"'
    about += f' transform="rotate(-90 {x:g} {y:g})"' if turned else ""
    return f'<text x="{x:g}" y="{y:g}"{about}>{escape(words)}</text>'


def _whole(width: float, height: float, drawn: Lines, key: str = "") -> str:
    style = f'font-family="sans-serif" font-size="{TEXT}" fill="{INK}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" {style}>'
    return "\n".join(
        [head, '<rect width="100%" height="100%" fill="white"/>', *([key] if key else []), *drawn, "</svg>", ""]
    )
