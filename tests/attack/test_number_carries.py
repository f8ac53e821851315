"""Loops that start from Python numbers: a carry takes the dtype of the arrays that it is combined with in any step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad import lax
from fxad.dtypes import DType

X = fx.asarray(np.float32(2))
SHORT = fx.asarray(np.int16(1))


def dtypes_of(outs: Any) -> list[str]:
    found: list[DType] = [x.dtype for x in fx.tree.leaves(outs)]
    return [d.name for d in found]


@pytest.mark.parametrize(
    ("step", "init", "found", "values"),
    [
        # combined through another carry, one and two steps later
        (lambda i, c: (c[1], c[0] * X + 1), (0, 0), ["float32", "float32"], [1, 3]),
        (lambda i, c: (c[1], c[2], c[0] * X + 1), (0, 0, 0), ["float32"] * 3, [1, 1, 1]),
        # a carry that is combined with no floating array keeps its dtype
        (lambda i, c: (c[0] + 1, c[1] + X), (0, 0), ["int32", "float32"], [3, 6]),
        (lambda i, c: (c[0] + SHORT, c[1] + X), (0, 0), ["int32", "float32"], [3, 6]),
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


def test_grad_through_carries_that_rotate() -> None:
    def f(a: Any) -> Any:
        return lax.fori_loop(0, 6, lambda i, c: (c[1], c[2], c[0] * a + 1), (0, 0, 0))[2]

    assert fx.grad(f)(3.0).item() == 1.0
