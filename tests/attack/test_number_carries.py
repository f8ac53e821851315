"""Loops that start from bare Python numbers: their dtype is that of the arrays they meet, sooner or later."""

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
        # through another carry, one step and two steps later
        (lambda i, c: (c[1], c[0] * X + 1), (0, 0), ["float32", "float32"], [1, 3]),
        (lambda i, c: (c[1], c[2], c[0] * X + 1), (0, 0, 0), ["float32"] * 3, [1, 1, 1]),
        # a neighbour that meets no floating array stays what it was
        (lambda i, c: (c[0] + 1, c[1] + X), (0, 0), ["int32", "float32"], [3, 6]),
        (lambda i, c: (c[0] + SHORT, c[1] + X), (0, 0), ["int32", "float32"], [3, 6]),
        # beside literals that the narrowest integers do not hold
        (lambda i, c: (c + 300) * X, 0, ["float32"], [4200]),
        (lambda i, c: (300, c[1] + X), (0, 0), ["int32", "float32"], [300, 6]),
    ],
)
def test_a_number_takes_the_dtype_of_what_it_meets(step: Any, init: Any, found: list[str], values: list[int]) -> None:
    outs = lax.fori_loop(0, 3, step, init)
    assert dtypes_of(outs) == found
    assert [x.item() for x in fx.tree.leaves(outs)] == values


def test_grad_through_numbers_that_go_around() -> None:
    def f(a: Any) -> Any:
        return lax.fori_loop(0, 6, lambda i, c: (c[1], c[2], c[0] * a + 1), (0, 0, 0))[2]

    assert fx.grad(f)(3.0).item() == 1.0
