"""Sums of many elements in floats that cannot count them: bfloat16 counts to 256, float16 to 2,048."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, ops

N = 3000
Sum = Callable[[fx.Array], Any]

# each function gives N for N ones
SUMS: dict[str, Sum] = {
    "sum": fnp.sum,
    "cumsum": lambda x: lax.cumsum(x)[-1],
    "linear_recurrence": lambda x: lax.linear_recurrence(x, x)[-1],
    "reduce_window": lambda x: lax.reduce_window(x, 0.0, lax.add, (N,), (1,), "VALID")[0],
    "dot": lambda x: x @ x,
    "conv": lambda x: fnp.convolve(x, x, "valid")[0],
    "psum": lambda x: fx.vmap(lambda v: lax.psum(v, "i"), axis_name="i")(x)[0],
    "psum of equal values": lambda x: fx.vmap(lambda v: lax.psum(x[0], "i"), axis_name="i")(x)[0],
    "segment_sum": lambda x: ops.segment_sum(x, fnp.zeros(N, "int32"), 1)[0],
    "bincount": lambda x: fnp.bincount(fnp.zeros(N, "int32"), x, length=1)[0],
    "cotangents of a broadcast": lambda x: fx.grad(lambda y: (y * x).sum())(x[0]),
    "cotangents of a product": lambda x: fx.grad(lambda y: ((x[:, None] @ y) * x[:, None]).sum())(x[:1, None])[0, 0],
    "squares of a norm": lambda x: fnp.linalg.norm(x) ** 2,
    "variance": lambda x: fnp.var(fnp.where(fnp.arange(N) % 2 == 0, x, -x)) * N,
    "mean": lambda x: x.mean() * N,
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", SUMS)
def test_many_ones(name: str, dtype: str) -> None:
    have = float(fx.jit(SUMS[name])(fnp.ones(N, dtype)))
    # two roundings: of the sum, and of a root or a product with N
    assert have == pytest.approx(N, rel=2 * {"float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype])


@pytest.mark.parametrize("mode", ["drop", "clip"])
@pytest.mark.parametrize(
    ("dtype", "n", "step"),
    [("bfloat16", N, 2.0**-7), ("float16", N, 2.0**-9), ("float8_e4m3fn", 100, 2.0**-3), ("float8_e5m2", 100, 2.0**-2)],
)
def test_updates_that_meet(dtype: str, n: int, step: float, mode: str) -> None:
    """XLA adds them in their dtype; bfloat16 counts to 256. So does a gradient that sums what was read several
    times."""
    at, ones = fnp.zeros(n, "int8"), fnp.ones(n, dtype)
    factors = 1 + step if n == N else 1.0
    sums: list[Sum] = [
        lambda x: fnp.zeros(7, dtype).at[at].add(x, mode=mode)[0],
        lambda x: fx.grad(lambda y: (y.at[at].get(mode=mode) * x).astype("float32").sum())(x[:7])[0],
        lambda x: fnp.ones(7, dtype).at[at].multiply(x * factors, mode=mode)[0],
    ]
    for f, want in zip(sums, (n, n, factors**n), strict=True):
        assert float(fx.jit(f)(ones)) == pytest.approx(want, rel=step)
        assert float(fx.interpret(fx.trace(f, ones), ones)) == pytest.approx(want, rel=step)
