"""Long runs in processes of their own, so that a crash is a failure: `make soak`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.soak

SECONDS = float(os.environ.get("FXAD_SOAK_SECONDS", "600"))
CALLS = int(os.environ.get("FXAD_SOAK_CALLS", "1000000"))
PROGRAMS = int(os.environ.get("FXAD_SOAK_PROGRAMS", "20000"))


def soak(module: str, *args: object) -> None:
    """Runs a module of this folder, and shows its output."""
    command = [sys.executable, "-X", "faulthandler", "-W", "error", "-m", f"tests.soak.{module}", *map(str, args)]
    # XLA logs each call that it rejects. The test measures live memory of the process: an allocator with one arena for
    # each thread keeps freed memory of programs that threads compile, 40 KB for each, until every arena has been used
    # often.
    settings = {"TF_CPP_MIN_LOG_LEVEL": "3", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, **settings})
    print(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")


def test_everything_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        soak("load", SECONDS)


@pytest.mark.parametrize("kind", ["calls", "eager", "linked", "donated", "reads", "transfers"])
def test_memory_is_flat(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        soak("flat", kind, CALLS)


def test_memory_is_flat_where_programs_are_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        soak("flat", "programs", PROGRAMS)
