"""The laws one by one, each in a process of its own, with a line for each.

    python -m tests.laws.deep                                  laws of derivatives and memory, 2,000 examples each
    python -m tests.laws.deep --examples 200 tests/custom      those of some files, with fewer

Exit status 1 when one fails; what it printed is in `deep-laws/NAME.txt` then.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOMS = ("tests/laws/test_memory_laws.py", "tests/custom", "tests/invertible", "tests/implicit")
TRANSFORMS = ("tests/laws/test_transform_laws.py", "tests/laws/test_stack_laws.py")


class _Collected:
    """Remembers the tests that hypothesis gives examples to, by the function that they call."""

    def __init__(self) -> None:
        self.laws: dict[str, None] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Called by pytest with all tests."""
        for item in items:
            if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                self.laws[item.nodeid.partition("[")[0]] = None


def laws(paths: Sequence[str]) -> list[str]:
    """The laws in files and folders, by the names that pytest has for them."""
    collected = _Collected()
    pytest.main(["--collect-only", "-qq", "--no-header", "-p", "no:cacheprovider", *paths], plugins=[collected])
    return list(collected.laws)


def held(law: str, examples: int) -> tuple[bool, str]:
    """Run a law; whether it holds, and what was printed."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", law],
        check=False,
        env={**os.environ, "FXAD_PROFILE": "deep", "FXAD_EXAMPLES": str(examples)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode == 0, done.stdout


def say(line: str) -> None:
    """A line, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run them all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("paths", nargs="*", default=[p for p in (*ROOMS, *TRANSFORMS) if Path(p).exists()])
    args = parser.parse_args()
    failed = 0
    for law in laws(args.paths):
        start = time.perf_counter()
        holds, printed = held(law, args.examples)
        took = time.perf_counter() - start
        say(f"{'holds' if holds else 'FAILS'}  {args.examples:>6} examples  {took:>6.0f} s  {law}")
        if not holds:
            failed += 1
            out = Path("deep-laws") / f"{law.replace('/', '.').replace('::', '.')}.txt"
            out.parent.mkdir(exist_ok=True)
            out.write_text(printed, encoding="utf-8")
    say(f"{failed} of the laws fail" if failed else "all laws hold")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
