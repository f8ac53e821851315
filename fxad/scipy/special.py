"""Special functions, as in `scipy.special`."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NoReturn

import numpy as np

from fxad import dtypes, lax, numpy as fnp
from fxad.errors import ParameterError
from fxad.nn.normalizations import log_softmax as _log_softmax, logsumexp, softmax as _softmax
from fxad.operations import special as operations
from fxad.operations.arguments import flag, to_int
from fxad.operations.axes import AxisLike
from fxad.scipy.arguments import broadcast_floats, reals
from fxad.scipy.bessel import bessel_jn
from fxad.scipy.complex_gamma import complex_gamma, complex_loggamma
from fxad.scipy.dilogarithm import spence
from fxad.scipy.error_functions import erfcinv, erfcx
from fxad.scipy.exponential_integrals import exp1, expi, expn
from fxad.scipy.faddeeva import dawsn, fresnel, wofz
from fxad.scipy.hypergeometric import hyp1f1, hyp2f1
from fxad.scipy.owens_t import owens_t
from fxad.scipy.spherical_harmonics import sph_harm_y
from fxad.scipy.trigonometric_integrals import sici
from fxad.scipy.zeta import hurwitz_zeta, riemann_zeta
from fxad.support.absent import absent
from fxad.tracing.array import Array, ArrayLike, binder


def digamma(x: ArrayLike) -> Array:
    """Return the derivative of gammaln: the logarithmic derivative of the gamma function."""
    return lax.digamma(*broadcast_floats("digamma", x))


def erf(x: ArrayLike) -> Array:
    """Return the error function."""
    return lax.erf(*broadcast_floats("erf", x))


def erfc(x: ArrayLike) -> Array:
    """Return 1 - erf(x), with all digits where it is small."""
    return lax.erfc(*broadcast_floats("erfc", x))


def erfinv(x: ArrayLike) -> Array:
    """Return the inverse of erf."""
    return lax.erf_inv(*broadcast_floats("erfinv", x))


def gammaln(x: ArrayLike) -> Array:
    """Return the logarithm of |gamma(x)|."""
    return lax.lgamma(*broadcast_floats("gammaln", x))


def i0(x: ArrayLike) -> Array:
    """Return the modified Bessel function of the first kind of order 0."""
    return lax.i0(*broadcast_floats("i0", x))


def i0e(x: ArrayLike) -> Array:
    """Return exp(-|x|) i0(x)."""
    return lax.bessel_i0e(*broadcast_floats("i0e", x))


def i1(x: ArrayLike) -> Array:
    """Return the modified Bessel function of the first kind of order 1."""
    return lax.i1(*broadcast_floats("i1", x))


def i1e(x: ArrayLike) -> Array:
    """Return exp(-|x|) i1(x)."""
    return lax.bessel_i1e(*broadcast_floats("i1e", x))


def ndtr(x: ArrayLike) -> Array:
    """Return the distribution function of the standard normal distribution."""
    return lax.ndtr(*broadcast_floats("ndtr", x))


def log_ndtr(x: ArrayLike, series_order: int = 3) -> Array:
    """Return log(ndtr(x)), also where ndtr(x) is 0. The terms of the series in the tail suffice for all digits, so a
    `series_order` from 0 to 30 changes nothing. Raises: ParameterError for another one."""
    if not 0 <= to_int("log_ndtr", "series_order", series_order) <= 30:
        raise ParameterError(f"log_ndtr: series_order is {series_order}", remedy="give a number from 0 to 30")
    return lax.log_ndtr(*broadcast_floats("log_ndtr", x))


def ndtri(p: ArrayLike) -> Array:
    """Return the quantile function of the standard normal distribution."""
    return lax.ndtri(*broadcast_floats("ndtri", p))


def expit(x: ArrayLike) -> Array:
    """Return 1 / (1 + exp(-x))."""
    return lax.expit(*broadcast_floats("expit", x))


def logit(x: ArrayLike) -> Array:
    """Return log(x / (1 - x))."""
    return lax.logit(*broadcast_floats("logit", x))


def entr(x: ArrayLike) -> Array:
    """Return -x log(x); 0 at 0, -inf below."""
    return lax.entr(*broadcast_floats("entr", x))


def gammainc(a: ArrayLike, x: ArrayLike) -> Array:
    """Return the regularized lower incomplete gamma function."""
    return lax.igamma(*broadcast_floats("gammainc", a, x))


def gammaincc(a: ArrayLike, x: ArrayLike) -> Array:
    """Return the regularized upper incomplete gamma function."""
    return lax.igammac(*broadcast_floats("gammaincc", a, x))


def betaln(a: ArrayLike, b: ArrayLike) -> Array:
    """Return the logarithm of |beta(a, b)|."""
    p, q, _ = _beta_off_poles(*broadcast_floats("betaln", a, b))
    return _log_abs_beta(p, q)


def xlogy(x: ArrayLike, y: ArrayLike) -> Array:
    """Return x log(y); 0 where x is 0."""
    return lax.xlogy(*broadcast_floats("xlogy", x, y))


def xlog1py(x: ArrayLike, y: ArrayLike) -> Array:
    """Return x log1p(y); 0 where x is 0."""
    return lax.xlog1py(*broadcast_floats("xlog1py", x, y))


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Return the regularized incomplete beta function."""
    return lax.betainc(*broadcast_floats("betainc", a, b, x))


