"""Distributions with a density. Formulas are those of the standardized variable.

Source: Johnson, Kotz, Balakrishnan, Continuous Univariate Distributions (1994, 1995).
"""

from __future__ import annotations

import math
from typing import Final

import fxad.numpy as fnp
from fxad import dtypes, lax
from fxad.nn.activations import log1mexp, softplus
from fxad.scipy import special
from fxad.scipy.stats.densities import beta_log_pdf, gamma_log_pdf
from fxad.scipy.stats.distribution import Continuous, with_slope
from fxad.scipy.stats.tails import log_betainc, log_gammainc, log_gammaincc
from fxad.tracing.array import Array

_LOG_2PI: Final = math.log(2 * math.pi)
_POSITIVE: Final = (0.0, math.inf)


def _norm_logpdf(y: Array) -> Array:
    return -0.5 * (y * y + _LOG_2PI)


norm: Final = Continuous(
    "norm",
    (),
    log_density=_norm_logpdf,
    functions={
        "cdf": lax.ndtr,
        "sf": lambda y: lax.ndtr(-y),
        "logcdf": lax.log_ndtr,
        "logsf": lambda y: lax.log_ndtr(-y),
        "ppf": lax.ndtri,
        "isf": lambda q: -lax.ndtri(q),
    },
)


def beta_sf(y: Array, a: Array, b: Array) -> Array:
    """Return the probability of values above y, with all digits of a small y."""
    below = special.betainc(a, b, y)
    return fnp.where(below < 0.9, 1 - below, special.betainc(b, a, 1 - y))  # 1 - y loses the digits of a small y


def beta_logsf(y: Array, a: Array, b: Array) -> Array:
    """Return the logarithm of `beta_sf`, also where that is below the smallest float."""
    below = special.betainc(a, b, y)
    small = below < 0.25  # 1 - y loses the digits of a small y
    above = log_betainc(b, a, fnp.where(small, 0.5, 1 - y))
    return fnp.where(small, fnp.log1p(-fnp.where(small, below, 0)), above)


beta: Final = Continuous(
    "beta",
    ("a", "b"),
    log_density=lambda y, a, b: beta_log_pdf(a, b, y),
    functions={
        "cdf": lambda y, a, b: special.betainc(a, b, y),
        "sf": beta_sf,
        "logcdf": lambda y, a, b: log_betainc(a, b, y),
        "logsf": beta_logsf,
    },
    support=(0.0, 1.0),
    inside=0.5,
)


def _cauchy_isf(q: Array) -> Array:
    # cot(pi q) by the distance of q to 0, 1/2 or 1, whose tangent has all its digits; infinite at both ends
    low, middle = q < 0.5, fnp.abs(q - 0.5) < 0.25
    tangent = fnp.tan(math.pi * fnp.where(middle, q - 0.5, fnp.where(low, q, 1 - q)))
    cotangent = fnp.abs(1 / fnp.where(middle, 1, tangent))  # abs, for q is -0.0 too
    return fnp.where(middle, -tangent, fnp.where(low, 1.0, -1.0) * cotangent)


def _log1p_square(y: Array) -> Array:
    """Return log(1 + y^2), where the square would overflow too."""
    far = fnp.abs(y) > 1
    size = fnp.where(far, fnp.abs(y), 1)
    return 2 * fnp.log(size) + fnp.log1p(fnp.square(fnp.where(far, 1 / size, y)))


cauchy: Final = Continuous(
    "cauchy",
    (),
    log_density=lambda y: -math.log(math.pi) - _log1p_square(y),
    functions={
        # atan2 keeps the digits of small probabilities
        "cdf": lambda y: fnp.atan2(fnp.ones_like(y), -y) / math.pi,
        "sf": lambda y: fnp.atan2(fnp.ones_like(y), y) / math.pi,
        "ppf": lambda q: -_cauchy_isf(q),
        "isf": _cauchy_isf,
    },
)


