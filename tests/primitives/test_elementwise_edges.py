"""Elementwise primitives at the edges of their domains: NumPy reference and XLA agree."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

import fxad as fx
from fxad import dtypes, lax
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.dtypes import DType, as_dtype
from fxad.ir import Atom, Aval, Lit, NDArray, Primitive
from fxad.primitives import elementwise as ew
from fxad.primitives.elementwise.family import Binary, Compare, Unary
from fxad.transforms import simplify
from tests.primitives.harness import avals_of, check, program, xla

NAN, INF = math.nan, math.inf


def identical(have: NDArray, want: NDArray) -> None:
    """Equal types and values; nan is nan, and -0.0 is not 0.0."""
    assert (have.dtype, have.shape) == (want.dtype, want.shape)
    if have.dtype in dtypes.FLOATING:
        have, want = have.astype(np.float64), want.astype(np.float64)
        np.testing.assert_array_equal(np.signbit(have) & ~np.isnan(have), np.signbit(want) & ~np.isnan(want))
    np.testing.assert_array_equal(have, want)


def checked_impl(prim: Primitive, *args: NDArray) -> NDArray:
    """Returns the result of `impl`, after XLA agreed."""
    (have,) = prim.impl(*args)
    identical(xla(program(prim, *avals_of(*args)), *args)[0], have)
    return have


# A primitive and a dtype, its operands and the results.
EXACT: list[tuple[Primitive, str, tuple[list[object], ...], list[object]]] = [
    (ew.ADD, "i8", ([127, -128], [1, -1]), [-128, 127]),
    (ew.SUB, "u8", ([0], [1]), [255]),
    (ew.MUL, "i32", ([2**31 - 1], [2]), [-2]),
    (ew.NEG, "i8", ([-128, 1],), [-128, -1]),
    (ew.ABS, "i8", ([-128, -1],), [-128, 1]),
    (ew.DIV, "i8", ([7, -7, 7, -7, 5, -5, 0, -128], [2, 2, -2, -2, 0, 0, 0, -1]), [3, -3, -3, 3, -1, -1, -1, -128]),
    (ew.DIV, "u8", ([7, 5, 0], [2, 0, 0]), [3, 255, 255]),
    (ew.REM, "i8", ([7, -7, 7, -7, 5, -5, -128], [2, 2, -2, -2, 0, 0, -1]), [1, -1, 1, -1, 5, -5, 0]),
    (ew.REM, "f32", ([7.0, -7.0, -4.0, 5.0, 5.0], [2.0, 2.0, 2.0, 0.0, INF]), [1.0, -1.0, -0.0, NAN, 5.0]),
    (ew.SIGN, "f32", ([-3.0, -0.0, 0.0, 3.0, NAN],), [-1.0, 0.0, 0.0, 1.0, NAN]),
    (ew.SIGN, "u8", ([0, 200],), [0, 1]),
    (ew.MAX, "f32", ([NAN, 1.0, 2.0], [1.0, NAN, 3.0]), [NAN, NAN, 3.0]),
    (ew.MIN, "f32", ([NAN, 1.0, 2.0], [1.0, NAN, 3.0]), [NAN, NAN, 2.0]),
    (ew.MAX, "bool", ([False, True], [False, False]), [False, True]),
    (ew.POW, "i8", ([-8, 2, 3, -1, 0, 5], [64, 127, 65, 64, 64, -1]), [0, 0, 3, 1, 0, 0]),
    (ew.POW, "u8", ([2, 3, 4, 0], [200, 129, 64, 0]), [0, 3, 0, 1]),
    (
        ew.POW,
        "f64",
        ([0.0, 0.0, 0.0, -2.0, -2.0, INF], [0.0, 2.0, -1.0, 3.0, 0.5, 0.0]),
        [1.0, 0.0, INF, -8.0, NAN, 1.0],
    ),
    (ew.IntegerPow(0), "f64", ([0.0, NAN, INF],), [1.0, 1.0, 1.0]),
    (ew.IntegerPow(-1), "f64", ([0.0, -0.0, 2.0],), [INF, -INF, 0.5]),
    (ew.IntegerPow(3), "i8", ([-2, 6],), [-8, -40]),
    (ew.SQRT, "f64", ([-0.0, 4.0, -1.0],), [-0.0, 2.0, NAN]),
    (ew.RSQRT, "f64", ([0.0, 4.0, -1.0],), [INF, 0.5, NAN]),
    (ew.EXP2, "f32", ([-10.0, 0.0, 10.0, 1000.0],), [2.0**-10, 1.0, 1024.0, INF]),
    (ew.LOG, "f64", ([0.0, 1.0, -1.0, INF],), [-INF, 0.0, NAN, INF]),
    (ew.LOGISTIC, "f32", ([-INF, 0.0, 100.0, INF],), [0.0, 0.5, 1.0, 1.0]),
    (ew.LOGIT, "f64", ([0.0, 0.5, 1.0, -1.0, 2.0],), [-INF, 0.0, INF, NAN, NAN]),
    (ew.ROUND_AWAY, "f32", ([0.5, -0.5, 1.5, 2.5, 0.49999997, -0.2],), [1.0, -1.0, 2.0, 3.0, 0.0, -0.0]),
    (ew.ROUND_EVEN, "f32", ([0.5, -0.5, 1.5, 2.5, 0.49999997, -0.2],), [0.0, -0.0, 2.0, 2.0, 0.0, -0.0]),
    (ew.FLOOR, "f32", ([-0.5, -0.0, 1.5],), [-1.0, -0.0, 1.0]),
    (ew.CEIL, "f32", ([-0.5, -0.0, 1.5],), [-0.0, -0.0, 2.0]),
    (
        ew.NEXTAFTER,
        "f32",
        ([0.0, 1.0, INF], [-1.0, INF, 0.0]),
        [-1.401298464324817e-45, 1.0000001192092896, 3.4028234663852886e38],
    ),
    (ew.NOT, "bool", ([False, True],), [True, False]),
    (ew.NOT, "u8", ([0, 1],), [255, 254]),
    (ew.XOR, "i32", ([-1, 5], [1, 5]), [-2, 0]),
    (ew.SHIFT_LEFT, "i8", ([1, 1, 1, 1, -1], [7, 8, 100, -1, 1]), [-128, 0, 0, 0, -2]),
    (ew.SHIFT_RIGHT_LOGICAL, "i8", ([-1, -1, -1, 1], [1, 7, 8, -1]), [127, 1, 0, 0]),
    (ew.SHIFT_RIGHT_ARITHMETIC, "i8", ([-128, -128, 127, -128], [1, 8, 8, -1]), [-64, -1, 0, -1]),
    (ew.SHIFT_RIGHT_ARITHMETIC, "u8", ([128, 128, 127], [1, 8, 9]), [192, 255, 0]),
    (ew.POPULATION_COUNT, "i8", ([-1, 0, 5],), [8, 0, 2]),
    (ew.CLZ, "i16", ([-1, 0, 5],), [0, 16, 13]),
    (ew.ERF_INV, "f64", ([-1.0, 0.0, 1.0, 2.0],), [-INF, 0.0, INF, NAN]),
    (ew.LGAMMA, "f64", ([0.0, -1.0, INF],), [INF, INF, INF]),
    (ew.DIGAMMA, "f64", ([0.0, -0.0, -1.0, INF],), [-INF, INF, NAN, INF]),
    (
        ew.ReducePrecision(5, 10),
        "f32",
        ([65519.0, 65520.0, -1e-8, 1.00048828125, NAN],),
        [65504.0, INF, -0.0, 1.0, NAN],
    ),
]


@pytest.mark.parametrize(("prim", "dtype", "args", "want"), EXACT, ids=lambda v: v if isinstance(v, str) else None)
def test_exact(prim: Primitive, dtype: str, args: tuple[list[object], ...], want: list[object]) -> None:
    d = as_dtype(dtype)
    identical(checked_impl(prim, *[np.array(a, d) for a in args]), np.array(want, d))


def test_is_finite() -> None:
    identical(checked_impl(ew.IS_FINITE, np.array([0.0, INF, -INF, NAN])), np.array([True, False, False, False]))


@pytest.mark.parametrize("prim", [ew.EQ, ew.NE, ew.LT, ew.LE, ew.GT, ew.GE])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.float8_e5m2])
def test_comparisons_of_nan_and_negative_zero(prim: Primitive, dtype: DType) -> None:
    x, y = (np.array(v, dtype) for v in zip(*product([NAN, -0.0, 0.0, 1.0, INF], repeat=2), strict=True))
    checked_impl(prim, x, y)


def test_comparisons_of_unsigned_integers() -> None:
    identical(checked_impl(ew.LT, np.array([1, 255], np.uint8), np.array([255, 1], np.uint8)), np.array([True, False]))
    identical(checked_impl(ew.LT, np.array([False, True]), np.array([True, False])), np.array([True, False]))


FLOATS = [
    0.0,
    -0.0,
    0.7,
    -0.7,
    1.5,
    127.5,
    -128.5,
    256.0,
    -300.0,
    2.0**31,
    2.0**32,
    -(2.0**63),
    2.0**63,
    1e20,
    INF,
    -INF,
    NAN,
]


@pytest.mark.parametrize("to", dtypes.ALL, ids=str)
@pytest.mark.parametrize("of", [dtypes.float64, dtypes.bfloat16, dtypes.int32, dtypes.complex64, dtypes.bool_], ids=str)
def test_convert(of: DType, to: DType) -> None:
    values = [0, 1, -1, 127, 128, -129, 2**31 - 1] if of == dtypes.int32 else FLOATS
    checked_impl(ew.ConvertElementType(to), np.array(values).astype(of))


def test_convert_saturates() -> None:
    x = np.array([NAN, INF, -INF, 1e20, -1.9, 255.9])
    for dtype, want in (
        ("i32", [0, 2**31 - 1, -(2**31), 2**31 - 1, -1, 255]),
        ("u8", [0, 255, 0, 255, 0, 255]),
        ("i64", [0, 2**63 - 1, -(2**63), 2**63 - 1, -1, 255]),
        ("bool", [True, True, True, True, True, True]),
    ):
        d = as_dtype(dtype)
        identical(checked_impl(ew.ConvertElementType(d), x), np.array(want, d))


def test_bitcast_to_other_widths() -> None:
    x = np.array([1.0, -2.5], np.float32)
    parts = checked_impl(ew.BitcastConvertType(dtypes.uint8), x)
    assert parts.tolist() == [[0, 0, 128, 63], [0, 0, 32, 192]]
    identical(checked_impl(ew.BitcastConvertType(dtypes.float32), parts), x)
    check(ew.BitcastConvertType(dtypes.uint8), x)
    check(ew.BitcastConvertType(dtypes.float32), parts)
    check(ew.BitcastConvertType(dtypes.int32), x)


def test_select_n_takes_the_nearest_case() -> None:
    cases = [np.full(6, k, np.float64) for k in range(3)]
    which = np.array([-5, 0, 1, 2, 3, 100], np.int32)
    identical(checked_impl(ew.SELECT_N, which, *cases), np.array([0.0, 0.0, 1.0, 2.0, 2.0, 2.0]))
    identical(checked_impl(ew.SELECT_N, which, cases[1]), cases[1])
    check(ew.SELECT_N, which.reshape(2, 3), *[c.reshape(2, 3) for c in cases])
    check(ew.SELECT_N, which.reshape(2, 3) > 1, *[c.reshape(2, 3) for c in cases[:2]])


@pytest.mark.parametrize("low", [-1.0, 1.0, 3.0])
@pytest.mark.parametrize("x", [-2.0, 0.0, 2.0, 4.0])
def test_the_derivative_of_clamp_is_that_of_min_and_max(low: float, x: float) -> None:
    """Where low > high the value is `high`."""
    slopes = fx.grad(lax.clamp, (0, 1, 2))(*[np.float32(v) for v in (low, x, 1.0)])
    value = min(max(low, x), 1.0)
    want = [value == low != 1.0 or low == 1.0 > x, value == x, value == 1.0 and (low > 1.0 or x > 1.0)]
    assert [float(s) for s in slopes] == [float(w) for w in want]


def test_clamp() -> None:
    low, x, high = (np.array(v) for v in ([0.0] * 6, [-1.0, 0.5, 2.0, NAN, 0.5, 0.5], [1.0, 1.0, 1.0, 1.0, NAN, -1.0]))
    identical(checked_impl(ew.CLAMP, low, x, high), np.array([0.0, 0.5, 1.0, NAN, NAN, -1.0]))
    check(ew.CLAMP, *[v[:3] for v in (low, x, high)])


def test_complex_parts() -> None:
    x, y = np.array([1.0, -0.0, INF]), np.array([-0.0, 2.0, INF])
    z = checked_impl(ew.COMPLEX, x, y)
    identical(checked_impl(ew.REAL, z), x)
    identical(checked_impl(ew.IMAG, z), y)
    identical(checked_impl(ew.IMAG, checked_impl(ew.CONJ, z)), -y)
    check(ew.COMPLEX, x[:2].reshape(1, 2), y[:2].reshape(1, 2))


def test_complex_functions_at_zero() -> None:
    z = np.array([0j, 3 + 4j])
    identical(checked_impl(ew.SIGN, z), np.array([0j, 0.6 + 0.8j]))
    identical(checked_impl(ew.ABS, z), np.array([0.0, 5.0]))
    w = np.array([1 + 1j, 0j])
    identical(checked_impl(ew.POW, np.zeros(2, complex), w), np.array([0j, 1]))


@pytest.mark.parametrize("n", [1.0, 2.0, 5.0])
def double(prim: Primitive, *args: object) -> npt.NDArray[np.float64]:
    return prim.impl(*[np.asarray(a, np.float64) for a in args])[0].astype(np.float64)


@pytest.mark.parametrize("n", [1.0, 2.0, 5.0])
def test_polygamma_is_the_derivative_of_the_one_below(n: float) -> None:
    x, h = np.array([0.3, 1.0, 4.5, 40.0]), 1e-5
    orders, below = np.full(4, n), np.full(4, n - 1)
    slope = (double(ew.POLYGAMMA, below, x + h) - double(ew.POLYGAMMA, below, x - h)) / (2 * h)
    np.testing.assert_allclose(double(ew.POLYGAMMA, orders, x), slope, rtol=1e-6)
    (compiled,) = xla(program(ew.POLYGAMMA, *avals_of(orders, x)), orders, x)
    np.testing.assert_allclose(compiled.astype(np.float64), slope, rtol=1e-6)


def test_special_values() -> None:
    np.testing.assert_allclose(double(ew.DIGAMMA, [1.0, 0.5]), [-0.5772156649015329, -1.9635100260214235])
    np.testing.assert_allclose(double(ew.POLYGAMMA, [1.0], [1.0]), [math.pi**2 / 6])
    x = np.array([-0.999999, -0.5, 1e-12, 0.3, 1 - 1e-12])
    np.testing.assert_allclose([math.erf(v) for v in double(ew.ERF_INV, x)], x, rtol=1e-15)


def test_impl_does_not_warn_and_keeps_shapes() -> None:
    with np.errstate(all="raise"):
        (out,) = ew.DIV.impl(np.array(1.0), np.array(0.0))
        assert out.shape == ()
        (out,) = ew.ADD.impl(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32))
        assert out.shape == (0, 3)


FOLDED = sorted({p for p in vars(ew).values() if isinstance(p, Unary | Binary | Compare)}, key=lambda p: p.name)


def corners(dtype: DType) -> list[int]:
    if dtype == dtypes.bool_:
        return [0, 1]
    least, most = dtypes.RANGES[dtype]
    return [*{least, least // 2, -2 if least else 2, -1 if least else 4, 0, 1, 3, most // 2, most}]


@pytest.mark.parametrize("prim", FOLDED, ids=lambda p: p.name)
def test_integer_constants_that_xla_folds(prim: Unary | Binary | Compare) -> None:
    """XLA folds constant operations with other code. It must not crash (1 // 0 did), nor give other results (leading
    zeros of -1)."""
    b = Builder()
    outs = [
        b.one(prim, *[Lit.of(x, Aval((), dtype)) for x in args])
        for dtype in sorted((dtypes.INTEGER | {dtypes.bool_}) & prim.takes, key=str)
        for args in product(corners(dtype), repeat=1 if isinstance(prim, Unary) else 2)
    ]
    folded = b.build(outs, "folded")
    for have, want in zip(xla(folded), run(folded, ()), strict=True):
        identical(have, want)


def test_floating_constants_that_simplify_folds() -> None:
    """It folds those whose result XLA computes with the same bits. NumPy's modulus of a complex number has others."""
    rng = np.random.default_rng(0)
    folded: list[tuple[str, Lit]] = []
    made, args = Builder(), list[NDArray]()
    kinds = [(p, d) for p in FOLDED for d in sorted(dtypes.INEXACT & p.takes - dtypes.FLOAT8, key=str)] * 30
    inputs = [made.inputs([Aval((), d)] * (1 if isinstance(p, Unary) else 2)) for p, d in kinds]
    outs = list[Atom]()
    for (prim, dtype), operands in zip(kinds, inputs, strict=True):
        values = [np.asarray(300 * (rng.normal() + 1j * rng.normal())) for _ in operands]
        args += [(x if dtype in dtypes.COMPLEX else x.real).astype(dtype) for x in values]
        b = Builder()
        lits = [Lit.of(x[()], Aval((), dtype)) for x in args[len(args) - len(operands) :]]
        (constant,) = simplify(b.build([b.one(prim, *lits)], "constant")).outs
        if isinstance(constant, Lit):
            folded.append((f"{prim.name} of {dtype}", constant))
            outs.append(made.one(prim, *operands))
    assert {"neg of float32", "abs of float64"} <= dict(folded).keys()
    for (name, have), want in zip(folded, xla(made.build(outs, "computed"), *args), strict=True):
        assert have.array.tobytes() == np.asarray(want).tobytes(), name
