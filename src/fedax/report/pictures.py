"""Small pictures as SVG, which need no script: bars of coefficients, a calibration curve, residuals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

Points = Sequence[tuple[float, float]]
WIDE, HIGH, ROW = 420, 300, 20  # of a picture, and of a bar with its name
REACHES = (0.02, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, float("inf"))  # of an axis of probabilities, half of each a short number


def bars(rows: Sequence[tuple[str, float, Sequence[float]]], words: str) -> str:
    """A bar to the left or the right for each name, with a mark for each of some further values.

    >>> bars([("age", 0.5, [0.4])], "Coefficients").count("<rect")
    1
    """
    reach = max((abs(v) for _, value, more in rows for v in (value, *more)), default=0.0) or 1.0
    middle, half, high = 390, 190, ROW * len(rows) + 24
    parts = [f'<line x1="{middle}" y1="0" x2="{middle}" y2="{high - 20}" class="axis"/>']
    for i, (name, value, more) in enumerate(rows):
        y, size = i * ROW, abs(value) / reach * half
        left = middle - size if value < 0 else middle
        shown = name if len(name) <= 30 else f"{name[:28]}…"
        parts.append(f'<text x="190" y="{y + 14}" text-anchor="end">{escape(shown)}</text>')
        parts.append(f'<rect x="{left:.1f}" y="{y + 4}" width="{max(size, 0.5):.1f}" height="{ROW - 8}" class="bar"/>')
        parts += [f'<circle cx="{middle + v / reach * half:.1f}" cy="{y + 10}" r="2.5" class="mark"/>' for v in more]
    for v in (-reach, 0, reach):
        parts.append(f'<text x="{middle + v / reach * half:.0f}" y="{high - 6}" text-anchor="middle">{v:.2g}</text>')
    return _svg(middle + half + 20, high, parts, words)


def calibration(points: Points, words: str, share: str) -> str:
    """How often a prediction with some probability is right; on the diagonal if probabilities can be trusted.

    share: what stands beside the upright axis.

    >>> calibration([(0.1, 0.2), (0.5, 0.4)], "Calibration", "share of yes").count("<circle")
    2
    """
    largest = max((v for point in points for v in point), default=1.0)
    reach = next(round_number for round_number in REACHES if largest <= round_number)
    place = _frame((0.0, reach), (0.0, reach))
    drawn = [place(*point) for point in points]
    ends = (place(0, 0), place(reach, reach))
    parts = [f'<line x1="{ends[0][0]}" y1="{ends[0][1]}" x2="{ends[1][0]}" y2="{ends[1][1]}" class="axis dash"/>']
    parts.append(f'<polyline points="{" ".join(f"{x},{y}" for x, y in drawn)}" class="curve"/>')
    parts += [f'<circle cx="{x}" cy="{y}" r="3.5" class="mark"/>' for x, y in drawn]
    labels = _labels((0.0, reach), (0.0, reach), "predicted probability", share)
    return _svg(WIDE, HIGH, [*parts, *labels], words)


def residuals(points: Points, words: str) -> str:
    """What was measured less what was predicted, against the prediction.

    >>> residuals([(1.0, 0.2), (2.0, -0.1)], "Residuals").count("<circle")
    2
    """
    xs, ys = [x for x, _ in points], [y for _, y in points]
    along, up = _span(xs), max(map(abs, ys), default=1.0) or 1.0
    place = _frame(along, (-up, up))
    level = place(along[0], 0.0)[1]
    parts = [f'<line x1="50" y1="{level}" x2="{WIDE - 10}" y2="{level}" class="axis dash"/>']
    drawn = [place(x, y) for x, y in points]
    parts += [f'<circle cx="{x}" cy="{y}" r="1.6" class="mark faint"/>' for x, y in drawn]
    return _svg(WIDE, HIGH, [*parts, *_labels(along, (-up, up), "prediction", "measured − predicted")], words)


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values, default=0.0), max(values, default=1.0)
    return (low, high) if high > low else (low - 1, high + 1)


def _frame(along: tuple[float, float], up: tuple[float, float]) -> Callable[[float, float], tuple[float, float]]:
    """Where a point of these ranges is in the picture."""

    def place(x: float, y: float) -> tuple[float, float]:
        right = 50 + (x - along[0]) / (along[1] - along[0]) * (WIDE - 60)
        down = HIGH - 40 - (y - up[0]) / (up[1] - up[0]) * (HIGH - 50)
        return round(right, 1), round(down, 1)

    return place


def _labels(along: tuple[float, float], up: tuple[float, float], x: str, y: str) -> list[str]:
    place = _frame(along, up)
    parts = [f'<line x1="50" y1="{HIGH - 40}" x2="{WIDE - 10}" y2="{HIGH - 40}" class="axis"/>']
    parts.append(f'<line x1="50" y1="10" x2="50" y2="{HIGH - 40}" class="axis"/>')
    for share in (0, 0.5, 1):
        at_x, at_y = along[0] + share * (along[1] - along[0]), up[0] + share * (up[1] - up[0])
        parts.append(f'<text x="{place(at_x, up[0])[0]}" y="{HIGH - 24}" text-anchor="middle">{at_x:.3g}</text>')
        parts.append(f'<text x="45" y="{place(along[0], at_y)[1] + 4}" text-anchor="end">{at_y:.3g}</text>')
    parts.append(f'<text x="{(WIDE + 40) // 2}" y="{HIGH - 6}" text-anchor="middle">{escape(x)}</text>')
    turned = f'transform="rotate(-90 11 {HIGH // 2 - 20})"'
    parts.append(f'<text x="11" y="{HIGH // 2 - 20}" text-anchor="middle" {turned}>{escape(y)}</text>')
    return parts


def _svg(wide: int, high: int, parts: Sequence[str], words: str) -> str:
    size = f'viewBox="0 0 {wide} {high}" width="{wide}" height="{high}"'
    return f'<svg class="picture" role="img" aria-label="{escape(words)}" {size}>{"".join(parts)}</svg>'