gamma: Final = Continuous(
    "gamma",
    ("a",),
    log_density=lambda y, a: gamma_log_pdf(a, y),
    functions={
        "cdf": lambda y, a: special.gammainc(a, y),
        "sf": lambda y, a: special.gammaincc(a, y),
        "logcdf": lambda y, a: log_gammainc(a, y),
        "logsf": lambda y, a: log_gammaincc(a, y),
    },
    support=_POSITIVE,
    inside=1.0,
)

chi2: Final = Continuous(
    "chi2",
    ("df",),
    log_density=lambda y, df: gamma_log_pdf(df / 2, y / 2) - math.log(2),
    functions={
        "cdf": lambda y, df: special.gammainc(df / 2, y / 2),
        "sf": lambda y, df: special.gammaincc(df / 2, y / 2),
        "logcdf": lambda y, df: log_gammainc(df / 2, y / 2),
        "logsf": lambda y, df: log_gammaincc(df / 2, y / 2),
    },
    support=_POSITIVE,
    inside=1.0,
)

expon: Final = Continuous(
    "expon",
    (),
    log_density=lambda y: -y,
    functions={
        "cdf": lambda y: -fnp.expm1(-y),
        "sf": lambda y: fnp.exp(-y),
        "logcdf": log1mexp,
        "logsf": lambda y: -y,
        "ppf": lambda q: -fnp.log1p(-q),
        "isf": lambda q: -fnp.log(q),
    },
    support=_POSITIVE,
)


def _power_of_abs(y: Array, power: Array) -> Array:
    """Return |y| ** power. At 0 its derivatives are those that are continuous there; at a kink (power <= 1) they are
    0."""
    zero = y == 0
    kink = zero & (power <= 1)
    size = fnp.where(kink, 1, y * fnp.where(zero, 1, fnp.sign(y)))
    return fnp.where(kink, 0, size**power)


def _gennorm_cdf(y: Array, beta: Array) -> Array:
    tail = 0.5 * special.gammaincc(1 / beta, fnp.abs(y) ** beta)
    return fnp.where(y < 0, tail, 1 - tail)


def _gennorm_log_cdf(y: Array, beta: Array) -> Array:
    a, x = 1 / beta, fnp.abs(y) ** beta
    return fnp.where(y < 0, log_gammaincc(a, x) - math.log(2), fnp.log1p(-0.5 * special.gammaincc(a, x)))


gennorm: Final = Continuous(
    "gennorm",
    ("beta",),
    log_density=lambda y, beta: fnp.log(beta / 2) - lax.lgamma(1 / beta) - _power_of_abs(y, beta),
    functions={
        "cdf": _gennorm_cdf,
        "sf": lambda y, beta: _gennorm_cdf(-y, beta),
        "logcdf": _gennorm_log_cdf,
        "logsf": lambda y, beta: _gennorm_log_cdf(-y, beta),
    },
)


def _gumbel_log_tail(y: Array) -> Array:
    """Return log(1 - exp(-exp(y))), also where exp(y) underflows."""
    small = y < -15
    size = fnp.exp(fnp.where(small, 0, y))
    return fnp.where(small, y - fnp.exp(y) / 2, log1mexp(size))


gumbel_r: Final = Continuous(
    "gumbel_r",
    (),
    log_density=lambda y: -(y + fnp.exp(-y)),
    functions={
        "cdf": lambda y: fnp.exp(-fnp.exp(-y)),
        "sf": lambda y: -fnp.expm1(-fnp.exp(-y)),
        "logcdf": lambda y: -fnp.exp(-y),
        "logsf": lambda y: _gumbel_log_tail(-y),
        "ppf": lambda q: -fnp.log(-fnp.log(q)),
        "isf": lambda q: -fnp.log(-fnp.log1p(-q)),
    },
)

gumbel_l: Final = Continuous(
    "gumbel_l",
    (),
    log_density=lambda y: y - fnp.exp(y),
    functions={
        "cdf": lambda y: -fnp.expm1(-fnp.exp(y)),
        "sf": lambda y: fnp.exp(-fnp.exp(y)),
        "logcdf": _gumbel_log_tail,
        "logsf": lambda y: -fnp.exp(y),
        "ppf": lambda q: fnp.log(-fnp.log1p(-q)),
        "isf": lambda q: fnp.log(-fnp.log(q)),
    },
)


