"""The picture in the tutorial shows the plan in the tutorial."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_picture_is_fresh(nothing_remembered: None) -> None:
    picture = runpy.run_path(str(ROOT / "docs" / "picture.py"))
    drawn = picture["drawn"](ROOT / "docs/tutorial-compiling.md")
    assert drawn == (ROOT / "docs/images/plan.svg").read_text(encoding="utf-8"), "run `make docs`"
