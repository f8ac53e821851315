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

BLOCK = runpy.run_path(str(Path(__file__).with_name("outputs.py")))["BLOCK"]


def drawn(page: Path) -> str:
    """Return the picture of the plan that the first blocks of a page make."""
    module = ModuleType("page")
    for block in list(BLOCK.finditer(page.read_text(encoding="utf-8")))[:2]:
        with redirect_stdout(io.StringIO()):
            exec(compile(block["code"], str(page), "exec"), module.__dict__)
    return str(module.lowered.units.svg())


def main(args: Sequence[str]) -> int:
    """Draws the plan of a page."""
    page, picture = map(Path, args)
    picture.write_text(drawn(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