def _laplace_cdf(y: Array) -> Array:
    tail = 0.5 * fnp.exp(-fnp.abs(y))
    return fnp.where(y < 0, tail, 1 - tail)


def _laplace_logcdf(y: Array) -> Array:
    low = y < 0
    return fnp.where(low, y - math.log(2), fnp.log1p(-0.5 * fnp.exp(-fnp.where(low, 0, y))))


def _laplace_ppf(q: Array) -> Array:
    low = q < 0.5
    return fnp.where(low, fnp.log(2 * fnp.where(low, q, 0.5)), -fnp.log(2 * (1 - fnp.where(low, 0.5, q))))


laplace: Final = Continuous(
    "laplace",
    (),
    log_density=lambda y: -fnp.abs(y) - math.log(2),
    functions={
        "cdf": _laplace_cdf,
        "sf": lambda y: _laplace_cdf(-y),
        "logcdf": _laplace_logcdf,
        "logsf": lambda y: _laplace_logcdf(-y),
        "ppf": _laplace_ppf,
        "isf": lambda q: -_laplace_ppf(q),
    },
)


def _logistic_logpdf(y: Array) -> Array:
    at_end = y == -math.inf
    y = fnp.where(at_end, 0, y)
    return fnp.where(at_end, -math.inf, -y - 2 * softplus(-y))


logistic: Final = Continuous(
    "logistic",
    (),
    # tanh keeps the digits of a small y
    log_density=lambda y: with_slope(_logistic_logpdf, lambda _, y: -fnp.tanh(y / 2), y),
    functions={
        "cdf": lax.expit,
        "sf": lambda y: lax.expit(-y),
        "logcdf": lambda y: -softplus(-y),
        "logsf": lambda y: -softplus(y),
        "ppf": lax.logit,
        "isf": lambda q: -lax.logit(q),
    },
    slopes={"logcdf": lambda y: lax.expit(-y), "logsf": lambda y: -lax.expit(y)},
)

pareto: Final = Continuous(
    "pareto",
    ("b",),
    log_density=lambda y, b: fnp.log(b) - (b + 1) * fnp.log(y),
    functions={
        "cdf": lambda y, b: -fnp.expm1(-b * fnp.log(y)),
        "sf": lambda y, b: y**-b,
        "logsf": lambda y, b: -b * fnp.log(y),
        "ppf": lambda q, b: fnp.exp(-fnp.log1p(-q) / b),
        "isf": lambda q, b: q ** (-1 / b),
    },
    support=(1.0, math.inf),
    inside=2.0,
)


def _t_logpdf(y: Array, df: Array) -> Array:
    normal = df == math.inf
    many = fnp.where(normal, 1, df)
    by_t = -lax.betaln(many / 2, 0.5) - 0.5 * fnp.log(many) - (many + 1) / 2 * _log1p_square(y / fnp.sqrt(many))
    return fnp.where(normal, -0.5 * fnp.square(y) - 0.5 * math.log(2 * math.pi), by_t)


def _t_has_normal(y: Array, df: Array) -> Array:
    """Return True where df / (df + y^2) loses the digits of y: with many degrees of freedom, not far in a tail."""
    many = df > (1000 if y.dtype == dtypes.float64 else 50)
    return (many & (fnp.abs(y) < 0.5 * fnp.sqrt(df))) | (df == math.inf)


def _t_cdf(y: Array, df: Array) -> Array:
    many = _t_has_normal(y, df)
    by_normal = lax.ndtr(_normal_of_t(y, fnp.where(many, df, 1000)))
    return fnp.where(many, by_normal, _t_cdf_by_beta(y, fnp.where(many, 1, df)))


