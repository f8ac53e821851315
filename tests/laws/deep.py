"""The laws one by one, each in a process of its own, with a line for each.

    python -m tests.laws.deep                                  laws of derivatives and memory, 2,000 examples each
    python -m tests.laws.deep --examples 200 tests/custom      those of some files, with fewer
    python -m tests.laws.deep --jobs 4                         as many at a time; without, one for each core

A law is a test that hypothesis gives examples to, or one marked `law`, which makes such a test for each parameter.
Exit status 1 when one fails; what it printed is in `deep-laws/NAME.txt` then.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import final

import pytest

ROOMS = ("tests/laws/test_memory_laws.py", "tests/custom", "tests/invertible", "tests/implicit")
TRANSFORMS = ("tests/laws/test_transform_laws.py", "tests/laws/test_stack_laws.py")


class _Collected:
    """Remembers the laws among the tests, by the names that pytest has for them."""

    def __init__(self) -> None:
        self.laws: dict[str, None] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Called by pytest with all tests."""
        for item in items:
            if item.get_closest_marker("law"):
                self.laws[item.nodeid] = None
            elif getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                self.laws[item.nodeid.partition("[")[0]] = None


def laws(paths: Sequence[str]) -> list[str]:
    """The laws in files and folders, by the names that pytest has for them."""
    collected = _Collected()
    pytest.main(["--collect-only", "-qq", "--no-header", "-p", "no:cacheprovider", *paths], plugins=[collected])
    return list(collected.laws)


@final
@dataclass(frozen=True)
class Outcome:
    """How a law fared."""

    law: str
    holds: bool
    seconds: float
    printed: str


def tried(law: str, examples: int) -> Outcome:
    """Run a law in a process of its own."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not soak", law],
        check=False,
        env={**os.environ, "FXAD_PROFILE": "deep", "FXAD_EXAMPLES": str(examples)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return Outcome(law, done.returncode == 0, time.perf_counter() - start, done.stdout)


def say(line: str) -> None:
    """A line, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run them all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("paths", nargs="*", default=[p for p in (*ROOMS, *TRANSFORMS) if Path(p).exists()])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    failed = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        for future in as_completed([pool.submit(tried, law, args.examples) for law in laws(args.paths)]):
            found = future.result()
            verdict = "holds" if found.holds else "FAILS"
            say(f"{verdict}  {args.examples:>6} examples  {found.seconds:>6.0f} s  {found.law}")
            if not found.holds:
                failed += 1
                out = Path("deep-laws") / f"{found.law.replace('/', '.').replace('::', '.')}.txt"
                out.parent.mkdir(exist_ok=True)
                out.write_text(found.printed, encoding="utf-8")
    say(f"{failed} of the laws fail" if failed else "all laws hold")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
