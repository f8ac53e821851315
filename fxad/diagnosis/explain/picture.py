"""The picture of memory over the schedule, as SVG: the bytes in use at each step, and the values that last longest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fxad.diagnosis.explain.memory_rows import Memory, MemoryRow
from fxad.diagnosis.explain.texts import amount, line_text
from fxad.support.tables import escaped

_WIDTH: Final = 720
_HEIGHT: Final = 200
_LEFT: Final = 92
_COLUMNS: Final = 320  # number of columns of the curve; several steps share one if there are more
_BARS: Final = 8


def curve_picture(memory: Memory, with_values: bool) -> str:
    """Return the picture; its colours are those of the page. `with_values` draws the largest values, whose steps are
    those of the curve."""
    curve = memory.curve
    most = max([*curve, 1])
    columns = min(_COLUMNS, len(curve))
    heights = [max(curve[len(curve) * k // columns : max(len(curve) * (k + 1) // columns, 1)]) for k in range(columns)]
    bars = _longest(memory.rows) if with_values else []
    tall = _HEIGHT + 46 + 22 * len(bars)
    wide = _WIDTH - _LEFT
    points = [f"{_LEFT},{_HEIGHT + 10}"]
    for k, height in enumerate(heights):
        y = _HEIGHT + 10 - _HEIGHT * height / most
        points += [f"{_LEFT + wide * k / columns:.1f},{y:.1f}", f"{_LEFT + wide * (k + 1) / columns:.1f},{y:.1f}"]
    points.append(f"{_WIDTH},{_HEIGHT + 10}")
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {tall}" role="img" aria-label="bytes in use over the steps of the schedule">',
    ]
    for quarter in range(5):
        y = _HEIGHT + 10 - _HEIGHT * quarter / 4
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" class="end">{amount(most * quarter / 4)}</text>')
    parts.append(f'<polygon class="area" points="{" ".join(points)}"/>')
    peak = curve.index(max(curve)) if curve else 0
    x = _LEFT + wide * (peak + 0.5) / max(1, len(curve))
    parts.append(f'<path class="peak" d="M{x:.1f} 10V{_HEIGHT + 14}"/>')
    anchor = "end" if x > _WIDTH / 2 else "start"
    parts.append(f'<text x="{x:.1f}" y="{_HEIGHT + 28}" class="{anchor}">peak: step {peak} of {len(curve)}</text>')
    for k, row in enumerate(bars):
        parts.append(_bar(row, _HEIGHT + 40 + 22 * k, wide / max(1, len(curve))))
    return "".join([*parts, "</svg>"])


def _longest(rows: Sequence[MemoryRow]) -> list[MemoryRow]:
    """Return the largest values for bars, in the order of their first step. Their steps are those of the picture."""
    known = [r for r in rows if r.steps != (0, 0) and r.readers]
    return sorted(known[:_BARS], key=lambda r: r.steps)


def _bar(row: MemoryRow, y: int, step: float) -> str:
    begin, end = row.steps
    x, w = _LEFT + begin * step, max(2.0, (end - begin + 1) * step)
    text = escaped(f"{amount(row.bytes)} {row.type} {line_text(row.line)}")
    inside = x < _WIDTH * 0.55
    at, anchor = (x + 4, "start") if inside else (min(x + w, _WIDTH) - 4, "end")
    return (
        f'<rect class="bar" x="{x:.1f}" y="{y}" width="{w:.1f}" height="16"/>'
        f'<text x="{at:.1f}" y="{y + 12}" class="{anchor}">{text}</text>'
    )
