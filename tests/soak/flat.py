"""Repeats one kind of call: `python -m tests.soak.flat calls 1000000`. Prints the memory of the process over time after
the first tenth of the calls, and fails if it grows."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from tests.soak.load import resident

GROWTH: Final = 8 << 20


def calls(n: int) -> None:
    """Calls with device arrays."""
    for _ in range(n):
        run(x, x)


def eager(n: int) -> None:
    """Eager operations."""
    for _ in range(n // 3):
        _ = x + x
        fnp.sin(x)
        _ = x[2]


def linked(n: int) -> None:
    """A program that runs as several units."""
    for _ in range(n // 4):
        in_units(x)


def donated(n: int) -> None:
    """Calls that donate arrays."""
    y = x + 0
    for _ in range(n):
        y = gives_up(y)


def reads(n: int) -> None:
    """Reads of values, in each way."""
    for _ in range(n // 3):
        np.asarray(x)
        np.from_dlpack(x)
        x.block_until_ready()


def transfers(n: int) -> None:
    """Transfers of NumPy arrays, copied and shared."""
    mine, theirs = np.ones(1000, np.float32), np.asarray(fx.asarray(np.ones(1000, np.float32)))
    for _ in range(n // 2):
        fx.asarray(mine)
        fx.asarray(theirs)


def programs(n: int) -> None:
    """Compiles, runs and drops programs."""
    for k in range(n):
        fx.jit(lambda v, k=k: fnp.sin(v) * float(k))(x)
        if k % 100 == 0:
            gc.collect()


KINDS: Final[dict[str, Callable[[int], None]]] = {
    f.__name__: f for f in (calls, eager, linked, donated, reads, transfers, programs)
}

if __name__ == "__main__":
    kind, count = KINDS[sys.argv[1]], int(sys.argv[2])
    fx.cache.configure(max_bytes=1 << 20)
    x: Any = fx.asarray(np.ones(8, np.float32))
    block = fx.jit(lambda v: fnp.tanh(v) * 2)
    run = fx.lower(fx.trace(lambda v, w: v + w, x, x)).compile()
    gives_up = fx.lower(fx.trace(lambda v: v + 1, x)).compile(donate="v")
    in_units = fx.lower(fx.trace(lambda v: block(block(v)), x), units=lambda body: True).compile()
    kind(count // 10)
    before = resident()
    kind(count - count // 10)
    grown = resident() - before
    print(f"{kind.__name__}: {count:,} times, {grown:,} bytes grown")
    assert grown < GROWTH, grown
    assert "jax" not in sys.modules
