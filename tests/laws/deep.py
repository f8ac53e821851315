"""The laws of some files, with a line for each when it ends.

    python -m tests.laws.deep                                  laws of derivatives and memory, 2,000 examples each
    python -m tests.laws.deep --examples 200 tests/custom      those of some files, with fewer
    python -m tests.laws.deep --shares tests/mask              as many as in `make deep`, where laws of every primitive
                                                               get fewer
    python -m tests.laws.deep --jobs 4                         as many at a time; without, one for each core

A law is a test that hypothesis gives examples to, or one marked `law`, which makes such a test for each parameter. The
parameters of a test share a process: to start one and collect its file takes as long as hundreds of examples. Exit
status 1 when a law fails; what its process printed is in `deep-laws/NAME.txt` then.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Final

import pytest

LAWS_OF_FEATURES = ("tests/laws/test_memory_laws.py", "tests/custom", "tests/invertible", "tests/implicit")
TRANSFORMS = ("tests/laws/test_transform_laws.py", "tests/laws/test_stack_laws.py")


class _Collected:
    """Collects the laws among the tests, by their pytest names."""

    def __init__(self) -> None:
        self.laws: dict[str, None] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """The pytest hook that gets all collected tests."""
        for item in items:
            if item.get_closest_marker("law"):
                self.laws[item.nodeid] = None
            elif getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                self.laws[item.nodeid.partition("[")[0]] = None


def laws(paths: Sequence[str]) -> list[str]:
    """Returns the laws in files and folders, by their pytest names."""
    collected = _Collected()
    pytest.main(["--collect-only", "-qq", "--no-header", "-p", "no:cacheprovider", *paths], plugins=[collected])
    return list(collected.laws)


def groups(laws: Sequence[str]) -> list[list[str]]:
    """Groups the laws by their test. The laws of one test run in one process."""
    found: dict[str, list[str]] = {}
    for law in laws:
        found.setdefault(law.partition("[")[0], []).append(law)
    return list(found.values())


_ENDED: Final = re.compile(r"(tests/\S+::.*) (PASSED|FAILED|ERROR)\b")


def tried(laws: Sequence[str], examples: int | None) -> int:
    """Runs laws in a process of their own. Returns the number of those that fail.

    `examples` is the number for each law; None takes the shares of the deep profile.
    """
    env = {**os.environ, "FXAD_PROFILE": "deep", **({} if examples is None else {"FXAD_EXAMPLES": str(examples)})}
    command = [sys.executable, "-u", "-m", "pytest", "-vv", "-p", "no:cacheprovider", "-m", "not soak", *laws]
    failed, printed, start = 0, [], time.perf_counter()
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            printed.append(line)
            if ended := _ENDED.match(line):
                now = time.perf_counter()
                word = "holds" if ended[2] == "PASSED" else "FAILS"
                failed += word == "FAILS"
                say(f"{word}  {examples or 'deep':>6} examples  {now - start:>6.0f} s  {ended[1]}")
                start = now
    if process.returncode:
        name = laws[0].partition("[")[0]
        say(f"ended with exit status {process.returncode}: {name}")
        out = Path("deep-laws") / f"{name.replace('/', '.').replace('::', '.')}.txt"
        out.parent.mkdir(exist_ok=True)
        out.write_text("".join(printed), encoding="utf-8")
    return max(failed, int(process.returncode != 0))


def say(line: str) -> None:
    """Prints a line without buffering."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Runs all laws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("paths", nargs="*", default=[p for p in (*LAWS_OF_FEATURES, *TRANSFORMS) if Path(p).exists()])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--shares", action="store_true", help="as many examples as in `make deep`")
    args = parser.parse_args()
    failed = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        examples = None if args.shares else args.examples
        for found in as_completed([pool.submit(tried, group, examples) for group in groups(laws(args.paths))]):
            failed += found.result()
    say(f"{failed} of the laws fail" if failed else "all laws hold")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