def _normal_of_t(y: Array, df: Array) -> Array:
    """Return the value of a standard normal variable with the same cdf, for many degrees of freedom.

    Source: Hill, Algorithm 395: Student's t-distribution (1970), with a = df - 1/2 moved out of the sums, so that no
            power of it overflows.
    """
    a = fnp.minimum(df, 1e16) - 0.5
    h, s = 1 / a, _log1p_square(y / fnp.sqrt(fnp.minimum(df, 1e16)))
    series = ((-0.4 * s - 3.3 * h) * s - 24 * h * h) * s - 85.5 * h * h * h
    factor = 1 + h * (s + 3 * h + series / (0.8 * s * s + 48 + 100 * h * h)) / 48
    square = a * s
    zero = square == 0
    root = fnp.where(zero, y, fnp.sign(y) * fnp.sqrt(fnp.where(zero, 1, square)))
    return fnp.where(df == math.inf, y, root * factor)


def _t_is_far(y: Array, df: Array) -> Array:
    """Return True where 1 + df / y^2 is 1: the cdf is the first term of its series."""
    return fnp.abs(y) > fnp.sqrt(df) * (1e9 if y.dtype == dtypes.float64 else 1e5)


def _t_log_far(y: Array, df: Array) -> Array:
    """Return the logarithm of the probability beyond |y|, where `_t_is_far`."""
    size = fnp.abs(y)
    infinite = size == math.inf
    finite = fnp.where(infinite, 1, size)
    return fnp.where(infinite, -math.inf, _t_logpdf(finite, df) + fnp.log(finite) - fnp.log(df))


def _t_middle(y: Array, df: Array) -> tuple[Array, Array]:
    """Return True where y is near 0; and the argument of the incomplete beta function there and elsewhere."""
    square = y * y
    middle = square < fnp.minimum(df, 1)
    return middle, fnp.where(middle, square, df) / (df + square)


def _t_cdf_by_beta(y: Array, df: Array) -> Array:
    # from the middle near 0, where df / (df + y^2) loses the digits of y; else from the tail, which may be tiny
    far, half = _t_is_far(y, df), df / 2
    far_tail = fnp.exp(_t_log_far(fnp.where(far, y, 1e12), df))
    middle, x = _t_middle(fnp.where(far, 2, y), df)
    part = special.betainc(fnp.where(middle, 0.5, half), fnp.where(middle, half, 0.5), x)
    tail = fnp.where(far, far_tail, fnp.where(middle, 0.5 - 0.5 * part, 0.5 * part))
    return fnp.where(y < 0, tail, fnp.where(middle & ~far, 0.5 + 0.5 * part, 1 - tail))


def _t_log_tail(y: Array, df: Array) -> Array:
    """Return the logarithm of the probability beyond |y| on one side."""
    many, y = _t_has_normal(y, df), -fnp.abs(y)
    by_normal = lax.log_ndtr(_normal_of_t(y, fnp.where(many, df, 1000)))
    df = fnp.where(many, 1, df)
    far = _t_is_far(y, df)
    far_tail = _t_log_far(fnp.where(far, y, 1e12), df)
    middle, x = _t_middle(fnp.where(far, 2, y), df)
    of_middle = fnp.log(_t_cdf_by_beta(fnp.where(middle, y, 0), df))
    of_tail = log_betainc(df / 2, fnp.full_like(df, 0.5), fnp.where(middle, 0.5, x)) - math.log(2)
    return fnp.where(many, by_normal, fnp.where(far, far_tail, fnp.where(middle, of_middle, of_tail)))


def _t_logcdf(y: Array, df: Array) -> Array:
    tail, low = _t_log_tail(y, df), y < 0
    return fnp.where(low, tail, fnp.log1p(-fnp.exp(fnp.where(low, -1, tail))))


t: Final = Continuous(
    "t",
    ("df",),
    log_density=_t_logpdf,
    functions={
        "cdf": _t_cdf,
        "sf": lambda y, df: _t_cdf(-y, df),
        "logcdf": _t_logcdf,
        "logsf": lambda y, df: _t_logcdf(-y, df),
    },
)


