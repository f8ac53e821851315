"""Scaled error functions: erfcx and its derivatives, and the inverse of erfc."""

from __future__ import annotations

import math
from functools import partial
from typing import Final

import numpy as np

from fxad import dtypes, lax, numpy as fnp
from fxad.api.custom_function import custom_jvp
from fxad.scipy.arguments import at_least_single, broadcast_floats, chebyshev, reals
from fxad.scipy.faddeeva import wofz
from fxad.tracing.array import Array, ArrayLike


def erfcx(x: ArrayLike) -> Array:
    """Return exp(x**2) erfc(x), with all digits where exp(x**2) overflows and erfc(x) is 0; of complex numbers
    `wofz(i x)`.

    Rule:   derivatives up to the third have all digits; later ones lose some for large x.
    Source: Shepherd, Laframboise, Chebyshev approximation of (1 + 2x) exp(x^2) erfc(x) in 0 <= x < infinity (1981).
    """
    (a,) = broadcast_floats("erfcx", x)
    if a.dtype in dtypes.COMPLEX:
        return wofz(lax.complex(-a.imag, a.real))
    return at_least_single(lambda v: _scaled_integral(v, 0), a)


def erfcinv(y: ArrayLike) -> Array:
    """Return the x with erfc(x) = y, for 0 <= y <= 2; nan elsewhere."""
    (a,) = broadcast_floats("erfcinv", *reals("erfcinv", y))
    return at_least_single(_erfcinv, a)


# ------------------------------------------------------------------------------------------------------------- erfcx
#
# With i0 = erfc and in the integral of i(n-1) from x to infinity, E_n = exp(x^2) in(x) has E_n' = -2 (n + 1) E_(n+1).
# All E_n are positive, so no digits cancel in a derivative. Source: Abramowitz, Stegun, 7.2.


@partial(custom_jvp, nondiff_argnums=(1,))
def _scaled_integral(x: Array, order: int) -> Array:
    """Return E_n for the order n."""
    size = fnp.abs(x)
    upper = _table(size, order) if order < len(_TABLES) else _recurrence(x, order)
    # below 0: exp(x^2) (erfc(x) + erfc(-x)) = 2 exp(x^2), and 2 n E_n = E_(n-2) - 2 x E_(n-1)
    negative = fnp.where(x < 0, x, 0)
    if order == 0:
        below = 2 * fnp.exp(negative * negative) - upper
    elif order == 1:
        below = 1 / math.sqrt(math.pi) - negative * _scaled_integral(negative, 0)
    else:
        below = _recurrence(negative, order)
    return fnp.where(x < 0, below, upper).astype(x.dtype)


def _scaled_integral_jvp(order: int, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dot,) = primals, tangents
    return _scaled_integral(x, order), -2 * (order + 1) * _scaled_integral(x, order + 1) * dot


_scaled_integral.defjvp(_scaled_integral_jvp)


def _recurrence(x: Array, order: int) -> Array:
    value: Array = (_scaled_integral(x, order - 2) - 2 * x * _scaled_integral(x, order - 1)) / (2 * order)
    return value


def _table(x: Array, order: int) -> Array:
    """Return E_n for x >= 0: (x + c)^(n + 1) E_n is nearly constant, and smooth in (x - 3) / (x + 3)."""
    value = chebyshev(1 - 6 / (x + 3), _TABLES[order])
    for _ in range(order + 1):
        value = value / (x + _SHIFTS[order])
    return value


# ----------------------------------------------------------------------------------------------------------- erfcinv


@custom_jvp
def _erfcinv(x: Array) -> Array:
    # y' = -sqrt(pi) / 2 exp(y^2), and y'' = 2 y y'^2
    tiny = float(fnp.finfo(x.dtype).tiny)
    small = fnp.where(x < 0.5, x, 0.5)
    lower = -lax.ndtri(small / 2) * math.sqrt(0.5)
    # half of a number below 2 tiny is subnormal, which XLA takes for 0
    log = fnp.log(fnp.clip(x, tiny, 2 * tiny) / tiny / 1.5)
    least = fnp.full_like(x, 0)
    for c in _LEAST_OF_64 if x.dtype == np.float64 else _LEAST_OF_32:
        least = least * log + c
    lower = fnp.where((x >= tiny) & (x < 2 * tiny), least, lower)
    return fnp.where(x < 0.5, lower, lax.erf_inv(1 - x)).astype(x.dtype)


@_erfcinv.defjvp
def _erfcinv_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dot,) = primals, tangents
    return _erfcinv(x), _erfcinv_slope(x) * dot


@custom_jvp
def _erfcinv_slope(x: Array) -> Array:
    # exp(y^2) = erfcx(y) / erfc(y)
    slope: Array = -math.sqrt(math.pi) / 2 * _scaled_integral(fnp.abs(_erfcinv(x)), 0) / fnp.minimum(x, 2 - x)
    return slope


