"""Importing, in fresh interpreters. `python -m benchmarks.bench_import`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from benchmarks.harness import Row, show

TIMED = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def importing(name: str, ours: str, theirs: str, budget: float, rounds: int = 15) -> Row:
    """The best of interleaved rounds. Bytecode is compiled before, as in an installed package."""
    with tempfile.TemporaryDirectory() as cache:
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {"PYTHONPYCACHEPREFIX": cache}

        def seconds(modules: str) -> float:
            command = [sys.executable, "-c", TIMED.format(modules)]
            return float(subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout)

        best = [float("inf")] * 2
        for k in range(-1, rounds):
            times = [seconds(ours), seconds(theirs)]
            if k >= 0:
                best = [min(b, 1e3 * t) for b, t in zip(best, times, strict=True)]
    return Row(name, best[0], best[1], budget, unit="ms")


def rows() -> list[Row]:
    """All measurements."""
    return [importing("import fxad", "fxad", "jax, jax.numpy", 0.5)]


if __name__ == "__main__":
    show("Importing", rows())
