"""Every elementwise primitive: type, lowering, batching, derivative and adjoint at ordinary operands."""

from __future__ import annotations

import numpy as np
import pytest

from fxad import dtypes
from fxad.dtypes import DType
from fxad.ir import NDArray, Primitive
from fxad.primitives import elementwise as ew
from fxad.primitives.elementwise.family import Binary, Compare, Unary
from tests.primitives.harness import check

SHAPE = (2, 3)

# intervals where a primitive is smooth; the default is (0.2, 0.9)
RANGE = {
    "acosh": (1.2, 3.0),
    "digamma": (0.6, 3.0),
    "lgamma": (1.2, 3.0),
    "neg": (-2.0, 2.0),
    "sub": (-2.0, 2.0),
    "sin": (-3.0, 3.0),
    "tanh": (-2.0, 2.0),
}
UNARY = [p for p in ew.__dict__.values() if isinstance(p, Unary)]
BINARY = [p for p in ew.__dict__.values() if isinstance(p, Binary)]
COMPARE = [p for p in ew.__dict__.values() if isinstance(p, Compare)]
PARAMETRIC = [
    ew.Round(ew.AWAY_FROM_ZERO),
    ew.Round(ew.TO_NEAREST_EVEN),
    *[ew.IntegerPow(n) for n in (-3, -1, 0, 1, 2, 3, 7)],
    ew.ReducePrecision(5, 10),
]
SAMPLES = [dtypes.float64, dtypes.float32, dtypes.bfloat16, dtypes.complex128, dtypes.int32, dtypes.uint8, dtypes.bool_]


def operand(prim: Primitive, dtype: DType, seed: int) -> NDArray:
    rng = np.random.default_rng(seed)
    low, high = RANGE.get(prim.name, (0.2, 0.9))
    x = rng.uniform(low, high, SHAPE)
    if dtype in dtypes.COMPLEX:
        return (x + 1j * rng.uniform(low, high, SHAPE)).astype(dtype)
    return (x if dtype in dtypes.FLOATING else rng.integers(0, 7, SHAPE)).astype(dtype)


def identify(value: object) -> str:
    return str(value) if isinstance(value, np.dtype) else repr(value)


def taking(prims: list[Primitive]) -> list[tuple[Primitive, DType]]:
    return [(p, d) for p in prims for d in SAMPLES if d in p.takes]  # type: ignore[attr-defined]


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("prim", "dtype"), taking([*UNARY, *PARAMETRIC]), ids=identify)
def test_unary(prim: Primitive, dtype: DType) -> None:
    if isinstance(prim, ew.IntegerPow) and prim.n < 0 and dtype in dtypes.INTEGER:
        return
    # the derivative of rounding is zero
    check(prim, operand(prim, dtype, 0), differentiate=not isinstance(prim, ew.ReducePrecision | ew.StopGradient))


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("prim", "dtype"), taking([*BINARY, *COMPARE]), ids=identify)
def test_binary(prim: Primitive, dtype: DType) -> None:
    x, y = operand(prim, dtype, 0), operand(prim, dtype, 1)
    if prim is ew.POLYGAMMA:
        x = np.full_like(x, 2)
    check(prim, x, y, differentiate=prim not in (ew.NEXTAFTER, ew.POLYGAMMA))
