"""Threads that call a small program, beside one thread. `python -m benchmarks.bench_threads`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import fxad as fx
from benchmarks.harness import Row, show

THREADS = 8
CALLS = 250  # shorter than a few time slices: see `benchmarks.harness.race`


def turn(call: Callable[[], object], threads: int) -> float:
    """Returns microseconds for a call: the time of all threads, which start together, divided by their calls."""
    start, end = threading.Barrier(threads + 1), threading.Barrier(threads + 1)

    def work() -> None:
        start.wait()
        for _ in range(CALLS):
            call()
        end.wait()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for w in workers:
        w.start()
    start.wait()
    began = time.perf_counter()
    end.wait()
    took = time.perf_counter() - began
    for w in workers:
        w.join()
    return 1e6 * took / (threads * CALLS)


def best(calls: list[Callable[[], object]], threads: int, rounds: int = 80) -> list[float]:
    """Returns the best turn of each contest; they take turns."""
    out = [float("inf")] * len(calls)
    for call in calls:
        call()
    for _ in range(rounds):
        for k, call in enumerate(calls):
            out[k] = min(out[k], turn(call, threads))
    return out


def throughput() -> list[Row]:
    """A call in 8 threads, and in one: the total time divided by the number of calls."""
    x, z = fx.asarray(np.ones(4, np.float32)), jnp.ones(4, np.float32)
    run, f = fx.jit(lambda x, y: x + y), jax.jit(lambda x, y: x + y)
    a, b = fx.asarray(np.ones((64, 64), np.float32)), jnp.ones((64, 64), np.float32)
    product, g = fx.jit(lambda x, y: (x @ y).sum()), jax.jit(lambda x, y: (x @ y).sum())
    rows = []
    for name, ours, theirs in (
        ("x + y, 4 elements", lambda: run(x, x), lambda: f(z, z)),
        ("sum(x @ y), 64 x 64", lambda: product(a, a), lambda: g(b, b)),
    ):
        for n in (1, THREADS):
            mine, peer = best([ours, theirs], n)
            rows.append(Row(f"threads: {name}, a call by {n}", mine, peer))
    return rows


def rows() -> list[Row]:
    """All measurements."""
    return throughput()


if __name__ == "__main__":
    show("Threads", rows())