def zeta(x: ArrayLike, q: ArrayLike | None = None) -> Array:
    """Return Hurwitz's zeta function, which is nan for x < 1; without q Riemann's, which is known on the real line. The
    derivative of Hurwitz's in x is nan unless x > 1 and q > 0."""
    if q is None:
        return riemann_zeta(*broadcast_floats("zeta", x))
    return hurwitz_zeta(*broadcast_floats("zeta", x, q))


def polygamma(n: ArrayLike, x: ArrayLike) -> Array:
    """Return the derivative of order n of digamma."""
    return lax.polygamma(*broadcast_floats("polygamma", n, x))


def psi(x: ArrayLike) -> Array:
    """Return `digamma` under its other name."""
    return digamma(x)


def gammasgn(x: ArrayLike) -> Array:
    """Return the sign of gamma(x): 1 or -1; nan at negative integers and nan."""
    (v,) = broadcast_floats("gammasgn", x)
    whole = fnp.floor(v)
    sign = fnp.where((v > 0) | (fnp.remainder(whole, 2) == 0), 1.0, -1.0)
    sign = fnp.where(((v < 0) & (v == whole)) | fnp.isnan(v), fnp.nan, sign)
    return fnp.where(v == 0, fnp.copysign(1.0, v), sign).astype(v.dtype)


def gamma(x: ArrayLike) -> Array:
    """Return the gamma function, also of complex numbers, where it is nan at the poles."""
    (v,) = broadcast_floats("gamma", x)
    if v.dtype in dtypes.COMPLEX:
        return complex_gamma(v)
    # gamma(1 + x) / x around 0, where gammaln is large, and its exponential loses digits
    small = fnp.abs(v) < 0.5
    shifted = fnp.where(small, v + 1, v)
    value = gammasgn(shifted) * fnp.exp(gammaln(shifted))
    # each branch takes only operands for which it is used, so no infinity reaches the derivative of the other
    return fnp.where(small, fnp.where(small, value, 1) / fnp.where(small, v, 1), value)


def beta(a: ArrayLike, b: ArrayLike) -> Array:
    """Return gamma(a) gamma(b) / gamma(a + b); where a or b is a pole of gamma its limit, or inf if there is none."""
    p, q, sign = _beta_off_poles(*broadcast_floats("beta", a, b))
    signs = sign * gammasgn(p) * gammasgn(q) * gammasgn(p + q)
    return fnp.where(_is_pole(p + q), 0, signs) * fnp.exp(_log_abs_beta(p, q))


