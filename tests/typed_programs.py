"""The Python blocks of the pages as modules, for type checkers: one module for each page.

A block stands at its line of the page, so a message of a type checker names the line of the page. Blocks that are shown
as output, and not run, are no Python blocks.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def module_of(text: str) -> str:
    """The Python blocks of a page, each at its line, with empty lines between them."""
    lines: list[str] = []
    for block in BLOCK.finditer(text):
        start = text.count("\n", 0, block.start("code"))
        lines += [""] * (start - len(lines)) + block["code"].splitlines()
    return "\n".join([*lines, ""]) if lines else ""


HAS_JAX = importlib.util.find_spec("jax") is not None


def write_pages(folder: Path) -> dict[str, Path]:
    """Write the modules of all pages with Python blocks; return the page of each file name. Pages that import jax are
    left out where it is not installed."""
    pages: dict[str, Path] = {}
    for page in PAGES:
        code = module_of(page.read_text(encoding="utf-8"))
        if code and (HAS_JAX or "\nimport jax\n" not in code):
            name = re.sub(r"\W", "_", page.stem.lower()) + ".py"
            assert name not in pages, "two pages have one name"
            (folder / name).write_text(code, encoding="utf-8")
            pages[name] = page
    return pages
