"""Every function of pairs of float64, beside mpmath with 60 digits and, where there is no number, beside `impl`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.primitives.elementwise import arithmetic, exponential, powers, sigmoid, trigonometric
from fxad.primitives.elementwise.select import Clamp
from fxad.transforms.precision import double_double
from fxad.transforms.precision.double_double import evaluate, pair

RNG = np.random.default_rng(0)
EDGES = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 0.5, -0.5, 3, 2, 710, -740, 100, -100])
HUGE = np.array([1e-300, 1e300, -1e300, 1e160, 1e-160, 1e301])


def log_of_base(base: int) -> Callable[[Any], Any]:
    return lambda x: mpmath.log(x) / mpmath.log(base)


# The function, the number of operands, the relative error, and the size of operands beyond which it is that of float64.
# It is for tiny operands and results too: a rest that underflows is 0.
FUNCTIONS: dict[type, tuple[Callable[..., Any], int, float, float]] = {
    arithmetic.Add: (lambda x, y: x + y, 2, 1e-31, np.inf),
    arithmetic.Sub: (lambda x, y: x - y, 2, 1e-31, np.inf),
    arithmetic.Mul: (lambda x, y: x * y, 2, 1e-31, np.inf),
    arithmetic.MulNoNan: (lambda x, y: x * y, 2, 1e-31, np.inf),
    arithmetic.Div: (lambda x, y: x / y, 2, 1e-30, 1e280),
    arithmetic.Neg: (lambda x: -x, 1, 0, np.inf),
    arithmetic.Max: (max, 2, 0, np.inf),
    arithmetic.Min: (min, 2, 0, np.inf),
    powers.Abs: (abs, 1, 0, np.inf),
    powers.Sqrt: (mpmath.sqrt, 1, 1e-30, np.inf),
    powers.Rsqrt: (lambda x: 1 / mpmath.sqrt(x), 1, 1e-30, np.inf),
    powers.Square: (lambda x: x * x, 1, 1e-31, np.inf),
    powers.Pow: (mpmath.power, 2, 1e-27, 1e100),
    powers.Hypot: (mpmath.hypot, 2, 1e-30, np.inf),
    powers.Cbrt: (lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), 1, 1e-29, 1e100),
    exponential.Exp: (mpmath.exp, 1, 1e-28, 690),
    exponential.Exp2: (lambda x: mpmath.power(2, x), 1, 1e-28, 990),
    exponential.Expm1: (mpmath.expm1, 1, 1e-28, 690),
    exponential.Log: (mpmath.log, 1, 1e-29, 1e100),
    exponential.Log1p: (mpmath.log1p, 1, 1e-29, np.inf),
    exponential.Log2: (log_of_base(2), 1, 1e-29, 1e100),
    exponential.Log10: (log_of_base(10), 1, 1e-29, 1e100),
    sigmoid.Logistic: (lambda x: 1 / (1 + mpmath.exp(-x)), 1, 1e-28, 690),
    sigmoid.Tanh: (mpmath.tanh, 1, 1e-29, np.inf),
    trigonometric.Sin: (mpmath.sin, 1, 1e-27, 1e5),
    trigonometric.Cos: (mpmath.cos, 1, 1e-27, 1e5),
    trigonometric.Tan: (mpmath.tan, 1, 1e-27, 1e5),
    trigonometric.Sinh: (mpmath.sinh, 1, 1e-28, 690),
    trigonometric.Cosh: (mpmath.cosh, 1, 1e-28, 690),
    trigonometric.Asin: (mpmath.asin, 1, 1e-27, 0.99),
    trigonometric.Acos: (mpmath.acos, 1, 1e-27, 0.99),
    trigonometric.Atan: (mpmath.atan, 1, 1e-27, 1e5),
    trigonometric.Asinh: (mpmath.asinh, 1, 1e-27, 1e5),
    trigonometric.Acosh: (mpmath.acosh, 1, 1e-27, 1e5),
    trigonometric.Atanh: (mpmath.atanh, 1, 1e-27, 0.99),
}


def operands(count: int) -> list[Any]:
    """Returns drawn numbers of several sizes; edges, each with each; and huge and tiny ones."""
    drawn = [RNG.normal(size=60) * 10.0 ** RNG.integers(-5, 5, 60) for _ in range(count)]
    edges = np.concatenate([EDGES, HUGE])
    return [np.concatenate([a, b.ravel()]) for a, b in zip(drawn, np.meshgrid(*[edges] * count), strict=True)]


def test_every_function_has_a_row() -> None:
    assert {*double_double._OF_OPERANDS} - {*FUNCTIONS} == {Clamp}


@pytest.mark.parametrize("prim", FUNCTIONS, ids=lambda p: p.__name__)
def test_values(prim: Any) -> None:
    function, count, tolerance, largest = FUNCTIONS[prim]
    xs = operands(count)
    with np.errstate(all="ignore"):
        ((high, rest),), _ = evaluate(prim(), [pair(x) for x in xs])
        in_float64 = prim().impl(*xs)[0]
    compared = 0
    with mpmath.workdps(60):
        for k, given in enumerate(zip(*xs, strict=True)):
            want = in_float64[k]
            if not (np.isfinite(want) and np.isfinite(given).all()):
                assert np.isnan(high[k]) == np.isnan(want), given
                assert high[k] == want or np.isnan(want) or np.isfinite(high[k]), given
            elif max(np.abs(given)) > largest or 0 < min(np.abs(given)) < 1e-130 or not 1e-280 < abs(want) < 1e300:
                np.testing.assert_allclose(high[k], want, rtol=1e-15, atol=1e-300)
            else:
                true = function(*[mpmath.mpf(float(x)) for x in given])
                assert abs(mpmath.mpf(high[k]) + mpmath.mpf(rest[k]) - true) <= tolerance * abs(true), given
                compared += 1
    assert compared > 10


def test_shadows_of_programs() -> None:
    """A masked softmax, an overflow inside of a norm, and a maximum that two roundings decide."""
    x = np.array([1.0, 2.0, 3.0])

    def softmax(x: Any) -> Any:
        e = fnp.exp(x - fnp.max(x))
        return e / fnp.sum(e)

    programs: list[Any] = [
        lambda x: softmax(fnp.where(x > 2.5, -np.inf, x)),
        lambda x: fnp.hypot(x * 1e200, 1e200),
        lambda x: x * 1e301,
    ]
    for f in programs:
        shadow = fx.shadow(fx.trace(f, x), x)
        assert shadow.relative < 1e-14

    def unordered(x: Any) -> Any:
        return fnp.maximum(x, np.nan)

    assert fx.shadow(fx.trace(unordered, x), x).error == 0
    one = np.array([0.5])

    def rounded(x: Any) -> Any:
        return fnp.maximum(1e16 + x, 1e16 + 2 * x) - 1e16

    assert fx.shadow(fx.trace(rounded, one), one).error == 1.0

    def power(x: Any, y: Any) -> Any:
        return x**y

    cubes = fx.trace(power, x, x)
    assert not fx.shadow(cubes, -x, x).approximate
