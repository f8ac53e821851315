"""Processes that use the same cache directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
