"""Runs Python code in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys


def run_python(code: str, *args: object, ignore: str = "", **env: str) -> str:
    """Returns what the code prints. It must end without an error, and print nothing on stderr.

    A warning is an error, except those that begin with `ignore`. `env` has further environment variables.
    """
    filters = ["-W", "error", *(["-W", f"ignore:{ignore}"] if ignore else [])]
    command = [sys.executable, *filters, "-c", code, *map(str, args)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, env={**os.environ, **env})
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout
