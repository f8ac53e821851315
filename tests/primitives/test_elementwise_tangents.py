"""Derivatives of elementwise primitives: numbers of equations, and values where simple formulas fail."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.errors import NotDifferentiableError
from fxad.ir import Atom, Aval, Emit, Jaxpr, Lit, NDArray, Primitive
from fxad.primitives import elementwise as ew
from fxad.transforms.ad.jvp import jvp
from fxad.transforms.ad.linearize import linearize
from fxad.transforms.ad.transpose import transpose
from tests.primitives.harness import program, xla

F64 = Aval((), "float64")
INF, NAN = math.inf, math.nan


def equations(p: Jaxpr, nonzero: tuple[bool, ...]) -> tuple[int, int, int, int]:
    """Returns the numbers of further primal equations, linear equations, residuals, and equations of the adjoint."""
    split = linearize(p, nonzero)
    marked = tuple([True] * sum(nonzero) + [False] * split.n_res)
    adjoint = transpose(split.linear, marked) if split.linear.outs else split.linear
    return len(split.primal.eqns) - len(p.eqns), len(split.linear.eqns), split.n_res, len(adjoint.eqns)


UNARY = [
    ("neg", ew.NEG, (0, 1, 0, 1)),
    ("sign", ew.SIGN, (0, 0, 0, 0)),
    ("abs", ew.ABS, (1, 1, 1, 1)),
    ("square", ew.SQUARE, (1, 1, 1, 1)),
    ("sqrt", ew.SQRT, (1, 1, 1, 1)),
    ("rsqrt", ew.RSQRT, (2, 1, 1, 1)),
    ("cbrt", ew.CBRT, (2, 1, 1, 1)),
    ("x^0", ew.IntegerPow(0), (0, 0, 0, 0)),
    ("x^1", ew.IntegerPow(1), (0, 0, 0, 0)),
    ("x^2", ew.IntegerPow(2), (1, 1, 1, 1)),
    ("x^5", ew.IntegerPow(5), (2, 1, 1, 1)),
    ("exp", ew.EXP, (0, 1, 1, 1)),
    ("exp2", ew.EXP2, (3, 1, 1, 1)),
    ("expm1", ew.EXPM1, (1, 1, 1, 1)),
    ("log", ew.LOG, (0, 1, 1, 1)),
    ("log1p", ew.LOG1P, (1, 1, 1, 1)),
    ("logistic", ew.LOGISTIC, (3, 1, 1, 1)),
    ("logit", ew.LOGIT, (2, 1, 1, 1)),
    ("tanh", ew.TANH, (1, 1, 1, 1)),
    ("sech2", ew.SECH2, (3, 1, 1, 1)),
    ("log2", ew.LOG2, (1, 1, 1, 1)),
    ("sin", ew.SIN, (1, 1, 1, 1)),
    ("cos", ew.COS, (2, 1, 1, 1)),
    ("tan", ew.TAN, (2, 1, 1, 1)),
    ("asin", ew.ASIN, (9, 1, 1, 1)),
    ("atan", ew.ATAN, (2, 1, 1, 1)),
    ("sinh", ew.SINH, (1, 1, 1, 1)),
    ("erf", ew.ERF, (5, 1, 1, 1)),
    ("lgamma", ew.LGAMMA, (1, 1, 1, 1)),
    ("floor", ew.FLOOR, (0, 0, 0, 0)),
    ("is_finite", ew.IS_FINITE, (0, 0, 0, 0)),
    ("reduce_precision", ew.ReducePrecision(5, 10), (0, 0, 0, 0)),
    ("stop_gradient", ew.STOP_GRADIENT, (0, 0, 0, 0)),
    ("to f32", ew.ConvertElementType(np.dtype(np.float32)), (0, 1, 0, 1)),
    ("to i32", ew.ConvertElementType(np.dtype(np.int32)), (0, 0, 0, 0)),
]


@pytest.mark.parametrize(("prim", "want"), [u[1:] for u in UNARY], ids=[u[0] for u in UNARY])
def test_equations_of_one_operand(prim: Primitive, want: tuple[int, int, int, int]) -> None:
    assert equations(program(prim, F64), (True,)) == want


# (primitive, numbers for tangents of both operands, of the first, of the second)
NONE = (0, 0, 0, 0)
BINARY = [
    (ew.ADD, (0, 1, 0, 0), NONE, NONE),
    (ew.SUB, (0, 1, 0, 1), NONE, (0, 1, 0, 1)),
    (ew.MUL, (0, 3, 2, 2), (0, 1, 1, 1), (0, 1, 1, 1)),
    (ew.DIV, (0, 3, 2, 3), (0, 1, 1, 1), (2, 1, 1, 1)),
    (ew.MAX, (7, 3, 2, 2), (4, 1, 1, 1), (4, 1, 1, 1)),
    (ew.ATAN2, (6, 3, 2, 2), (3, 1, 1, 1), (4, 1, 1, 1)),
    (ew.HYPOT, (2, 3, 2, 2), (1, 1, 1, 1), (1, 1, 1, 1)),
    (ew.XLOGY, (6, 3, 2, 2), (1, 1, 1, 1), (5, 1, 1, 1)),
    (ew.LT, NONE, NONE, NONE),
    (ew.COMPLEX, (0, 1, 0, 3), (0, 1, 0, 1), (0, 1, 0, 2)),
]


@pytest.mark.parametrize(("prim", "both", "first", "second"), BINARY, ids=[b[0].name for b in BINARY])
def test_equations_of_two_operands(
    prim: Primitive, both: tuple[int, ...], first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    p = program(prim, F64, F64)
    assert equations(p, (True, True)) == both
    assert equations(p, (True, False)) == first
    assert equations(p, (False, True)) == second


def of_x(rule: Callable[[Emit, Atom], Atom]) -> Jaxpr:
    b = Builder()
    return b.build((rule(b, b.input(F64)),))


@pytest.mark.parametrize(
    ("rule", "want"),
    [
        (lambda emit, x: emit.one(ew.MUL, x, x), (1, 1, 1, 1)),
        (lambda emit, x: emit.one(ew.MUL, x, Lit.of(3.0, F64)), (0, 1, 0, 1)),
        (lambda emit, x: emit.one(ew.POW, x, Lit.of(0.0, F64)), (0, 0, 0, 0)),
        (lambda emit, x: emit.one(ew.POW, x, Lit.of(1.0, F64)), (0, 0, 0, 0)),
        (lambda emit, x: emit.one(ew.POW, x, Lit.of(2.0, F64)), (1, 1, 1, 1)),
        (lambda emit, x: emit.one(ew.POW, x, Lit.of(0.5, F64)), (2, 1, 1, 1)),
        (lambda emit, x: emit.one(ew.POW, Lit.of(3.0, F64), x), (1, 1, 1, 1)),
        (lambda emit, x: emit.one(ew.MAX, x, Lit.of(0.0, F64)), (4, 1, 1, 1)),
        (lambda emit, x: emit.one(ew.CLAMP, Lit.of(0.0, F64), x, Lit.of(1.0, F64)), (3, 1, 1, 1)),
        (
            lambda emit, x: emit.one(ew.SELECT_N, Lit.of(True, F64.with_dtype("bool")), Lit.of(0.0, F64), x),
            (0, 1, 0, 1),
        ),
        (
            lambda emit, x: emit.one(ew.SELECT_N, Lit.of(False, F64.with_dtype("bool")), x, Lit.of(0.0, F64)),
            (0, 1, 0, 1),
        ),
    ],
)
def test_equations_with_literals(rule: Callable[[Emit, Atom], Atom], want: tuple[int, int, int, int]) -> None:
    assert equations(of_x(rule), (True,)) == want


def near(have: NDArray, want: npt.NDArray[np.complex128], tolerance: float) -> None:
    np.testing.assert_allclose(have.astype(np.complex128), want, rtol=tolerance)


def slopes(prim: Primitive, at: list[float]) -> list[float]:
    """Returns the derivative of a primitive of one operand."""
    (_, dot) = run(jvp(program(prim, Aval((len(at),), "float64")), (True,))[0], [np.array(at), np.ones(len(at))])
    return [float(v) for v in dot.astype(np.float64)]


@pytest.mark.parametrize(
    ("prim", "at", "want"),
    [
        (ew.ABS, [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]),
        (ew.SQRT, [0.0, 4.0], [INF, 0.25]),
        (ew.RSQRT, [4.0], [-0.0625]),
        (ew.CBRT, [0.0, 8.0], [INF, 1 / 12]),
        (ew.IntegerPow(1), [0.0], [1.0]),
        (ew.IntegerPow(3), [0.0, 2.0], [0.0, 12.0]),
        (ew.IntegerPow(-1), [0.0, 2.0], [-INF, -0.25]),
        (ew.LOG, [0.0, 2.0], [INF, 0.5]),
        (ew.LOG1P, [-1.0, 0.0], [INF, 1.0]),
        (ew.LOGISTIC, [-1000.0, 0.0, 1000.0], [0.0, 0.25, 0.0]),
        (ew.LOGIT, [0.0, 0.5, 1.0], [INF, 4.0, INF]),
        (ew.TANH, [-1000.0, 0.0, 1000.0], [0.0, 1.0, 0.0]),
        (ew.EXPM1, [-50.0], [math.exp(-50.0)]),
        (ew.ASIN, [-1.0, 0.0, 1.0], [INF, 1.0, INF]),
        (ew.ACOS, [-1.0, 0.0, 1.0], [-INF, -1.0, -INF]),
        (ew.ASIN, [1 - 2**-50], [2**25 / math.sqrt(2 - 2**-50)]),
        (ew.ATAN, [INF, 0.0], [0.0, 1.0]),
        (ew.ACOSH, [1.0], [INF]),
        (ew.ATANH, [0.0, 1.0], [1.0, INF]),
        (ew.ERF_INV, [0.0, 1.0], [math.sqrt(math.pi) / 2, INF]),
    ],
)
def test_slopes(prim: Primitive, at: list[float], want: list[float]) -> None:
    np.testing.assert_allclose(slopes(prim, at), want, rtol=1e-14)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize(
    ("prim", "at"),
    [
        (ew.ASINH, 30.0),
        (ew.ASINH, 300.0),
        (ew.ACOSH, 300.0),
        (ew.ATAN, 30.0),
        (ew.ATAN, 300.0),
        (ew.ERF, 30.0),
        (ew.IntegerPow(70000), 0.5),
        (ew.IntegerPow(-70000), 2.0),
    ],
)
def test_slopes_of_narrow_floats(prim: Primitive, at: float, dtype: str) -> None:
    """No intermediate square or exponential overflows: the derivatives are those of float64, rounded."""
    narrow = Aval((1,), dtype)
    x = np.array([at]).astype(narrow.dtype)
    (want,) = slopes(prim, [float(x.astype(np.float64)[0])])
    tangent, _ = jvp(program(prim, narrow), (True,))
    rounded = np.array([want]).astype(narrow.dtype).astype(np.float64)
    for found in (run(tangent, [x, np.ones_like(x)])[1], xla(tangent, x, np.ones_like(x))[1]):
        np.testing.assert_allclose(found.astype(np.float64), rounded, rtol=0.03, atol=0.002)


@pytest.mark.parametrize("at", [300.0, 1e-4])
def test_slopes_of_atan2_in_float16(at: float) -> None:
    args = [np.array([v], np.float16) for v in (at, at, 1, 0)]
    tangent, _ = jvp(program(ew.ATAN2, *[Aval((1,), "f16")] * 2), (True, False))
    np.testing.assert_allclose(xla(tangent, *args[:3])[1].astype(np.float64), [0.5 / at], rtol=0.01)


def test_slope_of_rsqrt_in_float16() -> None:
    """Regression: it was infinite, because twice the slope is."""
    x = np.array([5e-4], np.float16)
    tangent, _ = jvp(program(ew.RSQRT, Aval((1,), "f16")), (True,))
    for found in (run(tangent, [x, np.ones_like(x)])[1], xla(tangent, x, np.ones_like(x))[1]):
        np.testing.assert_allclose(found.astype(np.float64), -0.5 * x.astype(np.float64) ** -1.5, rtol=0.002)


def test_slope_of_a_small_power_in_float16() -> None:
    """Regression: it was infinite, because the power one less is."""
    x, y = np.array([7.2e-7], np.float16), np.array([-0.014], np.float16)
    tangent, _ = jvp(program(ew.POW, *[Aval((1,), "f16")] * 2), (True, False))
    base, exponent = x.astype(np.float64), y.astype(np.float64)
    for found in (run(tangent, [x, y, np.ones_like(x)])[1], xla(tangent, x, y, np.ones_like(x))[1]):
        np.testing.assert_allclose(found.astype(np.float64), exponent * base ** (exponent - 1), rtol=0.02)


def test_slope_of_acosh_of_huge_numbers() -> None:
    np.testing.assert_allclose(slopes(ew.ACOSH, [1e200]), [1e-200], rtol=1e-14)


def partials(prim: Primitive, *at: float) -> list[float]:
    """Returns the derivatives with respect to each operand."""
    found = []
    for k in range(len(at)):
        nonzero = tuple([i == k for i in range(len(at))])
        forward, moves = jvp(program(prim, *[F64] * len(at)), nonzero)
        outs = run(forward, [*[np.array(v) for v in at], np.array(1.0)])
        found.append(float(outs[1].astype(np.float64)) if moves == (True,) else 0.0)
    return found


@pytest.mark.parametrize(
    ("prim", "at", "want"),
    [
        (ew.MAX, (1.0, 1.0), [0.5, 0.5]),
        (ew.MIN, (1.0, 2.0), [1.0, 0.0]),
        (ew.MAX, (INF, INF), [0.5, 0.5]),
        (ew.POW, (0.0, 0.0), [0.0, 0.0]),
        (ew.POW, (0.0, 1.0), [1.0, 0.0]),
        (ew.POW, (0.0, 2.0), [0.0, 0.0]),
        (ew.POW, (2.0, 3.0), [12.0, 8 * math.log(2)]),
        (ew.POW, (-2.0, 2.0), [-4.0, NAN]),
        (ew.DIV, (0.0, 2.0), [0.5, 0.0]),
        (ew.REM, (7.5, 2.0), [1.0, -3.0]),
        (ew.REM, (-7.5, 2.0), [1.0, 3.0]),
        (ew.REM, (1.0, 0.001), [1.0, -999.0]),
        (ew.ATAN2, (0.0, 2.0), [0.5, 0.0]),
        (ew.CLAMP, (0.0, 0.5, 1.0), [0.0, 1.0, 0.0]),
        (ew.CLAMP, (0.0, -0.5, 1.0), [1.0, 0.0, 0.0]),
        (ew.CLAMP, (0.0, 1.5, 1.0), [0.0, 0.0, 1.0]),
        (ew.CLAMP, (0.0, 0.0, 1.0), [0.0, 0.0, 0.0]),
    ],
)
def test_partials(prim: Primitive, at: tuple[float, ...], want: list[float]) -> None:
    np.testing.assert_allclose(partials(prim, *at), want, rtol=1e-12)


def test_second_derivatives_of_pow_across_its_guards() -> None:
    first, _ = jvp(program(ew.POW, F64, F64), (True, False))
    mixed, _ = jvp(first, (False, True, False))
    outs = run(mixed, [np.array(v) for v in (2.0, 0.0, 1.0, 1.0)])
    np.testing.assert_allclose(outs[-1].astype(np.float64), 0.5)  # d/dy of y x^(y-1) at y = 0


def test_the_tangent_of_a_complex_sign_is_tangent_to_the_circle() -> None:
    z, dz, h = np.array(3 + 4j), np.array(1 - 2j), 1e-6
    p = program(ew.SIGN, Aval((), "complex128"))
    (_, dot) = run(jvp(p, (True,))[0], [z, dz])
    (up,), (down,) = run(p, [z + h * dz]), run(p, [z - h * dz])
    near(dot, (up.astype(np.complex128) - down.astype(np.complex128)) / (2 * h), 1e-8)
    (_, dot) = run(jvp(p, (True,))[0], [np.array(0j), dz])
    np.testing.assert_array_equal(dot, 0)


@pytest.mark.parametrize("at", [-2 + 1j, -2 - 1j, 2 + 1j, -0.5 + 0.5j])
@pytest.mark.parametrize("prim", [ew.ACOSH, ew.ASINH, ew.ATANH, ew.ASIN, ew.ACOS, ew.ATAN, ew.SQRT, ew.LOG])
def test_complex_branches(prim: Primitive, at: complex) -> None:
    p, h = program(prim, Aval((), "complex128")), 1e-6
    (_, dot) = run(jvp(p, (True,))[0], [np.array(at), np.array(1 + 0j)])
    (up,), (down,) = run(p, [np.array(at + h)]), run(p, [np.array(at - h)])
    near(dot, (up.astype(np.complex128) - down.astype(np.complex128)) / (2 * h), 1e-7)


def test_reasons_for_no_derivative() -> None:
    with pytest.raises(NotDifferentiableError) as caught:
        jvp(program(ew.NEXTAFTER, F64, F64), (True, False))
    assert caught.value.message == "nextafter: a step to the neighbouring float has no derivative"
    with pytest.raises(NotDifferentiableError) as caught:
        jvp(program(ew.POLYGAMMA, F64, F64), (True, False))
    assert caught.value.message == "polygamma: the order n has no derivative"
