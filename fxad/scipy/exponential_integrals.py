"""Exponential integrals: a power series near 0, a continued fraction or an asymptotic series far from it."""

from __future__ import annotations

from typing import Final

import numpy as np

from fxad import dtypes, lax, numpy as fnp
from fxad.api.custom_function import custom_jvp
from fxad.scipy.arguments import broadcast_floats, reals
from fxad.tracing.array import Array, ArrayLike

_FAR: Final = 40.0  # from here on, the asymptotic series of expi has all digits of float64

# the zero of expi, as a sum of two floats of each precision; then its Taylor series there, less the constant and over
# x - zero, the highest power first: the derivative is exp(x) / x
_ZERO: Final = (0.3725074107813666, 1.3140183414386028e-17)
_ZERO_32: Final = (0.3725074231624603, -1.2381093692686445e-08)
_AROUND_ZERO: Final = (
    48300034.930860244, -18891727.000381533, 7407692.958000587, -2912721.6638508374, 1148834.5468177444,
    -454696.21885446657, 180669.55858939196, -72107.9458683716, 28926.95530543545, -11673.463991167164,
    4743.765650402431, -1943.7966457234988, 804.5318399821382, -337.1558271787469, 143.5349488096751,
    -62.37880152891542, 27.88629796294205, -12.969697383536516, 6.522376145438925, -3.2816078663985615,
    3.8962157339071672,
)  # fmt: skip


def expi(x: ArrayLike) -> Array:
    """Return the principal value of the integral of exp(t) / t from -inf to x; -inf at 0."""
    (a,) = broadcast_floats("expi", *reals("expi", x))
    return _expi(a)


def exp1(x: ArrayLike) -> Array:
    """Return the integral of exp(-t) / t from x to inf; nan below 0, as it is complex there."""
    (a,) = broadcast_floats("exp1", *reals("exp1", x))
    return _expn(fnp.ones(a.shape, np.int32), a)


def expn(n: ArrayLike, x: ArrayLike) -> Array:
    """Return the integral of exp(-x t) / t**n from 1 to inf, for whole 0 <= n < 2**31 and x >= 0; nan elsewhere."""
    (a,) = broadcast_floats("expn", *reals("expn", x))
    order = fnp.asarray(n)
    if order.dtype.itemsize < 4 or order.dtype == np.bool_:
        order = order.astype(np.float32)  # int8 has no 2**31
    in_range = order <= 2**31 - 1 if order.dtype in dtypes.INTEGER else order < 2**31  # before int32 wraps around
    fits = (order >= 0) & in_range  # nan does not fit
    whole = fnp.where(fits, fnp.where(fits, order, 0).astype(np.int32), -1)  # the result of -1 is nan
    return _expn(*fnp.broadcast_arrays(whole, a))


@custom_jvp
def _expi(x: Array) -> Array:
    size = fnp.abs(x)
    near = fnp.clip(size, 1e-300 if x.dtype == np.float64 else 1e-37, _FAR)

    def series(k: Array, terms: tuple[Array, Array]) -> tuple[Array, Array]:
        power, total = terms  # x**k / k!
        power = power * near / k
        return power, total + power / k

    total = lax.fori_loop(1, 140, series, (fnp.ones_like(near), fnp.zeros_like(near)))[1]
    far = fnp.maximum(size, _FAR)

    def asymptotic(k: Array, terms: tuple[Array, Array]) -> tuple[Array, Array]:
        term, total = terms  # k! / x**k
        term = term * k / far
        return term, total + term

    tail = lax.fori_loop(1, 40, asymptotic, (fnp.ones_like(far), fnp.ones_like(far)))[1]
    positive = fnp.where(size > _FAR, _exp_over(far) * tail, fnp.euler_gamma + fnp.log(near) + total)
    high, low = _ZERO if x.dtype == np.float64 else _ZERO_32
    around = fnp.abs(size - high) < 0.07  # there the sum loses its digits
    h = fnp.where(around, size - high, 0) - low
    positive = fnp.where(around, h * fnp.polyval(fnp.array(_AROUND_ZERO, x.dtype), h), positive)
    negative = -_expn(fnp.ones(x.shape, np.int32), fnp.where(x < 0, size, 1))
    value = fnp.where(x < 0, negative, fnp.where(size == fnp.inf, fnp.inf, positive))
    return fnp.where(fnp.isnan(x), x, fnp.where(x == 0, -fnp.inf, value)).astype(x.dtype)


@_expi.defjvp
def _expi_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dot,) = primals, tangents
    return _expi(x), _exp_over(x) * dot


def _exp_over(x: Array) -> Array:
    """Return exp(x) / x, also where exp(x) alone overflows."""
    root = fnp.exp(x / 2)
    return root / x * root


@custom_jvp
def _expn(n: Array, x: Array) -> Array:
    order = fnp.maximum(n, 1)
    m = order.astype(x.dtype)
    near = fnp.clip(x, 1e-300 if x.dtype == np.float64 else 1e-37, 1)

    log = lax.digamma(m) - fnp.log(near)

    def series(k: Array, terms: tuple[Array, Array]) -> tuple[Array, Array]:
        power, total = terms  # (-x)**k / k!
        place = k - order + 1
        factor = fnp.where(place == 0, log, -1 / fnp.where(place == 0, 1, place).astype(x.dtype))
        return power * -near / (k + 1), total + power * factor

    # the logarithm belongs to the term k = order - 1; from order 30 on, this power is 0 in any dtype
    close = lax.fori_loop(0, 30, series, (fnp.ones_like(near), fnp.zeros_like(near)))[1]
    far = fnp.maximum(x, 1)

    def fraction(j: Array, below: Array) -> Array:
        k = (90 - j).astype(x.dtype)
        return k * (m + k - 1) / (far + m + 2 * k - below)

    beyond = fnp.exp(-far) / (far + m - lax.fori_loop(0, 90, fraction, fnp.zeros_like(far)))
    value = fnp.where(x > 1, beyond, close)
    value = fnp.where(x == 0, fnp.where(n > 1, 1 / fnp.maximum(m - 1, 1), fnp.inf), value)
    value = fnp.where(n == 0, fnp.exp(-x) / x, value)
    value = fnp.where(x == fnp.inf, 0, value)
    return fnp.where((x < 0) | (n < 0) | fnp.isnan(x), fnp.nan, value).astype(x.dtype)


@_expn.defjvp
def _expn_jvp(primals: tuple[Array, Array], tangents: tuple[Array | None, Array]) -> tuple[Array, Array]:
    (n, x), (_, dot) = primals, tangents
    below = fnp.where(n == 0, fnp.exp(-x) * (1 + 1 / x) / x, _expn(fnp.maximum(n - 1, 0), x))
    return _expn(n, x), -below * dot