def _log_abs_beta(p: Array, q: Array) -> Array:
    """Return log|beta(p, q)|. Below 0 the reflection of gamma (DLMF 5.5.3) gives beta at positive operands, where no
    digits are lost."""
    high, low, total = fnp.maximum(p, q), fnp.minimum(p, q), p + q
    both, one = (high < 0) & ~_is_pole(high) & ~_is_pole(low), (low < 0) & (high > 0) & ~_is_pole(low)
    above, below = one & (total > 0) & (high < fnp.inf), one & (total <= 0) & (low > -fnp.inf)
    x = fnp.where(both, 1 - high, fnp.where(above, total, fnp.where(below, high, p)))
    y = fnp.where(above | both, 1 - low, fnp.where(below, 1 - total, q))
    log = lax.betaln(x, y)
    sines = fnp.where(below | both, _log_sine(total, below | both), 0) - _log_sine(low, both | one)
    log = fnp.where(above | both, math.log(math.pi) - log, log) + fnp.where(both | above | below, sines, 0)
    log = log - fnp.where(both, _log_sine(high, both) + fnp.log(fnp.where(both, 1 - total, 1)), 0)
    return log - fnp.where(above, fnp.log(fnp.where(above, high, 1)), 0)


def _log_sine(x: Array, wanted: Array) -> Array:
    """Return log|sin(pi x)| where it is wanted, else 0."""
    x = fnp.where(wanted, x, 0.5)
    return fnp.log(fnp.abs(fnp.sin(math.pi * (x - lax.stop_gradient(fnp.round(x))))))


def _beta_off_poles(p: Array, q: Array) -> tuple[Array, Array, Array]:
    """Return x, y and the sign s such that beta(p, q) = s beta(x, y), where x and y are no poles of gamma if beta(p, q)
    is finite: beta(-n, q) = (-1)^q beta(1 + n - q, q) for integers 0 < q <= n."""
    swapped = _is_pole(q)
    x, y = fnp.where(swapped, q, p), fnp.where(swapped, p, q)
    pole = _is_pole(x)
    finite = pole & (y > 0) & (y == fnp.floor(y)) & (x + y <= 0)
    infinite = pole & ~finite
    sign = fnp.where(finite & (fnp.remainder(y, 2) == 1), -1.0, 1.0).astype(x.dtype)
    x = fnp.where(infinite & (x != 0), 0, fnp.where(finite, 1 - x - y, x))
    return x, fnp.where(infinite & ~fnp.isnan(y), 1, y), sign


def _is_pole(x: Array) -> Array:
    """Return True where gamma(x) is infinite."""
    return (x <= 0) & (x == fnp.floor(x))


def factorial(n: ArrayLike, exact: bool = False) -> Array:
    """Return n! = gamma(n + 1); 0 below 0. Raises: ParameterError for `exact`, which takes Python's ints."""
    if flag("factorial", "exact", exact):
        raise ParameterError("factorial: exact=True has no result of a floating dtype", remedy="use math.factorial")
    (v,) = broadcast_floats("factorial", n)
    return fnp.where(v < 0, 0.0, fnp.exp(lax.lgamma(v + 1)))


