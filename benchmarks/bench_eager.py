"""Eager operations on small arrays: the cost of a call. `python -m benchmarks.bench_eager`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

import fxad as fx
from benchmarks.harness import Row, compare, show
from benchmarks.models.library import OURS, Given, given
from benchmarks.models.theirs import THEIRS

OPERATIONS: dict[str, Callable[[Given], Any]] = {
    "x + 1": lambda o: o.x + 1,
    "x * y": lambda o: o.x * o.y,
    "x @ y, 8 x 8": lambda o: o.x @ o.y,
    "x[3]": lambda o: o.x[3],
    "x[1:3]": lambda o: o.x[1:3],
    "sum(x)": lambda o: o.np.sum(o.x),
    "sin(x)": lambda o: o.np.sin(o.x),
    "where(x < y, x, y)": lambda o: o.np.where(o.x < o.y, o.x, o.y),
    "reshape(x, (4, 16))": lambda o: o.np.reshape(o.x, (4, 16)),
}


def rows() -> list[Row]:
    """All measurements."""
    rng = np.random.default_rng(0)
    values = [rng.standard_normal((8, 8)).astype(np.float32) for _ in range(2)]
    ours, theirs = given(OURS, *map(fx.asarray, values)), given(THEIRS, *map(jnp.asarray, values))
    return [
        compare(f"eager: {name}", lambda f=f: f(ours), lambda f=f: f(theirs), budget=1.0, rounds=300)
        for name, f in OPERATIONS.items()
    ]


if __name__ == "__main__":
    show("Eager operations", rows())
