"""The faster forms of operations in float64 have the values of the operations, to a few units of roundoff."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.ir import Aval, Lit, Primitive
from fxad.primitives.conv import ConvGeneralDilated
from fxad.primitives.elementwise.powers import Pow
from fxad.transforms.precision.wide import faster

CONVOLUTIONS = [  # strides, padding, dilations of lhs and rhs, specs of lhs, rhs and result; sizes of lhs and rhs
    ((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), (0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2), (2, 3, 8, 9), (4, 3, 3, 2)),
    ((2, 1), ((0, 2), (-1, 3)), (2, 1), (1, 2), (0, 1, 2, 3), (0, 1, 2, 3), (1, 0, 3, 2), (2, 3, 8, 9), (4, 3, 3, 2)),
    ((3, 2), ((5, 1), (0, 0)), (1, 3), (2, 1), (1, 0, 2, 3), (2, 3, 0, 1), (3, 2, 1, 0), (1, 2, 5, 4), (2, 2, 1, 3)),
    ((), (), (), (), (0, 1), (0, 1), (0, 1), (2, 3), (4, 3)),
]  # fmt: skip


def fast_value(prim: Primitive, *args: Any) -> Any:
    b = Builder()
    atoms = [x if isinstance(x, Lit) else b.input(Aval(x.shape, x.dtype)) for x in args]
    y = faster(b, prim, tuple(atoms))
    arrays = [x for x in args if not isinstance(x, Lit)]
    return None if y is None else np.asarray(run(b.build([y], "fast"), arrays)[0])


def permuted(spec: tuple[int, ...], sizes: tuple[int, ...]) -> Any:
    shape = [0] * len(spec)
    for axis, size in zip(spec, sizes, strict=True):
        shape[axis] = size
    return np.random.default_rng(0).standard_normal(shape)


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions(case: tuple[tuple[int, ...], ...]) -> None:
    *fields, lhs_sizes, rhs_sizes = case
    conv = ConvGeneralDilated(*fields, 1, 1, None)  # type: ignore[call-arg,arg-type]  # the fields of a case
    lhs, rhs = permuted(conv.lhs_spec, lhs_sizes), permuted(conv.rhs_spec, rhs_sizes)
    found = fast_value(conv, lhs, rhs)
    expected: Any = conv.impl(lhs, rhs)[0]
    assert found is not None
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


def test_groups_and_large_windows_and_no_windows_have_no_faster_form() -> None:
    one = (1,), ((0, 0),), (1,), (1,), (0, 1, 2), (0, 1, 2), (0, 1, 2)
    assert fast_value(ConvGeneralDilated(*one, 2, 1, None), np.ones((2, 4, 8)), np.ones((2, 2, 3))) is None
    assert fast_value(ConvGeneralDilated(*one, 1, 1, None), np.ones((2, 4, 64)), np.ones((2, 4, 28))) is None
    assert fast_value(ConvGeneralDilated(*one, 1, 1, None), np.ones((2, 4, 2)), np.ones((2, 4, 4))) is None


@pytest.mark.parametrize("n", [-4, -2.5, -1.5, -1, -0.5, 0.5, 1, 1.5, 2, 3.5])
def test_powers(n: float) -> None:
    x = np.array([0.3, 1.0, 7.5, 1e-38, 3e38, -2.0, 0.0, np.inf, np.nan])
    found = fast_value(Pow(), x, Lit.of(n, Aval(x.shape, dtypes.float64)))
    assert found is not None
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found, x**n, rtol=1e-15)


def test_other_powers_have_no_faster_form() -> None:
    x = np.ones(3)
    assert fast_value(Pow(), x, Lit.of(0.3, Aval((3,), dtypes.float64))) is None
    assert fast_value(Pow(), x, Lit.of(20, Aval((3,), dtypes.float64))) is None
    assert fast_value(Pow(), x, x) is None
    assert fast_value(Pow(), x.astype(np.float32), Lit.of(2, Aval((3,), dtypes.float32))) is None
