"""Compiled library functions on a million elements and 500 x 500 matrices; and the time to compile a scan.

There are no budgets: both libraries pass the work to XLA or LAPACK, so the times show whether they request the same
work. `python -m benchmarks.bench_functions`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxad as fx
from benchmarks.bench_models import best_of
from benchmarks.harness import Row, show
from benchmarks.models.library import OURS, Library
from benchmarks.models.networks import rnn
from benchmarks.models.theirs import THEIRS

LARGE = 1_000_000
SIDE = 500


def _values() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    root = rng.standard_normal((SIDE, SIDE)).astype(np.float32)
    return {
        "key": np.array([0, 42], np.uint32),
        "vector": rng.standard_normal(LARGE).astype(np.float32),
        "signal": rng.standard_normal(1 << 20).astype(np.float32),
        "positive": root @ root.T / SIDE + np.eye(SIDE, dtype=np.float32),
        "matrix": root,
    }


# name: the operand, and the function
FUNCTIONS: dict[str, tuple[str, Callable[[Library, Any], Any]]] = {
    f"random.normal, {LARGE:,}": ("key", lambda f, x: f.random.normal(x, (LARGE,))),
    f"sort, {LARGE:,}": ("vector", lambda f, x: f.np.sort(x)),
    f"cumsum, {LARGE:,}": ("vector", lambda f, x: f.np.cumsum(x)),
    f"cholesky, {SIDE} x {SIDE}": ("positive", lambda f, x: f.np.linalg.cholesky(x)),
    f"solve, {SIDE} x {SIDE}": ("matrix", lambda f, x: f.np.linalg.solve(x, x[0])),
    f"eigh, {SIDE} x {SIDE}": ("positive", lambda f, x: f.np.linalg.eigh(x)[0]),
    f"fft.rfft, {1 << 20:,}": ("signal", lambda f, x: f.np.fft.rfft(x)),
}


def running(name: str, value: Any, f: Callable[[Library, Any], Any], seconds: float) -> Row:
    """Compiles a function with both libraries, checks that the results agree, and races them."""
    mine, theirs = fx.asarray(value), jnp.asarray(value)
    ours = fx.lower(fx.trace(lambda x: f(OURS, x), mine)).compile()
    peer = jax.jit(lambda x: f(THEIRS, x)).lower(theirs).compile()
    x, y = np.asarray(ours(mine)), np.asarray(peer(theirs))
    np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-3 * float(np.max(np.abs(y))))
    ms = best_of(lambda: ours(mine).block_until_ready(), lambda: peer(theirs).block_until_ready(), seconds)
    return Row(f"run: {name}", *ms, unit="ms")


def compiling(steps: int = 1000, rounds: int = 3) -> Row:
    """Time from the function to the executable: value_and_grad of a recurrent network in `scan`, best of turns."""
    model = rnn(steps, scanned=True)
    ours_in = [fx.tree.map(fx.asarray, a) for a in (model.params, model.x, model.y)]
    theirs_in = [jax.tree.map(jnp.asarray, a) for a in (model.params, model.x, model.y)]

    def mine() -> object:
        fx.cache.clear()
        return fx.lower(fx.value_and_grad(fx.trace(lambda p, x, y: model.loss(OURS, p, x, y), *ours_in))).compile()

    def peer() -> object:
        jax.clear_caches()
        return jax.jit(jax.value_and_grad(lambda p, x, y: model.loss(THEIRS, p, x, y))).lower(*theirs_in).compile()

    best = [float("inf")] * 2
    for _ in range(rounds):
        for k, make in enumerate((mine, peer)):
            start = time.perf_counter()
            make()
            best[k] = min(best[k], 1e3 * (time.perf_counter() - start))
    return Row(f"trace to executable: value_and_grad of {model.name}", best[0], best[1], unit="ms")


def rows(seconds: float = 2.0) -> list[Row]:
    """All measurements."""
    values = _values()
    ran = [running(name, values[of], f, seconds) for name, (of, f) in FUNCTIONS.items()]
    return [*ran, compiling()]


if __name__ == "__main__":
    show("Compiled functions", rows())
