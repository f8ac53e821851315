"""Processes that use the same cache directory, and the warnings of a cache."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

from fxad.errors import CacheWarning

ROOT = Path(__file__).resolve().parents[2]


def started(home: Path, code: str) -> subprocess.Popen[str]:
    """Starts a process with the cache in `home`, where a warning is an error."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "FXAD_CACHE_DIR": str(home)}
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def process(home: Path, code: str, status: int = 0) -> str:
    """Returns the output of such a process. It must end with `status`."""
    out, problem = (running := started(home, code)).communicate(timeout=300)
    assert running.returncode == status, problem
    return out.strip()


def warnings_of(work: Callable[[], object]) -> list[str]:
    """Returns the warnings of a piece of work, which must not raise."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    assert all([issubclass(w.category, CacheWarning) for w in caught])
    return [str(w.message) for w in caught]
