"""Tracing single functions of the interfaces, per use. `python -m benchmarks.bench_interfaces`.

A use may make several equations, and more of them in jax. The benchmark compares the cost of a line of user code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxad as fx
from benchmarks.harness import Contest, Row, compare_once, show
from benchmarks.models.library import OURS, Given, Library, given
from benchmarks.models.theirs import THEIRS

TIMES = 100
SHAPE = (8, 8)

Use = Callable[[Given], Any]

BUDGET = 0.25
USES: dict[str, Use] = {
    "lax.dynamic_slice": lambda o: o.lax.dynamic_slice(o.x, (o.i, o.i), (2, 2)),
    "lax.dynamic_index_in_dim": lambda o: o.lax.dynamic_index_in_dim(o.x, o.i),
    "x[i], of a traced i": lambda o: o.x[o.i],
    "x[3]": lambda o: o.x[3],
    "where(x < y, x, y)": lambda o: o.np.where(o.x < o.y, o.x, o.y),
    "einsum('ij,kj->ki')": lambda o: o.np.einsum("ij,kj->ki", o.x, o.y),
    "nn.softmax": lambda o: o.nn.softmax(o.x, axis=-1),
}

# for information
OTHERS: dict[str, Use] = {
    "x[1:3, ::-1]": lambda o: o.x[1:3, ::-1],
    "x.at[i].set(1)": lambda o: o.x.at[o.i].set(1),
    "x @ y": lambda o: o.x @ o.y,
    "sum(x)": lambda o: o.np.sum(o.x),
}


def repeated(use: Use, library: Library) -> Callable[[Any, Any, Any], Any]:
    """Returns a new function that contains the line `TIMES` times."""

    def f(x: Any, y: Any, i: Any) -> Any:
        operands, out = given(library, x, y, i), x
        for _ in range(TIMES):
            out = use(operands)
        return out

    return f


def tracing(name: str, use: Use, budget: float | None) -> Row:
    """Returns one row of the table."""
    specs = fx.Spec(SHAPE, "float32"), fx.Spec(SHAPE, "float32"), fx.Spec((), "int32")
    values = jnp.ones(SHAPE, np.float32), jnp.ones(SHAPE, np.float32), jnp.asarray(np.int32(3))

    def mine() -> Contest:
        return lambda: fx.trace(repeated(use, OURS), *specs)

    def peer() -> Contest:
        return lambda: jax.make_jaxpr(repeated(use, THEIRS))(*values)

    return compare_once(f"trace: {name}", mine, peer, per=TIMES, budget=budget, rounds=20)


def rows() -> list[Row]:
    """All measurements."""
    return [
        *[tracing(name, use, BUDGET) for name, use in USES.items()],
        *[tracing(name, use, None) for name, use in OTHERS.items()],
    ]


if __name__ == "__main__":
    show("Tracing the interfaces", rows())
