"""Runs the Python blocks of a page. The `text` block after a block has its output, which a test checks.

python docs/outputs.py docs/tutorial-lax.md ...    run pages, and write the output of their blocks
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?P<output>\n```text\n.*?^```\n)?", re.MULTILINE | re.DOTALL)


def refreshed(page: Path) -> str:
    """Return the text of a page with the current outputs of its blocks, which run in order, in one namespace."""
    text = page.read_text(encoding="utf-8")
    module, before = ModuleType("page"), sys.modules.get("page")
    sys.modules["page"] = module  # dataclasses and pickle look up the classes of a page in this module
    parts, end = [], 0
    try:
        with np.printoptions(), folders_removed():
            for block in BLOCK.finditer(text):
                printed = _run(page, text.count("\n", 0, block.start("code")), block["code"], module)
                parts.append(text[end : block.end("code")] + "```\n")
                parts.append(f"\n```text\n{printed}```\n" if block["output"] and printed else "")
                end = block.end()
    finally:
        sys.modules.pop("page")
        if before is not None:
            sys.modules["page"] = before
    return "".join([*parts, text[end:]])


@contextmanager
def folders_removed() -> Iterator[None]:
    """Remove temporary folders of the blocks at the end."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory() as home:
        tempfile.tempdir = home
        try:
            yield
        finally:
            tempfile.tempdir = before


def _run(page: Path, line: int, code: str, module: ModuleType) -> str:
    out = io.StringIO()
    name = page.resolve().relative_to(ROOT).as_posix()  # outputs contain it, so it does not depend on the folder
    with redirect_stdout(out):  # empty lines, so that tracebacks have the line numbers of the page
        exec(compile("\n" * line + code, name, "exec"), module.__dict__)
    return "".join([f"{printed.rstrip()}\n" for printed in out.getvalue().rstrip().splitlines()])


def main(pages: Sequence[str]) -> int:
    """Write the outputs of pages."""
    for page in map(Path, pages):
        page.write_text(refreshed(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
