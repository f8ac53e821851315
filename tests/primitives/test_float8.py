"""Dtypes of 8 bits: every value, and every pair of values, compiled as users compile, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import fxad as fx
from fxad import dtypes, lax
from fxad.dtypes import DType
from fxad.ir import NDArray
from tests.primitives.test_elementwise_edges import identical

pytestmark = pytest.mark.as_users_compile

FLOAT8 = sorted(dtypes.FLOAT8, key=str)


def every(dtype: DType) -> NDArray:
    """Returns each value of a dtype of 8 or 16 bits."""
    return np.arange(256**dtype.itemsize, dtype=f"u{dtype.itemsize}").view(dtype)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_conversions(dtype: DType) -> None:
    for source in (dtypes.float16, *FLOAT8):
        x = every(source)
        program = fx.trace(lambda x: lax.convert_element_type(x, dtype), x)
        with np.errstate(over="ignore"):
            identical(np.asarray(fx.jit(program)(x)), np.asarray(fx.interpret(program, x)))


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_arithmetic(dtype: DType) -> None:
    x, y = np.repeat(every(dtype), 256), np.tile(every(dtype), 256)
    program = fx.trace(lambda x, y: (x + y, x - y, x * y, x / y, -x, abs(x), x < y, x == y), x, y)
    with np.errstate(all="ignore"):
        for have, want in zip(fx.jit(program)(x, y), fx.interpret(program, x, y), strict=True):
            identical(np.asarray(have), np.asarray(want))
