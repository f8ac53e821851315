"""Hurwitz's zeta function with both derivatives, and Riemann's on the real line."""

from __future__ import annotations

import math

from fxad import lax, numpy as fnp
from fxad.api.custom_function import custom_jvp
from fxad.api.directional import jvp
from fxad.scipy.arguments import at_least_single
from fxad.tracing.array import Array

_SHIFT = 12
# Bernoulli's numbers B_2k over (2k)!
_BERNOULLI = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600,
)  # fmt: skip
# Coefficients of zeta(1 + h) - 1 / h, the lowest power first: Stieltjes' constants over factorials, with signs. The sum
# is below 1e-16 of the value for |h| <= 2.
_AROUND_POLE = (
    0.5772156649015329, 0.07281584548367673, -0.00484518159643616, -0.00034230573671722433, 9.689041939447084e-05,
    -6.6110318108421895e-06, -3.316240908752772e-07, 1.0462094584479188e-07, -8.733218100273798e-09,
    9.47827778276236e-11, 5.658421927608708e-11, -6.768689863513697e-12, 3.4921159366720317e-13,
    4.4104247417577536e-15, -2.3997862217709992e-15, 2.1677312200726828e-16, -9.544466076366965e-18,
    -7.387676660538637e-20, 4.800850782488065e-20, -4.139956737713306e-21,
)  # fmt: skip


def riemann_zeta(x: Array) -> Array:
    """Return zeta(x), also below its pole at 1: there it is the series around the pole, or for x < -1 the reflection.

    Source: DLMF 25.2.4 (the series), 25.4.1 (the reflection).
    """
    return at_least_single(_riemann_zeta, x)


def _riemann_zeta(x: Array) -> Array:
    right, left = x >= 1, x < -1
    # each branch takes only operands for which it is used, so no infinity reaches the derivative of another
    h = fnp.where(right | left, -1, x - 1)
    around = fnp.polyval(fnp.array(_AROUND_POLE[::-1], x.dtype), h) + 1 / h
    y = fnp.where(left, 1 - x, 3)
    turn = fnp.remainder(fnp.where(left, x, -2) + 2, 4) - 2  # sin(pi x / 2) is exactly 0 at even x
    sine = fnp.sin(math.pi / 2 * fnp.where(fnp.abs(turn) > 1, fnp.copysign(2, turn) - turn, turn))
    scale = 2 * fnp.exp(lax.lgamma(y) - y * math.log(2 * math.pi)) * hurwitz_zeta(y, fnp.ones_like(y))
    reflected = fnp.where((sine == 0) & fnp.isinf(scale), 0, sine * scale)
    beyond = hurwitz_zeta(fnp.where(left | (x < 1), 2, x), fnp.ones_like(x))
    return fnp.where(left, reflected, fnp.where(x < 1, around, beyond))


@custom_jvp
def hurwitz_zeta(x: Array, q: Array) -> Array:
    """Return zeta(x, q); nan for x < 1.

    Rule:   d/dq = -x zeta(x + 1, q); d/dx of the sum below, for x > 1 and q > 0, nan elsewhere.
    Source: DLMF 25.11.5, 25.11.7 (the Euler-Maclaurin sum).
    """
    return lax.zeta(x, q)


@hurwitz_zeta.defjvp
def _hurwitz_zeta_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (x, q), (x_dot, q_dot) = primals, tangents
    known = (x > 1) & (q > 0)
    safe_x, safe_q = fnp.where(known, x, 2), fnp.where(known, q, 1)
    _, slope = jvp(lambda x: _sum(x, safe_q), (safe_x,), (fnp.ones_like(x),))
    return hurwitz_zeta(x, q), fnp.where(known, slope, fnp.nan) * x_dot - x * hurwitz_zeta(x + 1, q) * q_dot


def _sum(x: Array, q: Array) -> Array:
    total = fnp.zeros_like(x)
    for k in range(_SHIFT):
        total = total + (q + k) ** -x
    end = q + _SHIFT
    total = total + end ** (1 - x) / (x - 1) + end**-x / 2
    factor = x * end ** (-x - 1)
    for k, b in enumerate(_BERNOULLI):
        total = total + b * factor
        factor = factor * (x + 2 * k + 1) * (x + 2 * k + 2) / (end * end)
    return total
