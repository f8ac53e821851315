"""Draws the picture of a plan in docs/tutorial-compiling.md: live bytes at each step, coloured by unit.

python docs/picture.py docs/tutorial-compiling.md docs/images/plan.svg    of `lowered` in the page's first blocks
"""

from __future__ import annotations

import io
import runpy
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from xml.sax.saxutils import escape

from fxad.units.plan import Plan

BLOCK = runpy.run_path(str(Path(__file__).with_name("outputs.py")))["BLOCK"]
COLOURS = ("#4878a8", "#c8c8c8", "#d58a4a", "#9c9c9c", "#6a9f5b", "#b5b5b5", "#8a6fae", "#d8d8d8")
WIDTH, HEIGHT, LEFT, TOP = 26, 180, 60, 24


def svg(plan: Plan) -> str:
    """Returns a picture with a bar for each step, as high as the bytes that are live while it runs."""
    most = max(s.live_bytes for s in plan.steps)
    wide = LEFT + WIDTH * len(plan.steps) + 230
    tall = TOP + HEIGHT + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{tall}"',
        ' font-family="sans-serif" font-size="11">',
        f'<rect width="{wide}" height="{tall}" fill="white"/>',
    ]
    for part in range(5):
        y = TOP + HEIGHT - part * HEIGHT / 4
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH * len(plan.steps)}" y1="{y}" y2="{y}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{part * most / 4 / 2**20:.1f} MiB</text>')
    for k, step in enumerate(plan.steps):
        high = HEIGHT * step.live_bytes / most
        x, y = LEFT + WIDTH * k + 2, TOP + HEIGHT - high
        colour = COLOURS[step.unit % len(COLOURS)]
        parts.append(f'<rect x="{x}" y="{y:.1f}" width="{WIDTH - 4}" height="{high:.1f}" fill="{colour}"/>')
        parts.append(f'<text x="{x + WIDTH / 2 - 2}" y="{TOP + HEIGHT + 14}" text-anchor="middle">{step.unit}</text>')
    middle = LEFT + WIDTH * len(plan.steps) / 2
    parts.append(f'<text x="{middle}" y="{TOP + HEIGHT + 34}" text-anchor="middle">unit of each step, in order</text>')
    x = LEFT + WIDTH * len(plan.steps) + 16
    for k, unit in enumerate(plan.units):
        y = TOP + 18 * k
        text = f"{k} {unit.body.name}: {unit.equations} equations, {unit.uses} {'use' if unit.uses == 1 else 'uses'}"
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{COLOURS[k % len(COLOURS)]}"/>')
        parts.append(f'<text x="{x + 18}" y="{y + 10}">{escape(text)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def drawn(page: Path) -> str:
    """Returns the picture of the plan that the first blocks of a page make."""
    module = ModuleType("page")
    for block in list(BLOCK.finditer(page.read_text(encoding="utf-8")))[:2]:
        with redirect_stdout(io.StringIO()):
            exec(compile(block["code"], str(page), "exec"), module.__dict__)
    return svg(module.lowered.units)


def main(args: Sequence[str]) -> int:
    """Draws the plan of a page."""
    page, picture = map(Path, args)
    picture.write_text(drawn(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