def poch(z: ArrayLike, m: ArrayLike) -> Array:
    """Return gamma(z + m) / gamma(z), with its limit where both are infinite; without cancellation where z and z + m
    have one sign."""
    a, b = broadcast_floats("poch", z, m)
    end, rising = a + b, b > 0
    # gamma(z + m) / gamma(z) = (-1)^m gamma(1 - z) / gamma(1 - z - m) for an integer m
    reflected = (b == fnp.floor(b)) & fnp.where(rising, (a <= 0) & (end <= 0), a < 1)
    same_side = (b != 0) & (reflected | ((a > 0) & (end > 0)))
    # with positive arguments: gamma(low + step) / gamma(low) = gamma(step) / beta(low, step), or the reciprocal of it
    low = fnp.where(reflected, fnp.where(rising, 1 - end, 1 - a), fnp.where(rising, a, end))
    low, step = fnp.where(same_side, low, 1), fnp.where(same_side, fnp.abs(b), 1)
    log = lax.lgamma(step) - lax.betaln(low, step)
    by_beta = fnp.exp(fnp.where(rising, log, -log))
    by_beta = fnp.where(reflected & (fnp.remainder(b, 2) == 1), -by_beta, by_beta)
    # across 0: the signs, and the difference of the logarithms
    bottom, top = fnp.where(same_side, 1, a), fnp.where(same_side, 1, end)
    by_lgamma = gammasgn(top) * gammasgn(bottom) * fnp.exp(lax.lgamma(top) - lax.lgamma(bottom))
    by_lgamma = fnp.where(_is_pole(bottom), 0 * top, fnp.where(_is_pole(top), fnp.inf, by_lgamma))
    by_lgamma = fnp.where((b == 0) & (_is_pole(a) | (a == fnp.inf)), 1, by_lgamma)
    return fnp.where(same_side, by_beta, by_lgamma)


def kl_div(p: ArrayLike, q: ArrayLike) -> Array:
    """Return p log(p / q) - p + q; q where p is 0, inf where one is negative or q alone is 0."""
    return binder().apply(operations.kl_div, tuple(broadcast_floats("kl_div", p, q)), ())[0]


def rel_entr(p: ArrayLike, q: ArrayLike) -> Array:
    """Return p log(p / q); 0 where p is 0, inf where one is negative or q alone is 0."""
    return binder().apply(operations.rel_entr, tuple(broadcast_floats("rel_entr", p, q)), ())[0]


def multigammaln(a: ArrayLike, d: int) -> Array:
    """Return the logarithm of the multivariate gamma function of dimension d."""
    (x,) = broadcast_floats("multigammaln", a)
    return lax.multigammaln(x, d)


def softmax(x: ArrayLike, /, *, axis: AxisLike = None) -> Array:
    """Return exp(x) over its sum; over all elements by default."""
    array = fnp.asarray(x)
    return _softmax(array, tuple(range(array.ndim)) if axis is None else axis)


def log_softmax(x: ArrayLike, /, *, axis: AxisLike = None) -> Array:
    """Return the logarithm of `softmax`."""
    array = fnp.asarray(x)
    return _log_softmax(array, tuple(range(array.ndim)) if axis is None else axis)


def loggamma(x: ArrayLike) -> Array:
    """Return the logarithm of gamma(x): of real numbers for x above 0, and nan below, where it is complex; of complex
    numbers the branch that is real for x above 0 and analytic but for the negative axis."""
    (a,) = broadcast_floats("loggamma", x)
    if a.dtype in dtypes.COMPLEX:
        return complex_loggamma(a)
    return fnp.where(a > 0, lax.lgamma(fnp.where(a > 0, a, 1)), fnp.where(a == 0, fnp.inf, fnp.nan))


