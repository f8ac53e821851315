"""Loops that start from Python numbers: a carry takes the dtype of the arrays that it is combined with in any step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad import dtypes, lax
from fxad.dtypes import DType

X = fx.asarray(np.float32(2))
SHORT = fx.asarray(np.int16(1))
HALF = fx.asarray(np.float16(1))


def dtypes_of(outs: Any) -> list[str]:
    found: list[DType] = [x.dtype for x in fx.tree.leaves(outs)]
    return [d.name for d in found]


@pytest.mark.parametrize(
    ("step", "init", "found", "values"),
    [
        # combined through another carry, one and two steps later
        (lambda i, c: (c[1], c[0] * X + 1), (0, 0), ["float32", "float32"], [1, 3]),
        (lambda i, c: (c[1], c[2], c[0] * X + 1), (0, 0, 0), ["float32"] * 3, [1, 1, 1]),
        (lambda i, c: (c[1] * 0.5, c[0] + SHORT), (0, 0), ["float32", "float32"], [0.5, 1.5]),
        # a carry that is combined with no array has its own dtype
        (lambda i, c: (c[0] + 1, c[1] + X), (0, 0), ["int32", "float32"], [3, 6]),
        (lambda i, c: (c[0] + SHORT, c[1] + X), (0, 0), ["int16", "float32"], [3, 6]),
        (lambda i, c: (c[0] + np.uint64(2**63), c[1] + HALF), (1, 0.0), ["uint64", "float16"], [2**63 + 1, 3]),
        # with literals that the narrowest integer dtype cannot represent
        (lambda i, c: (c + 300) * X, 0, ["float32"], [4200]),
        (lambda i, c: (300, c[1] + X), (0, 0), ["int32", "float32"], [300, 6]),
    ],
)
def test_a_number_takes_the_dtype_of_the_arrays_in_any_step(
    step: Any, init: Any, found: list[str], values: list[int]
) -> None:
    outs = lax.fori_loop(0, 3, step, init)
    assert dtypes_of(outs) == found
    assert [x.item() for x in fx.tree.leaves(outs)] == values


@pytest.mark.parametrize("init", [0, 0.0, 0j])
def test_a_number_takes_the_dtype_that_it_takes_in_a_loop_of_python(init: complex) -> None:
    for dtype in dtypes.ALL:
        one = fx.asarray(1).astype(dtype)

        def step(c: Any, one: Any = one) -> Any:
            return fx.jit(lambda c: c + one)(c)

        in_a_loop = fx.eval_shape(lambda: lax.fori_loop(0, 3, lambda i, c: step(c), init))
        through_another = fx.eval_shape(lambda: lax.fori_loop(0, 3, lambda i, c: (c[1], step(c[0])), (init, init)))
        found = [in_a_loop.dtype, *[x.dtype for x in through_another]]
        assert found == [(init + one).dtype] * 3


def test_a_body_that_does_not_compute_with_numbers_gets_arrays() -> None:
    def step(i: Any, c: Any) -> Any:
        if type(c).__name__ == "TracedNumber":
            raise TypeError
        return c + fx.asarray(np.uint32(1))

    assert lax.fori_loop(0, 3, step, 0).dtype == "int64"


def test_grad_through_carries_that_rotate() -> None:
    def f(a: Any) -> Any:
        return lax.fori_loop(0, 6, lambda i, c: (c[1], c[2], c[0] * a + 1), (0, 0, 0))[2]

    assert fx.grad(f)(3.0).item() == 1.0
