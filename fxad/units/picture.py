"""The picture of a plan: the bytes that are live at each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fxad.support.tables import escaped

_COLOURS: Final = ("#4878a8", "#c8c8c8", "#d58a4a", "#9c9c9c", "#6a9f5b", "#b5b5b5", "#8a6fae", "#d8d8d8")
_WIDTH: Final = 26  # of a bar
_HEIGHT: Final = 180  # of the highest bar
_LEFT: Final = 60
_TOP: Final = 24


def picture(units: Sequence[tuple[str, int, int]], steps: Sequence[tuple[int, int]]) -> str:
    """Return the picture as SVG: a bar for each step, as high as the bytes that are live while it runs, in the colour
    of its unit. `units` have a name, equations and uses, `steps` the number of a unit and live bytes."""
    most = max([live for _, live in steps])
    wide = _LEFT + _WIDTH * len(steps) + 230
    tall = _TOP + _HEIGHT + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{tall}"',
        ' font-family="sans-serif" font-size="11">',
        f'<rect width="{wide}" height="{tall}" fill="white"/>',
    ]
    for part in range(5):
        y = _TOP + _HEIGHT - part * _HEIGHT / 4
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH * len(steps)}" y1="{y}" y2="{y}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{part * most / 4 / 2**20:.1f} MiB</text>')
    for k, (unit, live) in enumerate(steps):
        high = _HEIGHT * live / most
        x, y = _LEFT + _WIDTH * k + 2, _TOP + _HEIGHT - high
        colour = _COLOURS[unit % len(_COLOURS)]
        parts.append(f'<rect x="{x}" y="{y:.1f}" width="{_WIDTH - 4}" height="{high:.1f}" fill="{colour}"/>')
        parts.append(f'<text x="{x + _WIDTH / 2 - 2}" y="{_TOP + _HEIGHT + 14}" text-anchor="middle">{unit}</text>')
    middle = _LEFT + _WIDTH * len(steps) / 2
    parts.append(
        f'<text x="{middle}" y="{_TOP + _HEIGHT + 34}" text-anchor="middle">unit of each step, in order</text>'
    )
    x = _LEFT + _WIDTH * len(steps) + 16
    for k, (name, equations, uses) in enumerate(units):
        y = _TOP + 18 * k
        text = f"{k} {name}: {equations} equations, {uses} {'use' if uses == 1 else 'uses'}"
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{_COLOURS[k % len(_COLOURS)]}"/>')
        parts.append(f'<text x="{x + 18}" y="{y + 10}">{escaped(text)}</text>')
    return "\n".join([*parts, "</svg>\n"])