@_erfcinv_slope.defjvp
def _erfcinv_slope_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dot,) = primals, tangents
    slope = _erfcinv_slope(x)
    return slope, 2 * _erfcinv(x) * slope * slope * dot


_SHIFTS: Final = (0.5625, 0.703125, 0.828125, 0.9296875)
# of (x + c)^(n + 1) E_n as a function of (x - 3) / (x + 3), for n = 0 to 3; by interpolation at 60 points with mpmath
_TABLES: Final = (
    (  # order 0
        0.6093977105203449,
        -0.025676892763804793,
        -0.03686285541007336,
        0.024376505206776432,
        -0.008885709063254123,
        0.002136556275872331,
        -0.0003104644375680449,
        9.586173794989252e-06,
        6.194177644356225e-06,
        -9.99122526238948e-07,
        -8.480474210830547e-08,
        3.7285293805065486e-08,
        7.93500726277684e-10,
        -1.33062055280237e-09,
        -2.4323047321010943e-12,
        5.11221781155196e-11,
        5.446379426122506e-13,
        -2.116636070437684e-12,
        -9.521721381754223e-14,
        9.015713267358239e-14,
        9.452130283536861e-15,
        -3.648958336811807e-15,
        -7.394486767763802e-16,
        1.1946564361329612e-16,
        4.926918269579602e-17,
    ),
    (  # order 1
        0.3323634766467787,
        -0.02332957156775512,
        -0.04670232718797916,
        0.02527241318852687,
        -0.00572301926859743,
        -0.00018988546350425054,
        0.0005552776759131187,
        -0.00017205740187104063,
        1.841207627869732e-05,
        3.1413802995287445e-06,
        -1.0992091498248964e-06,
        -9.922036096969213e-09,
        4.4411501852935646e-08,
        -1.9529440953863262e-09,
        -1.821150150266978e-09,
        1.1520150316335889e-10,
        8.237185055912376e-11,
        -4.192025548530053e-12,
        -4.064327840834765e-12,
        4.226940154875265e-14,
        2.0742817636205606e-13,
        1.0930347986902458e-14,
        -1.0177354872240354e-14,
        -1.4428254417892593e-15,
        4.2848724540508583e-16,
        1.2514589287270288e-16,
        -1.0809319938825194e-17,
        -8.621902107565019e-18,
    ),
    (  # order 2
        0.184150260545348,
        -0.018285966442714758,
        -0.041305063772413476,
        0.019372854320535978,
        -0.00197216845148496,
        -0.001497976247392382,
        0.0006741916186874448,
        -6.63813856115501e-05,
        -3.327280424873767e-05,
        1.1613705317457983e-05,
        -2.227244970882115e-07,
        -5.538325007737923e-07,
        6.312473219923071e-08,
        2.3247703651892318e-08,
        -4.2058022749831015e-09,
        -1.0791784450127692e-09,
        2.2523652671791232e-10,
        5.89057686230621e-11,
        -1.06881280488814e-11,
        -3.6194674548726587e-12,
        4.1457120222897514e-13,
        2.3083148196047265e-13,
        -7.14895169032519e-15,
        -1.415419656603326e-14,
        -8.88831786130932e-16,
        7.688210845838628e-16,
        1.4038008329817278e-16,
        -3.139436362646729e-17,
        -1.2949644129018288e-17,
    ),
    (  # order 3
        0.1015964038141369,
        -0.011146112726119926,
        -0.03202417782879528,
        0.013001637296364287,
        0.00041366240413091257,
        -0.0017865072832959077,
        0.00045066364671871376,
        6.514877223263433e-05,
        -5.466047513081588e-05,
        5.386907157503503e-06,
        3.0820282298778507e-06,
        -7.70442352886418e-07,
        -1.138582458609574e-07,
        5.501163067264435e-08,
        4.062797102668012e-09,
        -3.382623777947729e-09,
        -2.0880191260703033e-10,
        2.0079892712342902e-10,
        1.7137580469984088e-11,
        -1.159689788827502e-11,
        -1.6340467252973838e-12,
        6.209400092182128e-13,
        1.4870388172023858e-13,
        -2.7114979345271273e-14,
        -1.2173830509780154e-14,
        5.092415030256981e-16,
        8.646102286528839e-16,
        7.111729273683003e-17,
        -4.9489575009749015e-17,
        -1.1719724485197562e-17,
    ),
)
# powers of log(x / (1.5 tiny)), the highest first
_LEAST_OF_32: Final = (-6.67e-09, -9.2057845e-07, -0.00015823446373794024, -0.054191828808216026, 9.17260250627826)
_LEAST_OF_64: Final = (
    -4.181647681411758e-12, -4.724713683099201e-09, -6.671006124498739e-06, -0.018829242245754788, 26.53562494991982,
)  # fmt: skip
