"""Elementwise functions with their first two derivatives, by mpmath, over the whole range of a dtype.

A result may differ from the true one by `ULPS` units in the last place, measured in two terms that are added:

- the true result;
- its change if the operand moves by one unit in the last place. So a formula may round its operand. exp(-x^2) of a
  rounded square is off by x^2 units; around a zero of a derivative the error is one of the operand.

Besides, a result may be off by four times the least normal number, because XLA treats subnormals as 0 in each step, and
at a subnormal operand it may be what it is at 0. In the interpreter the exponential of NumPy has few digits there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import ml_dtypes
import mpmath
import numpy as np
import numpy.typing as npt

import fxad as fx
import fxad.numpy as fnp
from fxad import Array, lax, nn
from fxad.scipy import special

mp = mpmath.mp
Real = Any  # mpmath has no types
Doubles = npt.NDArray[np.float64]
DTYPES: Final = ("float16", "bfloat16", "float32", "float64")
ULPS: Final = 8.0
PRECISION: Final = 220  # bits: twice a float64 is lost in a difference of nearly equal numbers


class Law(NamedTuple):
    """A function, its values and derivatives by mpmath, and where they hold."""

    function: Callable[..., Array]
    true: tuple[Callable[..., Real], ...]  # the value, the derivative, the second derivative
    low: float = -np.inf
    high: float = np.inf
    near: tuple[float, ...] = ()  # poles, zeros, branch points
    least: float = 0.0  # of the absolute value
    ulps: float | tuple[float, float, float] = ULPS  # for each derivative
    only: tuple[str, ...] = DTYPES


def _erfcx(x: Real, order: int) -> Real:
    """The scaled error function and its first two derivatives."""
    if x < -1e4:
        return [mp.inf, -mp.inf, mp.inf][order]
    if x > 1e4:  # the first terms of the asymptotic series
        h, root = 1 / (2 * x * x), mp.sqrt(mp.pi)
        terms = [(-1) ** k * mp.fac2(2 * k - 1) * h**k for k in range(12)]
        # x^(-2k - 1) is differentiated
        powers = [[1, -(2 * k + 1) / x, (2 * k + 1) * (2 * k + 2) / x**2][order] for k in range(12)]
        return mp.fsum([t * p for t, p in zip(terms, powers, strict=True)]) / (x * root)
    with mp.workprec(mp.prec * 3):
        value = mp.exp(x * x) * mp.erfc(x)
        slope = 2 * x * value - 2 / mp.sqrt(mp.pi)
        return [value, slope, 2 * value + 2 * x * slope][order]


def _erfcinv(x: Real) -> Real:
    """The y with erfc(y) = x."""
    if x > 0.5:
        return mp.erfinv(1 - x)
    start = mp.sqrt(-mp.log(x))
    return mp.findroot(lambda y: mp.log(mp.erfc(y)) - mp.log(x), start)


def _sech2(x: Real) -> Real:
    return mp.sech(x) ** 2 if abs(x) < 1e20 else mp.mpf(0)


def _exp(x: Real) -> Real:
    """e to the power x, 0 and infinite far outside of the range of float64."""
    return mp.mpf(0) if x < -1e6 else mp.inf if x > 1e6 else mp.exp(x)


def _gauss(x: Real) -> Real:
    """exp(-x^2)."""
    return _exp(-x * x)


def _logistic(x: Real) -> Real:
    return 1 / (1 + _exp(-x)) if x > -1e6 else mp.mpf(0)


def _logistic1(x: Real) -> Real:
    return _sech2(x / 2) / 4


def _logistic2(x: Real) -> Real:
    return -mp.tanh(x / 2) * _logistic1(x)


def _softplus(x: Real) -> Real:
    return x + mp.log1p(_exp(-x)) if x > 0 else mp.log1p(_exp(x))


def _erfc(x: Real) -> Real:
    return mp.mpf(0) if x > 1e4 else mp.mpf(2) if x < -1e4 else mp.erfc(x)


def _density(x: Real) -> Real:
    return _gauss(x / mp.sqrt(2)) / mp.sqrt(2 * mp.pi)


def _ndtr(x: Real) -> Real:
    return _erfc(-x / mp.sqrt(2)) / 2


def _hazard(x: Real) -> Real:
    """density / ndtr."""
    if x < -60:  # the asymptotic series of Mills' ratio
        total, term = mp.mpf(0), mp.mpf(1)
        for k in range(1, 40):
            total, term = total + term, -term * (2 * k - 1) / (x * x)
        return -x / total
    return _density(x) / _ndtr(x)


def _log_ndtr(x: Real) -> Real:
    if x < -60:
        return -x * x / 2 - mp.log(2 * mp.pi) / 2 - mp.log(_hazard(x))
    return mp.log1p(-_ndtr(-x)) if x > 0 else mp.log(_ndtr(x))


def _tanh_of_gelu(x: Real) -> tuple[Real, Real, Real]:
    c = 2 * mp.sqrt(2 / mp.pi)
    k = mp.mpf("0.044715")
    return c * (x + k * x**3), c * (1 + 3 * k * x * x), c * 6 * k * x


def _gelu1(x: Real) -> Real:
    u, v, _ = _tanh_of_gelu(x)
    return _logistic(u) + x * _logistic1(u) * v


def _gelu2(x: Real) -> Real:
    u, v, w = _tanh_of_gelu(x)
    return 2 * v * _logistic1(u) + x * (_logistic2(u) * v * v + _logistic1(u) * w)


def _mish(x: Real) -> tuple[Real, Real, Real]:
    a = _softplus(x)
    t, s, g = mp.tanh(a), _sech2(a), _logistic(x)
    return (
        x * t,
        t + x * s * g,
        2 * s * g + x * (s * _logistic1(x) - 2 * t * s * g * g),
    )


def _sinc(x: Real, order: int) -> Real:
    """sin(pi x) / (pi x) and its derivatives, by the Taylor series around 0."""
    if abs(x) < 0.01:
        terms = [
            (-1) ** k * mp.pi ** (2 * k) / mp.factorial(2 * k + 1) * mp.ff(2 * k, order) * x ** (2 * k - order)
            for k in range((order + 1) // 2, 24)
        ]
        return mp.fsum(terms)
    s, c = mp.sinpi(x), mp.cospi(x)
    value = s / (mp.pi * x)
    first = (c - value) / x
    return (value, first, -mp.pi * s / x - 2 * first / x)[order]


def _bessel(n: int, x: Real, order: int) -> Real:
    def i(k: int) -> Real:
        return mp.besseli(abs(k), x)

    if abs(x) > 1000:
        return mp.inf * (mp.sign(x) ** (n + order))
    if order == 0:
        return i(n)
    if order == 1:
        return (i(n - 1) + i(n + 1)) / 2
    return (i(n - 2) + 2 * i(n) + i(n + 2)) / 4


def _scaled_bessel(n: int, x: Real, order: int) -> Real:
    s = mp.sign(x)
    if abs(x) > 200:  # the asymptotic series; the terms of the rules cancel
        c = [mp.mpf(1)]
        for k in range(1, 40):
            c.append(c[-1] * ((2 * k - 1) ** 2 - 4 * n * n) / (8 * k))
        terms = [a * mp.ff(-k - mp.mpf(0.5), order) * abs(x) ** (-k - order - mp.mpf(0.5)) for k, a in enumerate(c)]
        return s ** (n + order) * mp.fsum(terms) / mp.sqrt(2 * mp.pi)
    v = [_bessel_large(n, x, k) for k in range(order + 1)]
    if order == 0:
        return v[0]
    return v[1] - s * v[0] if order == 1 else v[2] - 2 * s * v[1] + v[0]


def _bessel_large(n: int, x: Real, order: int) -> Real:
    """exp(-|x|) times the derivative."""

    def i(k: int) -> Real:
        return mp.exp(-abs(x)) * mp.besseli(abs(k), x)

    if order == 0:
        return i(n)
    return (i(n - 1) + i(n + 1)) / 2 if order == 1 else (i(n - 2) + 2 * i(n) + i(n + 2)) / 4


def _same(f: Callable[[Real], Real]) -> tuple[Callable[[Real], Real], ...]:
    return f, f, f


def _negative(*fs: Callable[[Real], Real]) -> tuple[Callable[[Real], Real], ...]:
    return tuple([lambda x, f=f: -f(x) for f in fs])


def _power(p: float) -> tuple[Callable[[Real], Real], ...]:
    a = mp.mpf(p)
    return lambda x: x**a, lambda x: a * x ** (a - 1), lambda x: a * (a - 1) * x ** (a - 2)


def _cbrt(x: Real) -> Real:
    return mp.sign(x) * mp.cbrt(abs(x))


def _where(mask: Callable[[Real], bool], yes: Sequence[Any], no: Sequence[Any]) -> tuple[Callable[[Real], Real], ...]:
    return tuple([lambda x, f=f, g=g: f(x) if mask(x) else g(x) for f, g in zip(yes, no, strict=True)])


def _beta(a: float, b: float) -> tuple[Callable[[Real], Real], ...]:
    """The incomplete beta function of x and its derivatives."""

    def density(x: Real) -> Real:
        return x ** (mp.mpf(a) - 1) * (1 - x) ** (mp.mpf(b) - 1) / mp.beta(a, b)

    return (
        lambda x: mp.betainc(a, b, 0, x, regularized=True),
        density,
        lambda x: density(x) * ((mp.mpf(a) - 1) / x - (mp.mpf(b) - 1) / (1 - x)),
    )


_IDENTITY: Final = (lambda x: x, lambda x: mp.mpf(1), lambda x: mp.mpf(0))
_EXPM1: Final = (lambda x: mp.expm1(x) if x > -1e6 else mp.mpf(-1), _exp, _exp)
_LOG_GAMMA: Final = (lambda x: mp.loggamma(x).real, mp.digamma, lambda x: mp.psi(1, x))


def _scaled(k: Real, fs: Sequence[Any]) -> tuple[Callable[[Real], Real], ...]:
    return tuple([lambda x, f=f: k * f(x) for f in fs])


_SELU_ALPHA: Final = 1.6732632423543772848170429916717
_SELU_SCALE: Final = 1.0507009873554804934193349852946

UNARY: Final[dict[str, Law]] = {
    "exp": Law(fnp.exp, _same(_exp)),
    "exp2": Law(
        fnp.exp2,
        tuple([lambda x, k=k: _exp(x * mp.log(2)) * mp.log(2) ** k for k in range(3)]),
        near=(127.5, 1024.0, 1024.25),
    ),
    "expm1": Law(fnp.expm1, _EXPM1),
    "log": Law(fnp.log, (mp.log, lambda x: 1 / x, lambda x: -1 / (x * x)), low=0, near=(1.0,)),
    "log2": Law(
        fnp.log2,
        (lambda x: mp.log(x) / mp.log(2), lambda x: 1 / (x * mp.log(2)), lambda x: -1 / (x * x * mp.log(2))),
        low=0,
        near=(1.0,),
    ),
    "log10": Law(
        fnp.log10,
        (lambda x: mp.log(x) / mp.log(10), lambda x: 1 / (x * mp.log(10)), lambda x: -1 / (x * x * mp.log(10))),
        low=0,
        near=(1.0,),
    ),
    "log1p": Law(fnp.log1p, (mp.log1p, lambda x: 1 / (1 + x), lambda x: -1 / (1 + x) ** 2), low=-1, near=(-1.0,)),
    "logistic": Law(lax.logistic, (_logistic, _logistic1, _logistic2)),
    "logit": Law(
        lax.logit,
        (
            lambda x: mp.log(x) - mp.log1p(-x),
            lambda x: 1 / (x * (1 - x)),
            lambda x: (2 * x - 1) / (x * (1 - x)) ** 2,
        ),
        low=0,
        high=1,
        near=(0.5, 1.0),
    ),
    "tanh": Law(fnp.tanh, (mp.tanh, _sech2, lambda x: -2 * mp.tanh(x) * _sech2(x))),
    "sin": Law(fnp.sin, (mp.sin, mp.cos, lambda x: -mp.sin(x)), near=(1.5707963, 3.14159265)),
    "cos": Law(fnp.cos, (mp.cos, lambda x: -mp.sin(x), lambda x: -mp.cos(x)), near=(1.5707963, 3.14159265)),
    "tan": Law(
        fnp.tan,
        (mp.tan, lambda x: 1 / mp.cos(x) ** 2, lambda x: 2 * mp.tan(x) / mp.cos(x) ** 2),
        near=(1.5707963, 3.14159265),
    ),
    "asin": Law(
        fnp.asin,
        (mp.asin, lambda x: 1 / mp.sqrt(1 - x * x), lambda x: x / mp.sqrt(1 - x * x) ** 3),
        low=-1,
        high=1,
        near=(-1.0, 1.0),
    ),
    "acos": Law(
        fnp.acos,
        (mp.acos, lambda x: -1 / mp.sqrt(1 - x * x), lambda x: -x / mp.sqrt(1 - x * x) ** 3),
        low=-1,
        high=1,
        near=(-1.0, 1.0),
    ),
    "atan": Law(fnp.atan, (mp.atan, lambda x: 1 / (1 + x * x), lambda x: -2 * x / (1 + x * x) ** 2)),
    "sinh": Law(fnp.sinh, (lambda x: (_exp(x) - _exp(-x)) / 2 if abs(x) > 1 else mp.sinh(x),
                           lambda x: (_exp(x) + _exp(-x)) / 2,
                           lambda x: (_exp(x) - _exp(-x)) / 2 if abs(x) > 1 else mp.sinh(x)), near=(89.0, 710.0)),
    "cosh": Law(fnp.cosh, (lambda x: (_exp(x) + _exp(-x)) / 2,
                           lambda x: (_exp(x) - _exp(-x)) / 2 if abs(x) > 1 else mp.sinh(x),
                           lambda x: (_exp(x) + _exp(-x)) / 2), near=(89.0, 710.0)),
    "asinh": Law(
        fnp.asinh,
        (
            lambda x: mp.sign(x) * mp.asinh(abs(x)),
            lambda x: 1 / mp.sqrt(1 + x * x),
            lambda x: -x / mp.sqrt(1 + x * x) ** 3,
        ),
    ),
    "acosh": Law(
        fnp.acosh,
        (mp.acosh, lambda x: 1 / mp.sqrt(x * x - 1), lambda x: -x / mp.sqrt(x * x - 1) ** 3),
        low=1,
        near=(1.0,),
    ),
    "atanh": Law(
        fnp.atanh,
        (mp.atanh, lambda x: 1 / (1 - x * x), lambda x: 2 * x / (1 - x * x) ** 2),
        low=-1,
        high=1,
        near=(-1.0, 1.0),
    ),
    "sqrt": Law(fnp.sqrt, _power(0.5), low=0),
    "rsqrt": Law(lax.rsqrt, _power(-0.5), low=0),
    "cbrt": Law(
        fnp.cbrt, (_cbrt, lambda x: 1 / (3 * _cbrt(x) ** 2), lambda x: -2 / (9 * _cbrt(x) ** 5))
    ),
    "square": Law(fnp.square, (lambda x: x * x, lambda x: 2 * x, lambda x: mp.mpf(2))),
    "reciprocal": Law(fnp.reciprocal, (lambda x: 1 / x, lambda x: -1 / x**2, lambda x: 2 / x**3)),
    "x^3": Law(lambda x: x**3, (lambda x: x**3, lambda x: 3 * x * x, lambda x: 6 * x)),
    "x^-2": Law(lambda x: x**-2, (lambda x: x**-2, lambda x: -2 * x**-3, lambda x: 6 * x**-4)),
    "x^1.5": Law(lambda x: x**1.5, _power(1.5), low=0),
    "x^-0.75": Law(lambda x: x**-0.75, _power(-0.75), low=0),
    "10^x": Law(
        lambda x: 10.0**x, tuple([lambda x, k=k: _exp(x * mp.log(10)) * mp.log(10) ** k for k in range(3)])
    ),
    "erf": Law(
        lax.erf,
        (
            lambda x: mp.erf(x) if abs(x) < 1e4 else mp.sign(x),
            lambda x: 2 / mp.sqrt(mp.pi) * _gauss(x),
            lambda x: -4 * x / mp.sqrt(mp.pi) * _gauss(x),
        ),
    ),
    "erfc": Law(
        lax.erfc,
        (
            _erfc,
            lambda x: -2 / mp.sqrt(mp.pi) * _gauss(x),
            lambda x: 4 * x / mp.sqrt(mp.pi) * _gauss(x),
        ),
    ),
    "erf_inv": Law(
        lax.erf_inv,
        (
            mp.erfinv,
            lambda x: mp.sqrt(mp.pi) / 2 * mp.exp(mp.erfinv(x) ** 2),
            lambda x: mp.pi / 2 * mp.erfinv(x) * mp.exp(2 * mp.erfinv(x) ** 2),
        ),
        low=-1,
        high=1,
        near=(-1.0, 1.0),
    ),
    "lgamma": Law(lax.lgamma, _LOG_GAMMA, low=0, near=(1.0, 2.0), ulps=24),  # XLA's
    "digamma": Law(
        lax.digamma, (mp.digamma, lambda x: mp.psi(1, x), lambda x: mp.psi(2, x)), low=0, near=(1.4616321449683622,)
    ),
    "sinc": Law(fnp.sinc, tuple([lambda x, k=k: _sinc(x, k) for k in range(3)]), near=(0.5, 1.0)),
    "i0": Law(lax.i0, tuple([lambda x, k=k: _bessel(0, x, k) for k in range(3)]), near=(8.0,)),
    "i1": Law(lax.i1, tuple([lambda x, k=k: _bessel(1, x, k) for k in range(3)]), near=(8.0,)),
    "i0e": Law(
        lax.bessel_i0e,
        tuple([lambda x, k=k: _scaled_bessel(0, x, k) for k in range(3)]),
        near=(8.0, 25.0),
        ulps=(ULPS, 400, 12000),  # i1e - i0e cancels up to 25
    ),
    "i1e": Law(
        lax.bessel_i1e,
        tuple([lambda x, k=k: _scaled_bessel(1, x, k) for k in range(3)]),
        near=(8.0, 25.0),
        ulps=(ULPS, 400, 12000),
    ),
    "entr": Law(
        lax.entr, (lambda x: -x * mp.log(x), lambda x: -mp.log(x) - 1, lambda x: -1 / x), low=0, near=(1.0, 0.3678794)
    ),
    "ndtr": Law(lax.ndtr, (_ndtr, _density, lambda x: -x * _density(x))),
    "log_ndtr": Law(
        lax.log_ndtr,
        (_log_ndtr, _hazard, lambda x: -_hazard(x) * (x + _hazard(x))),
        low=-1e8,
        near=(-20.0, -8.0),
        # the slope r is a quotient of exp(-x^2 / 2); the second derivative -r (x + r) cancels where r is close to -x
        ulps=(ULPS, 64, 4e4),
    ),
    "ndtri": Law(
        lax.ndtri,
        (
            lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1),
            lambda p: 1 / _density(mp.sqrt(2) * mp.erfinv(2 * p - 1)),
            lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1) / _density(mp.sqrt(2) * mp.erfinv(2 * p - 1)) ** 2,
        ),
        low=1e-30,
        high=1,
        near=(0.1, 0.5, 0.9, 1.0),
    ),
    "softplus": Law(nn.softplus, (_softplus, _logistic, _logistic1)),
    "log_sigmoid": Law(
        nn.log_sigmoid, (lambda x: -_softplus(-x), lambda x: _logistic(-x), lambda x: -_logistic1(x))
    ),
    "silu": Law(
        nn.silu,
        (
            lambda x: x * _logistic(x),
            lambda x: _logistic(x) + x * _logistic1(x),
            lambda x: 2 * _logistic1(x) + x * _logistic2(x),
        ),
        near=(-1.278464542761074,),
    ),
    "gelu": Law(nn.gelu, (lambda x: x * _logistic(_tanh_of_gelu(x)[0]), _gelu1, _gelu2)),
    "gelu_exact": Law(
        lambda x: nn.gelu(x, approximate=False),
        (
            lambda x: x * _ndtr(x),
            lambda x: _ndtr(x) + x * _density(x),
            lambda x: (2 - x * x) * _density(x),
        ),
    ),
    "mish": Law(nn.mish, tuple([lambda x, k=k: _mish(x)[k] for k in range(3)])),
    "elu": Law(nn.elu, _where(lambda x: x > 0, _IDENTITY, _EXPM1)),
    "celu": Law(nn.celu, _where(lambda x: x > 0, _IDENTITY, _EXPM1)),
    "selu": Law(
        nn.selu,
        _where(lambda x: x > 0, _scaled(_SELU_SCALE, _IDENTITY), _scaled(mp.mpf(_SELU_SCALE * _SELU_ALPHA), _EXPM1)),
    ),
    "soft_sign": Law(
        nn.soft_sign,
        (
            lambda x: x / (1 + abs(x)),
            lambda x: 1 / (1 + abs(x)) ** 2,
            lambda x: -2 * mp.sign(x) / (1 + abs(x)) ** 3,
        ),
        near=(1.0,),
    ),
    "squareplus": Law(
        nn.squareplus,
        (
            lambda x: (x + mp.sqrt(x * x + 4)) / 2 if x > 0 else 2 / (mp.sqrt(x * x + 4) - x),
            lambda x: (1 + x / mp.sqrt(x * x + 4)) / 2 if x > 0 else 2 / (mp.sqrt(x * x + 4) - x) / mp.sqrt(x * x + 4),
            lambda x: 2 / mp.sqrt(x * x + 4) ** 3,
        ),
    ),
    "log1mexp": Law(
        nn.log1mexp,
        (
            lambda x: mp.log(-mp.expm1(-x)) if x < 1 else mp.log1p(-_exp(-x)),
            lambda x: 1 / mp.expm1(x) if x < 1e6 else mp.mpf(0),
            lambda x: -mp.exp(x) / mp.expm1(x) ** 2 if x < 1e6 else mp.mpf(0),
        ),
        low=0,
        near=(0.6931471805599453,),
    ),
    "gamma": Law(
        special.gamma,
        (
            lambda x: mp.gamma(x) if x < 1e4 else mp.inf,
            lambda x: mp.gamma(x) * mp.digamma(x) if x < 1e4 else mp.inf,
            lambda x: mp.gamma(x) * (mp.digamma(x) ** 2 + mp.psi(1, x)) if x < 1e4 else mp.inf,
        ),
        low=0,
        high=33,  # it overflows in float32 then, and the second derivative is not known to be infinite
        only=DTYPES[1:],
        near=(1.0, 2.0),
    ),
    "exp1": Law(
        special.exp1,
        (
            lambda x: mp.e1(x) if x < 1e4 else mp.mpf(0),
            lambda x: -_exp(-x) / x,
            lambda x: _exp(-x) * (1 + 1 / x) / x,
        ),
        low=0,
    ),
    "erfcx": Law(special.erfcx, tuple([lambda x, k=k: _erfcx(x, k) for k in range(3)])),
    "erfcinv": Law(
        special.erfcinv,
        (
            _erfcinv,
            lambda x: -mp.sqrt(mp.pi) / 2 * mp.exp(_erfcinv(x) ** 2),
            lambda x: mp.pi / 2 * _erfcinv(x) * mp.exp(2 * _erfcinv(x) ** 2),
        ),
        low=0,
        high=2,
        near=(0.5, 1.0, 2.0),
    ),
    "spence": Law(
        special.spence,
        (
            lambda x: mp.polylog(2, 1 - x) if x < 3 else -(mp.log(x) ** 2) / 2 - mp.polylog(2, 1 - 1 / x),
            lambda x: mp.log(x) / (1 - x) if x != 1 else mp.mpf(-1),
            lambda x: 1 / (x * (1 - x)) + mp.log(x) / (1 - x) ** 2 if x != 1 else mp.mpf(0.5),
        ),
        low=0,
        near=(0.36787944117144233, 1.0, 2.718281828459045),
    ),
    "si": Law(
        lambda x: special.sici(x)[0],
        (
            mp.si,
            lambda x: mp.sin(x) / x,
            lambda x: (x * mp.cos(x) - mp.sin(x)) / x**2 if abs(x) > 1e-9 else x**3 / 30 - x / 3,
        ),
        near=(1.0, 4.0),
    ),
    "ci": Law(
        lambda x: special.sici(x)[1],
        (
            lambda x: mp.ci(abs(x)),
            lambda x: mp.cos(x) / x,
            lambda x: -(x * mp.sin(x) + mp.cos(x)) / x**2,
        ),
        near=(0.6165054856207162, 3.3841804225511864, 4.0),
    ),
    # in the tail the exponent, a logarithm, has as many units as it has digits before the point
    "betainc(2, 2**-7, x)": Law(
        lambda x: special.betainc(2.0, 2.0**-7, x),
        _beta(2, 2.0**-7),
        low=0,
        high=1,
        near=(0.5, 1.0),
        ulps=400,
        only=DTYPES[2:],
    ),
    "betainc(2**-10, 0.5, x)": Law(
        lambda x: special.betainc(2.0**-10, 0.5, x),
        _beta(2.0**-10, 0.5),
        low=0,
        high=1,
        near=(0.5, 1.0),
        ulps=(32, 400, 400),
        only=DTYPES[2:],
    ),
    "expi": Law(
        special.expi,
        (
            lambda x: mp.ei(x) if abs(x) < 1e4 else mp.inf if x > 0 else mp.mpf(0),
            lambda x: _exp(x) / x,
            lambda x: _exp(x) * (1 - 1 / x) / x,
        ),
        high=80,  # the second derivative is a difference of two that overflow
        only=DTYPES[1:],
        near=(0.37250741078136663,),
    ),
}  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- operands


def info(dtype: str) -> Any:
    """The limits of a dtype."""
    return ml_dtypes.finfo(fx.dtypes.as_dtype(dtype))  # type: ignore[no-untyped-call]


def points(law: Law, dtype: str, count: int) -> npt.NDArray[Any]:
    """Numbers of all magnitudes and both signs, and close to the points `near`, in the domain of the function."""
    rng = np.random.default_rng(0)
    limits, kind = info(dtype), fx.dtypes.as_dtype(dtype)
    low, high = np.log2(float(limits.smallest_subnormal)), np.log2(float(limits.max))
    exponents = np.linspace(low, high, count)
    size = np.exp2(exponents[:-1]) * rng.uniform(1, 1.9, count - 1)
    ordinary = np.exp2(np.linspace(-6, 11, count)) * rng.uniform(1, 1.1, count)  # where functions vary most
    digits = int(limits.nmant) + 1
    close = [p * (1 + s * 2.0**-k) for p in law.near for s in (0, -1, 1) for k in range(1, digits, 1 + digits // 12)]
    found = np.concatenate([size, -size, ordinary, -ordinary, [float(limits.max), -float(limits.max)], close])
    with np.errstate(over="ignore"):
        x = found.astype(kind).astype(np.float64)
    x = np.unique(x[np.isfinite(x) & (x > law.low) & (x < law.high) & (np.abs(x) > law.least)])
    return x.astype(kind)


class Truth(NamedTuple):
    """True results as the sum of two float64, and the changes of them by a unit in the last place of the operand."""

    high: Doubles
    low: Doubles
    change: Doubles


def truth(f: Callable[..., Real], xs: Sequence[Doubles], eps: float) -> Truth:
    """The results of mpmath at operands that are exact in float64."""
    high, low, change = [np.zeros(len(xs[0])) for _ in range(3)]
    with mpmath.workprec(PRECISION):
        for k, at in enumerate(zip(*xs, strict=True)):
            operands = [mp.mpf(float(v)) for v in at]
            value = f(*operands)
            high[k] = float(value)
            low[k] = float(value - mp.mpf(high[k])) if np.isfinite(high[k]) else 0.0
            for i, v in enumerate(operands):
                moved = f(*operands[:i], v * (1 + mp.mpf(eps) / 4), *operands[i + 1 :])
                step = abs(moved - value) * 4 if mp.isfinite(value) and mp.isfinite(moved) else mp.mpf(0)
                change[k] += float(step)
    return Truth(high, low, change)


# ----------------------------------------------------------------------------------------------------------- the law


def derivatives(f: Callable[[Array], Array]) -> Callable[[Array], tuple[Array, ...]]:
    """The value, the derivative in forward and in reverse mode, and the second derivative."""

    def forward(x: Array) -> Array:
        return fx.jvp(f, (x,), (fnp.ones_like(x),))[1]

    def reverse(x: Array) -> Array:
        slope: Array = fx.vjp(f, x)[1](fnp.ones_like(x))[0]
        return slope

    def of(x: Array) -> tuple[Array, ...]:
        return f(x), forward(x), reverse(x), fx.jvp(reverse, (x,), (fnp.ones_like(x),))[1]

    return of


ORDER: Final = (0, 1, 1, 2)
NAMES: Final = ("value", "slope", "slope in reverse", "second derivative")


def faults(have: Doubles, want: Truth, dtype: str, ulps: float) -> npt.NDArray[np.bool_]:
    """Where a result differs from the true one by more than the law allows."""
    limits = info(dtype)
    greatest, eps = float(limits.max), float(limits.eps)
    tiny = 4 * float(limits.smallest_normal)
    with np.errstate(all="ignore"):
        allowed = ulps * (eps * np.abs(want.high) + want.change) + tiny
        error = np.abs((have - want.high) - want.low)
        fine = error <= allowed
        # beyond the range the result is infinite; close to its end it may be
        beyond = np.abs(want.high) + allowed >= greatest
        fine |= beyond & (np.isinf(have) & (np.sign(have) == np.sign(want.high)))
        fine |= beyond & (np.abs(want.high) > greatest) & (np.abs(have) >= greatest * (1 - ulps * eps))
    return ~fine


def is_subnormal(x: Doubles, dtype: str) -> npt.NDArray[np.bool_]:
    return np.asarray(np.abs(x) < float(info(dtype).smallest_normal))


def ulps_of(law: Law, order: int) -> float:
    """What the law allows to a derivative of this order."""
    return law.ulps[order] if isinstance(law.ulps, tuple) else law.ulps


# ---------------------------------------------------------------------------------------------- of two numbers


def _xx(x: Real, y: Real) -> Real:
    return mp.hypot(x, y)


def _ratio(x: Real, y: Real) -> Real:
    return mp.log(x) - mp.log(y)


# the value, d/dx, d/dy, d2/dx2, d2/dxdy, d2/dy2; `low` holds for both operands
PARTIALS: Final = (0, 1, 1, 2, 2, 2)
BINARY: Final[dict[str, Law]] = {
    "hypot": Law(
        fnp.hypot,
        (
            _xx,
            lambda x, y: x / _xx(x, y),
            lambda x, y: y / _xx(x, y),
            lambda x, y: y * y / _xx(x, y) ** 3,
            lambda x, y: -x * y / _xx(x, y) ** 3,
            lambda x, y: x * x / _xx(x, y) ** 3,
        ),
    ),
    "atan2": Law(
        fnp.atan2,
        (
            mp.atan2,
            lambda x, y: y / (x * x + y * y),
            lambda x, y: -x / (x * x + y * y),
            lambda x, y: -2 * x * y / (x * x + y * y) ** 2,
            lambda x, y: (x * x - y * y) / (x * x + y * y) ** 2,
            lambda x, y: 2 * x * y / (x * x + y * y) ** 2,
        ),
    ),
    "divide": Law(
        fnp.divide,
        (
            lambda x, y: x / y,
            lambda x, y: 1 / y,
            lambda x, y: -x / y**2,
            lambda x, y: mp.mpf(0),
            lambda x, y: -1 / y**2,
            lambda x, y: 2 * x / y**3,
        ),
    ),
    "logaddexp": Law(
        fnp.logaddexp,
        (
            lambda x, y: max(x, y) + mp.log1p(_exp(-abs(x - y))),
            lambda x, y: _logistic(x - y),
            lambda x, y: _logistic(y - x),
            lambda x, y: _logistic1(x - y),
            lambda x, y: -_logistic1(x - y),
            lambda x, y: _logistic1(x - y),
        ),
    ),
    "xlogy": Law(
        lax.xlogy,
        (
            lambda x, y: x * mp.log(y),
            lambda x, y: mp.log(y),
            lambda x, y: x / y,
            lambda x, y: mp.mpf(0),
            lambda x, y: 1 / y,
            lambda x, y: -x / y**2,
        ),
        low=0,
    ),
    "xlog1py": Law(
        lax.xlog1py,
        (
            lambda x, y: x * mp.log1p(y),
            lambda x, y: mp.log1p(y),
            lambda x, y: x / (1 + y),
            lambda x, y: mp.mpf(0),
            lambda x, y: 1 / (1 + y),
            lambda x, y: -x / (1 + y) ** 2,
        ),
        low=0,
    ),
    "rel_entr": Law(
        special.rel_entr,
        (
            lambda x, y: x * _ratio(x, y),
            lambda x, y: _ratio(x, y) + 1,
            lambda x, y: -x / y,
            lambda x, y: 1 / x,
            lambda x, y: -1 / y,
            lambda x, y: x / y**2,
        ),
        low=0,
    ),
    "kl_div": Law(
        special.kl_div,
        (
            lambda x, y: x * _ratio(x, y) - x + y,
            _ratio,
            lambda x, y: 1 - x / y,
            lambda x, y: 1 / x,
            lambda x, y: -1 / y,
            lambda x, y: x / y**2,
        ),
        low=0,
    ),
}


def pairs(law: Law, dtype: str, count: int) -> list[npt.NDArray[Any]]:
    """Pairs of numbers of all magnitudes and both signs, equal ones and close ones."""
    rng = np.random.default_rng(0)
    limits, kind = info(dtype), fx.dtypes.as_dtype(dtype)
    # above the numbers whose differences are subnormal, and below those whose sums overflow
    low, high = np.log2(float(limits.smallest_normal)) + int(limits.nmant) + 2, np.log2(float(limits.max)) - 2
    n = 12 * count
    x = np.exp2(rng.uniform(low, high, n)) * rng.choice([-1, 1], n)
    y = np.exp2(rng.uniform(low, high, n)) * rng.choice([-1, 1], n)
    near = x * (1 + np.exp2(-rng.uniform(0, int(limits.nmant), n))) * rng.choice([-1, 1], n)
    ordinary = [rng.uniform(-3, 3, n) for _ in range(2)]
    both = [np.concatenate([x, x, ordinary[0]]), np.concatenate([y, near, ordinary[1]])]
    if law.low == 0:
        both = [np.abs(v) for v in both]
    return [v.astype(kind) for v in both]


def moderate(xs: Sequence[Doubles], dtype: str) -> npt.NDArray[np.bool_]:
    """Where no product of three numbers, or quotient by three, leaves the range: a second derivative may be a sum of
    infinite terms elsewhere."""
    bound = float(info(dtype).max) ** 0.3
    return np.asarray(np.all([(np.abs(x) < bound) & (np.abs(x) > 1 / bound) for x in xs], axis=0))


def partials(f: Callable[[Array, Array], Array]) -> Callable[[Array, Array], tuple[Array, ...]]:
    """The value, both partial derivatives in reverse mode, and the three second ones."""

    def of(x: Array, y: Array) -> tuple[Array, ...]:
        one, zero = fnp.ones_like(x), fnp.zeros_like(x)

        def gradient(x: Array, y: Array) -> tuple[Array, ...]:
            return fx.vjp(f, x, y)[1](one)

        first, along_x = fx.jvp(gradient, (x, y), (one, zero))
        _, along_y = fx.jvp(gradient, (x, y), (zero, one))
        return f(x, y), *first, *along_x, along_y[1]

    return of
