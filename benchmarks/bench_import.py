"""Importing, in fresh interpreters. `python -m benchmarks.bench_import`."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.harness import Row, show

TIMED = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def seconds(modules: str) -> float:
    """How long a fresh interpreter takes to import `modules`."""
    done = subprocess.run([sys.executable, "-c", TIMED.format(modules)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def importing(name: str, ours: str, theirs: str, budget: float | None, rounds: int = 12) -> Row:
    """The best of interleaved rounds."""
    best = [float("inf")] * 2
    for _ in range(rounds):
        for k, modules in enumerate((ours, theirs)):
            best[k] = min(best[k], 1e3 * seconds(modules))
    return Row(name, best[0], best[1], budget, unit="ms")


def rows() -> list[Row]:
    """All measurements."""
    return [importing("import fxad", "fxad", "jax, jax.numpy", 0.5)]


if __name__ == "__main__":
    show("Importing", rows())