def _log_probability_between(a: Array, b: Array) -> Array:
    """Return the logarithm of the probability that a standard normal variable is between a and b."""
    # in the tail where both are, so that the difference keeps its digits
    upper = a > 0
    low, high = fnp.where(upper, -b, a), fnp.where(upper, -a, b)
    top = lax.log_ndtr(high)
    empty = (low >= high) | (top == -math.inf)
    below = lax.log_ndtr(low) - fnp.where(empty, 0, top)
    # between near ends the difference has no digits: the integral of the Taylor series around their middle m
    width = b - a
    m = fnp.where(empty, 0, a + 0.5 * width)
    narrow = ~empty & (width * (1 + fnp.abs(m)) < 0.03)
    h, m = fnp.where(narrow, width, 1), fnp.where(narrow, m, 0)
    h2, m2, mh2 = h * h, m * m, (m * h) ** 2
    more = (mh2 - h2) / 24 + (mh2 * (mh2 - 6 * h2) + 3 * h2 * h2) / 1920
    by_series = fnp.log(h) - 0.5 * (m2 + math.log(2 * math.pi)) + fnp.log1p(more)
    wide = fnp.where(narrow, -1, below)
    return fnp.where(empty, -math.inf, fnp.where(narrow, by_series, top + fnp.log1p(-fnp.exp(wide))))


def _truncnorm_logs(y: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """Return the logarithms of the probabilities below and above y of a normal variable between a and b."""
    whole = _log_probability_between(a, b)
    below, above = _log_probability_between(a, y) - whole, _log_probability_between(y, b) - whole
    return _log_by_rest(below, above), _log_by_rest(above, below)


def _log_by_rest(log: Array, rest: Array) -> Array:
    """Return the logarithm of a probability, that of the rest where it is nearer to 1: a difference of logarithms has
    no digits there."""
    near = (log > rest) & (rest > -math.inf)
    by_rest = fnp.log1p(-fnp.exp(fnp.where(near, rest, -1)))
    return fnp.where(near, by_rest, fnp.where(log > 0, 0, log))


truncnorm: Final = Continuous(
    "truncnorm",
    ("a", "b"),
    log_density=lambda y, a, b: _norm_logpdf(y) - _log_probability_between(a, b),
    functions={
        "logcdf": lambda y, a, b: _truncnorm_logs(y, a, b)[0],
        "logsf": lambda y, a, b: _truncnorm_logs(y, a, b)[1],
        "cdf": lambda y, a, b: fnp.exp(_truncnorm_logs(y, a, b)[0]),
        "sf": lambda y, a, b: fnp.exp(_truncnorm_logs(y, a, b)[1]),
    },
    support=lambda a, b: (a, b),
    inside=lambda a, _: a,
    possible=lambda a, b: a < b,
)

uniform: Final = Continuous(
    "uniform",
    (),
    log_density=fnp.zeros_like,
    functions={"cdf": lambda y: y, "sf": lambda y: 1 - y, "ppf": lambda q: q, "isf": lambda q: 1 - q},
    support=(0.0, 1.0),
)

vonmises: Final = Continuous(
    "vonmises",
    ("kappa",),
    # i0e(kappa) = exp(-kappa) i0(kappa) does not overflow; cos(y) - 1 would lose the digits of a small y
    possible=lambda kappa: kappa >= 0,
    log_density=lambda y, kappa: -2 * kappa * fnp.sin(y / 2) ** 2 - fnp.log(2 * math.pi * lax.bessel_i0e(kappa)),
)


def _wrapcauchy_logpdf(y: Array, c: Array) -> Array:
    # 1 + c^2 - 2 c cos(y), without cancellation where c is near 1
    denominator = (1 - c) ** 2 + 4 * c * fnp.sin(y / 2) ** 2
    return fnp.log((1 - c) * (1 + c) / (2 * math.pi * denominator))


wrapcauchy: Final = Continuous(
    "wrapcauchy",
    ("c",),
    log_density=_wrapcauchy_logpdf,
    support=(0.0, 2 * math.pi),
    possible=lambda c: (c > 0) & (c < 1),
)