def boxcox(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """Return (x**lmbda - 1) / lmbda, and its limit log(x) where lmbda is 0."""
    a, power = broadcast_floats("boxcox", *reals("boxcox", x, lmbda))
    return _box_cox(a, fnp.log, a, power)


def boxcox1p(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """Return `boxcox(1 + x, lmbda)`, with all digits for small x."""
    a, power = broadcast_floats("boxcox1p", *reals("boxcox1p", x, lmbda))
    return _box_cox(a, fnp.log1p, a + 1, power)


def _box_cox(x: Array, log: Callable[[Array], Array], base: Array, power: Array) -> Array:
    """Return (base**power - 1) / power, where log(x) is the logarithm of the base.

    Rule:   where the power is 0, the logarithm; near a base of 0 or infinity, where the result is finite, the formula
            itself, because the derivative of the logarithm there overflows; elsewhere expm1(power * log(x)) / power,
            and for a small exponent a series, whose derivative in the power exists at 0.
    """
    at_zero, at_infinity = base == 0, base == math.inf
    of_power = (at_zero | ((base > 0) & (base < 0.1) & (power > 1))) & (power > 0)
    of_power |= (at_infinity | ((base > 10) & (power < -1))) & (power < 0)
    at_pole = of_power | ((at_zero | at_infinity) & (power == 0))
    logarithm = log(fnp.where(of_power, 0.5, x))
    exponent = power * fnp.where(at_pole, 0, logarithm)
    small = fnp.abs(exponent) < 1e-3
    series = logarithm * (1 + exponent / 2 * (1 + exponent / 3 * (1 + exponent / 4)))
    smooth = fnp.where(small, series, fnp.expm1(exponent) / fnp.where(small, 1, power))
    divisor = fnp.where(of_power, power, 1)
    return fnp.where(of_power, (fnp.where(of_power, base, 1) ** divisor - 1) / divisor, smooth)


def comb(N: ArrayLike, k: ArrayLike, *, exact: bool = False, repetition: bool = False) -> Array:
    """Return the number of subsets of k elements of N, or of multisets with `repetition`; 0 for k below 0 or above N.

    Raises: ParameterError for `exact`: results are floating.
    """
    if flag("comb", "exact", exact):
        raise ParameterError("comb: exact=True has no result of a floating dtype", remedy="use math.comb")
    n, m = broadcast_floats("comb", N, k)
    if flag("comb", "repetition", repetition):
        n = fnp.where((n == 0) & (m == 0), 0, n + m - 1)  # of no elements there is the empty multiset
    inside = (m >= 0) & (n >= m) & (n >= 0)
    n, m = fnp.where(inside, n, 1), fnp.where(inside, m, 0)
    value = fnp.exp(-lax.betaln(n - m + 1, m + 1)) / (n + 1)
    whole = (n == fnp.floor(n)) & (m == fnp.floor(m)) & (value < 0.5 / fnp.finfo(value.dtype).eps)
    value = fnp.where(whole, lax.stop_gradient(fnp.round(value) - value) + value, value)
    return fnp.where(inside, value, 0)


def bernoulli(n: int) -> Array:
    """Return Bernoulli's numbers from the 0th to the nth."""
    count = to_int("bernoulli", "n", n)
    if count < 0:
        raise ParameterError(f"bernoulli: n is {count}", remedy="give 0 or more")
    if count > 1 << 24:
        raise ParameterError(f"bernoulli: n is {count}, and the numbers are computed on the host", remedy="give less")
    numbers = [Fraction(1)]
    for m in range(1, min(count, _BERNOULLIS) + 1):
        numbers.append(-sum([math.comb(m + 1, k) * b for k, b in enumerate(numbers)], Fraction(0)) / (m + 1))
    values = np.zeros(count + 1, np.float32)
    values[: len(numbers)] = numbers
    values[_BERNOULLIS + 2 :: 4], values[_BERNOULLIS + 4 :: 4] = np.inf, -np.inf
    return fnp.asarray(values)


_BERNOULLIS: Final = 64  # all further ones are 0 or out of the range of float32


if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        raise AttributeError(absent(__name__, name), name=name)


__all__ = [
    "bernoulli", "bessel_jn", "beta", "betainc", "betaln", "boxcox", "boxcox1p", "comb", "dawsn", "digamma", "entr",
    "erf", "erfc", "erfcinv", "erfcx", "erfinv", "exp1", "expi", "expit", "expn", "factorial", "fresnel", "gamma",
    "gammainc", "gammaincc", "gammaln", "gammasgn", "hyp1f1", "hyp2f1", "i0", "i0e", "i1", "i1e", "kl_div", "log_ndtr",
    "log_softmax", "loggamma", "logit", "logsumexp", "multigammaln", "ndtr", "ndtri", "owens_t", "poch", "polygamma",
    "psi", "rel_entr", "sici", "softmax", "spence", "sph_harm_y", "wofz", "xlog1py", "xlogy", "zeta",
]  # fmt: skip


def __dir__() -> list[str]:
    """Return the names of the module, without those that it imports."""
    return sorted(__all__)
