"""Coefficients of order 0 to 8 of every elementwise primitive, beside mpmath."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, Final

import mpmath
import numpy as np
import pytest

import fxad as fx
from fxad import dtypes, lax, numpy as fnp
from fxad.api.jet import jet_of_program
from fxad.core.builder import single_equation
from fxad.core.interpreter import run
from fxad.ir import Aval, Primitive
from fxad.primitives import ALL, elementwise as ew
from fxad.primitives.elementwise.bessel import BesselIOverPower
from fxad.primitives.elementwise.family import Binary, Unary
from fxad.transforms.jet.jet import jet

ORDER: Final = 8
Curve = tuple[float, float]  # the value, and the slope in t
Number = Any  # mpmath has no types


def _erf_inv(x: Number) -> Number:
    return mpmath.erfinv(x)


def _igamma(a: Number, x: Number) -> Number:
    return mpmath.gammainc(a, 0, x, regularized=True)


def _igammac(a: Number, x: Number) -> Number:
    return mpmath.gammainc(a, x, mpmath.inf, regularized=True)


def _bessel_over_power(order: int) -> Callable[[Number], Number]:
    return lambda x: mpmath.besseli(order, x) / x**order * mpmath.exp(-x)


# By name: the function, and intervals from which operands are drawn.
FUNCTIONS: Final[Mapping[str, tuple[Callable[..., Number], tuple[tuple[float, float], ...]]]] = {
    "neg": (lambda x: -x, ((-2, 2),)),
    "exp": (mpmath.exp, ((-2, 2),)),
    "exp2": (lambda x: mpmath.mpf(2) ** x, ((-2, 2),)),
    "expm1": (mpmath.expm1, ((-2, 2),)),
    "log": (mpmath.log, ((0.3, 3),)),
    "log1p": (mpmath.log1p, ((-0.5, 3),)),
    "log2": (lambda x: mpmath.log(x, 2), ((0.3, 3),)),
    "log10": (mpmath.log10, ((0.3, 3),)),
    "logistic": (lambda x: 1 / (1 + mpmath.exp(-x)), ((-3, 3),)),
    "logit": (lambda x: mpmath.log(x / (1 - x)), ((0.2, 0.8),)),
    "square": (lambda x: x * x, ((-2, 2),)),
    "integer_pow": (lambda x: x**5, ((-2, 2),)),
    "sqrt": (mpmath.sqrt, ((0.3, 3),)),
    "rsqrt": (lambda x: 1 / mpmath.sqrt(x), ((0.3, 3),)),
    "cbrt": (mpmath.cbrt, ((0.3, 3),)),
    "abs": (lambda x: -x, ((-2, -1),)),
    "erf": (mpmath.erf, ((-2, 2),)),
    "erfc": (mpmath.erfc, ((-2, 2),)),
    "erf_inv": (_erf_inv, ((-0.7, 0.7),)),
    "lgamma": (mpmath.loggamma, ((0.5, 4),)),
    "digamma": (mpmath.digamma, ((0.5, 4),)),
    "sin": (mpmath.sin, ((-2, 2),)),
    "cos": (mpmath.cos, ((-2, 2),)),
    "tan": (mpmath.tan, ((-1, 1),)),
    "asin": (mpmath.asin, ((-0.7, 0.7),)),
    "acos": (mpmath.acos, ((-0.7, 0.7),)),
    "atan": (mpmath.atan, ((-2, 2),)),
    "sinh": (mpmath.sinh, ((-2, 2),)),
    "cosh": (mpmath.cosh, ((-2, 2),)),
    "tanh": (mpmath.tanh, ((-2, 2),)),
    "sech2": (lambda x: mpmath.sech(x) ** 2, ((-2, 2),)),
    "asinh": (mpmath.asinh, ((-2, 2),)),
    "acosh": (mpmath.acosh, ((1.5, 3),)),
    "atanh": (mpmath.atanh, ((-0.7, 0.7),)),
    "bessel_i0e": (lambda x: mpmath.besseli(0, x) * mpmath.exp(-x), ((0.5, 3),)),
    "bessel_i1e": (lambda x: mpmath.besseli(1, x) * mpmath.exp(-x), ((0.5, 3),)),
    "bessel_i_over_power": (_bessel_over_power(1), ((0.5, 3),)),
    "add": (lambda x, y: x + y, ((-2, 2), (-2, 2))),
    "sub": (lambda x, y: x - y, ((-2, 2), (-2, 2))),
    "mul": (lambda x, y: x * y, ((-2, 2), (-2, 2))),
    "mul_no_nan": (lambda x, y: x * y, ((-2, 2), (-2, 2))),
    "div": (lambda x, y: x / y, ((-2, 2), (0.5, 2))),
    "rem": (lambda x, y: x - 2 * y, ((2.2, 2.8), (1, 1))),
    "max": (lambda x, y: x, ((1, 2), (-2, 0))),
    "min": (lambda x, y: y, ((1, 2), (-2, 0))),
    "xlogy": (lambda x, y: x * mpmath.log(y), ((-2, 2), (0.5, 3))),
    "xlog1py": (lambda x, y: x * mpmath.log1p(y), ((-2, 2), (-0.5, 3))),
    "pow": (lambda x, y: x**y, ((0.5, 3), (-2, 2))),
    "hypot": (lambda x, y: mpmath.sqrt(x * x + y * y), ((0.5, 2), (0.5, 2))),
    "direction_cosine": (lambda x, y: x / mpmath.sqrt(x * x + y * y), ((0.5, 2), (0.5, 2))),
    "atan2": (mpmath.atan2, ((0.5, 2), (0.5, 2))),
    "polygamma": (lambda n, x: mpmath.polygamma(int(n), x), ((2, 2), (0.7, 3))),
    "zeta": (lambda s, q: mpmath.zeta(s, q), ((3, 3), (0.7, 3))),
    "igamma": (_igamma, ((2, 2), (0.5, 3))),
    "igammac": (_igammac, ((2, 2), (0.5, 3))),
}
# Why the others have no entry.
CONSTANT: Final = {
    "convert_element_type", "reduce_precision", "stop_gradient", "sign", "floor", "ceil", "round", "nextafter",
    "is_finite", "not", "population_count", "clz", "and", "or", "xor", "shift_left", "shift_right_logical",
    "shift_right_arithmetic",
}  # fmt: skip
COMPLEX: Final = {"real", "imag", "conj"}  # linear: see the laws beside nested jvp
# Derivatives of samplers, whose own derivatives are not known.
PARTLY: Final = {"igamma_grad_a", "random_gamma_grad", "gamma_sample"}
OPERANDS: Final = {"integer_pow": ew.IntegerPow(5), "bessel_i_over_power": BesselIOverPower(1, True)}


def _primitive(kind: type[Primitive]) -> Primitive:
    return OPERANDS[kind.name] if kind.name in OPERANDS else kind()


def _along(function: Callable[..., Number], values: list[float], slopes: list[float]) -> Callable[[Number], Number]:
    return lambda t: function(*[mpmath.mpf(x) + mpmath.mpf(s) * t for x, s in zip(values, slopes, strict=True)])


def test_every_elementwise_primitive_is_here() -> None:
    names = {k.name for k in ALL if issubclass(k, Unary | Binary)}
    assert names == {*FUNCTIONS, *CONSTANT, *COMPLEX, *PARTLY}


@pytest.mark.parametrize("kind", [k for k in ALL if k.name in FUNCTIONS], ids=lambda kind: kind.name)
def test_coefficients(kind: type[Primitive]) -> None:
    """By the tangent rule or a row, and by the composition of a series and the derivatives at its first value."""
    function, intervals = FUNCTIONS[kind.name]
    rng = np.random.default_rng([ord(c) for c in kind.name])
    scalar = Aval((), dtypes.float64)
    program = single_equation(_primitive(kind), [scalar] * len(intervals))
    moves = [low < high for low, high in intervals]
    for composed in (False, True) if issubclass(kind, Unary) else (False,):
        series, has = jet(program, tuple([(m, *[False] * (ORDER - 1)) for m in moves]), composed)
        for _ in range(3):
            values = [rng.uniform(low, high) for low, high in intervals]
            slopes = [rng.uniform(0.5, 1.5) if m else 0.0 for m in moves]
            outs = run(
                series,
                [np.asarray(x) for x in values] + [np.asarray(s) for s, m in zip(slopes, moves, strict=True) if m],
            )
            higher = iter(outs[1:])
            have = [float(outs[0]), *[float(next(higher)) if m else 0.0 for m in has[0]]]
            with mpmath.workdps(40):
                want = [float(c) for c in mpmath.taylor(_along(function, values, slopes), 0, ORDER + 1)]
            # the condition: how coefficient k changes with the operands, and with the coefficients before it
            for k in range(ORDER + 1):
                condition = (
                    abs(want[k])
                    + (k + 1) * abs(want[k + 1]) * max(map(abs, values))
                    + 0.1 * max(map(abs, want[: k + 1]))
                )
                assert abs(have[k] - want[k]) <= 1e-13 * condition, (k, have[k], want[k], values)


def _softplus(x: Number) -> Number:
    return mpmath.log1p(mpmath.exp(x))


# Where a formula that is not written with care has nan, infinity, or no digits: at zeros, and far out.
EXTREME: Final[Mapping[str, tuple[Callable[[Any], Any], Callable[[Number], Number], tuple[float, ...]]]] = {
    "tanh": (fnp.tanh, mpmath.tanh, (0, 20, 400)),
    "logistic": (lax.logistic, lambda x: 1 / (1 + mpmath.exp(-x)), (0, 40, -40)),
    "softplus": (fx.nn.softplus, _softplus, (0, 40, -40)),
    "log_sigmoid": (fx.nn.log_sigmoid, lambda x: -_softplus(-x), (0, 40, -40)),
    "logaddexp": (lambda x: fnp.logaddexp(x, 2.0), lambda x: 2 + _softplus(x - 2), (2, 40, -40)),
    "erf": (lax.erf, mpmath.erf, (0, 6, -6)),
    "sinc": (fnp.sinc, lambda x: mpmath.sincpi(x), (0, 1e-8, 1e-3, 0.5)),
    "cube": (lambda x: x**3, lambda x: x**3, (0,)),
    "product": (lambda x: fnp.prod(fnp.stack([x, x + 1, x - 1])), lambda x: x**3 - x, (0, 1, -1)),
    "running product": (lambda x: fnp.cumprod(fnp.stack([x, x + 1, x - 1]))[2], lambda x: x**3 - x, (0, 1, -1)),
    "hypot": (lambda x: fnp.hypot(x, 3.0), lambda x: mpmath.sqrt(x * x + 9), (0, 1e4)),
    "softmax": (
        lambda x: fx.nn.softmax(fnp.stack([x, 2 * x]))[0],
        lambda x: 1 / (1 + mpmath.exp(x)),
        (0, 40, -40),
    ),
    "singular determinant": (
        lambda x: fnp.linalg.det(fnp.stack([fnp.stack([x, x]), fnp.stack([x, x * x])])),
        lambda x: x**3 - x * x,
        (0, 1),
    ),
    "gelu": (
        lambda x: fx.nn.gelu(x, approximate=False),
        lambda x: x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2,
        (0, 5, -5, 40),
    ),
}


@pytest.mark.parametrize("name", EXTREME)
def test_coefficients_at_extreme_points(name: str) -> None:
    f, function, points = EXTREME[name]
    program = fx.trace(f, fx.Spec((), "float64"))
    ways = [fx.jet(program, order=5, given=1), jet_of_program(program, 5, 1, composed=True)]
    for x, series in product(points, ways):
        value, higher = fx.interpret(series, (np.float64(x),), ((np.float64(1.0),),))
        with mpmath.workdps(80):
            want = np.array([float(c) for c in mpmath.taylor(function, mpmath.mpf(x), 5)])
        np.testing.assert_allclose([value, *higher], want, rtol=1e-9, atol=1e-12 * abs(want).max(), err_msg=f"at {x}")


@pytest.mark.parametrize(
    ("prim", "f", "x"),
    [
        *[(ew.TANH, mpmath.tanh, x) for x in (0.0, 1e-5, 0.3, 18.0, -25.0)],
        *[(ew.LOGISTIC, lambda x: 1 / (1 + mpmath.exp(-x)), x) for x in (0.0, 1e-5, 2.0, 30.0, -40.0)],
        *[(ew.SQRT, mpmath.sqrt, x) for x in (1e-3, 0.7, 1e4)],
        *[(ew.SQUARE, lambda x: x * x, x) for x in (0.0, 1e-5, 100.0)],
    ],
)
def test_rows_of_curves_with_all_coefficients_keep_their_digits(prim: Primitive, f: Any, x: float) -> None:
    """Each coefficient, also where the function is close to its limit, or to a point where an even derivative is 0."""
    curve = (0.5, -0.3, 0.2, 0.7, -0.1, 0.05, 0.3, 0.2)
    with mpmath.workdps(60):
        powers = list(enumerate(map(mpmath.mpf, (x, *curve))))
        exact = mpmath.taylor(lambda t: f(sum([c * t**k for k, c in powers])), 0, ORDER)
    for composed in (False, True):
        series, has = jet(single_equation(prim, (Aval((), dtypes.float64),)), ((True,) * ORDER,), composed)
        first, *higher = [float(y) for y in run(series, [np.asarray(a) for a in (x, *curve)])]
        found = [first, *[higher.pop(0) if m else 0.0 for m in has[0]]]
        np.testing.assert_allclose(found, [float(y) for y in exact], rtol=1e-14)
