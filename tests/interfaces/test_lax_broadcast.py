"""Elementwise functions of `lax` repeat axes of size 1 and arrays without axes, as JAX does, and take no other rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import DTypeError, ShapeError

A = np.arange(1, 4, dtype=np.float32).reshape(3, 1)
B = np.arange(1, 5, dtype=np.float32).reshape(1, 4)
REAL = [
    "add", "sub", "mul", "div", "rem", "max", "min", "pow", "atan2", "nextafter", "complex", "eq", "ne", "lt", "le",
    "gt", "ge", "igamma", "igammac", "zeta", "polygamma",
]  # fmt: skip
BITS = ["bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right_logical", "shift_right_arithmetic"]


@pytest.mark.parametrize("name", [*REAL, *BITS])
def test_axes_of_size_1_are_repeated(name: str) -> None:
    function: Any = getattr(lax, name)
    a, b = (A, B) if name in REAL else (A.astype(np.int32), B.astype(np.int32))
    wide = np.broadcast_to(a, (3, 4)), np.broadcast_to(b, (3, 4))
    want = np.asarray(function(*wide))
    for x, y in ((a, b), (wide[0], b), (a, wide[1])):
        np.testing.assert_array_equal(function(x, y), want)
        np.testing.assert_array_equal(fx.jit(function)(x, y), want)
    one = a[1, 0]  # an array without axes
    for x, y, pair in ((one, b, (np.full_like(b, one), b)), (b, one, (b, np.full_like(b, one)))):
        np.testing.assert_array_equal(fx.interpret(fx.trace(function, x, y), x, y), function(*pair))


def test_three_operands_and_derivatives() -> None:
    half = np.full((3, 4), 0.5, np.float32)
    want = lax.betainc(np.broadcast_to(A, (3, 4)), np.broadcast_to(B, (3, 4)), half)
    np.testing.assert_array_equal(lax.betainc(A, B, half), want)
    np.testing.assert_allclose(fx.grad(lambda x: fnp.sum(lax.mul(x, B)))(A), np.full((3, 1), 10))
    pairs = fx.vmap(lambda x: lax.add(x, B), in_axes=2)(np.stack([A, 2 * A], 2))
    np.testing.assert_array_equal(pairs, np.stack([A + B, 2 * A + B]))
    assert len(fx.trace(lambda x: lax.add(x, x), A).jaxpr.eqns) == 1


def test_other_shapes_are_errors() -> None:
    message = r"add: shapes differ: lhs f32\[3,1\], rhs f32\[{}\]"
    for other, text in ((np.ones(4, np.float32), "4"), (np.ones((2, 4), np.float32), "2,4")):
        with pytest.raises(ShapeError, match=message.format(text)) as caught:
            lax.add(A, other)
        assert caught.value.remedy == "broadcast the operands to one shape first"
    with pytest.raises(DTypeError, match="add: dtypes differ"):
        lax.add(A, B.astype(np.float64))


def test_a_selector_without_axes_selects_a_whole_case() -> None:
    a, b = np.broadcast_to(A, (3, 4)), np.broadcast_to(B, (3, 4))
    for pred in (True, False, np.bool_(True)):
        np.testing.assert_array_equal(lax.select(np.bool_(pred), a, b), a if pred else b)
        np.testing.assert_array_equal(fx.jit(lax.select)(np.bool_(pred), a, b), a if pred else b)
    for k in range(3):
        np.testing.assert_array_equal(fx.jit(lax.select_n)(np.int32(k), a, b, a + b), (a, b, a + b)[k])
    both = fx.vmap(lambda p: lax.select(p, a, b))(np.array([True, False]))
    np.testing.assert_array_equal(both, np.stack([a, b]))
    with pytest.raises(ShapeError, match="select_n: shapes differ"):
        lax.select(np.ones(3, np.bool_), a, b)
    with pytest.raises(ShapeError):
        lax.select(np.bool_(True), a, B)
