"""The integrals of sin(t) / t and cos(t) / t: Chebyshev series near 0, and of auxiliary functions far from it.

The coefficients are by interpolation with mpmath.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from fxad import numpy as fnp
from fxad.api.custom_function import custom_jvp
from fxad.scipy.arguments import at_least_single, broadcast_floats, chebyshev, reals
from fxad.tracing.array import Array, ArrayLike


def sici(x: ArrayLike) -> tuple[Array, Array]:
    """Return Si(x), the integral of sin(t) / t from 0 to x, and Ci(x), that of cos(t) / t from infinity to x; below 0
    the real part, which is Ci(-x).

    Source: Abramowitz, Stegun, 5.2: Si = pi / 2 - f cos - g sin and Ci = f sin - g cos, where f and g are monotonic.
    """
    (a,) = broadcast_floats("sici", *reals("sici", x))
    return at_least_single(_si, a), at_least_single(_ci, a)


@custom_jvp
def _si(x: Array) -> Array:
    size = fnp.abs(x)
    f, g, far = _auxiliary(size)
    beyond = fnp.where(size == np.inf, 0, f * fnp.cos(far) + g * fnp.sin(far))
    beyond = fnp.copysign(math.pi / 2 - beyond, x)
    return fnp.where(size > _FAR, beyond, x * chebyshev(_near(size), _SI)).astype(x.dtype)


@_si.defjvp
def _si_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dot,) = primals, tangents
    # sinc has no cancellation in its derivatives at 0; the multiple of pi of a large number has no fraction left
    large = fnp.abs(x) > 1
    apart = fnp.where(large, x, 1)
    slope = fnp.where(large, fnp.sin(apart) / apart, fnp.sinc(fnp.where(large, 0, x) / math.pi))
    return _si(x), slope * dot


@custom_jvp
def _ci(x: Array) -> Array:
    size = fnp.abs(x)
    f, g, far = _auxiliary(size)
    beyond = fnp.where(size == np.inf, 0, f * fnp.sin(far) - g * fnp.cos(far))
    near = fnp.minimum(size, _FAR)
    within = fnp.euler_gamma + fnp.log(near) + near * near * chebyshev(_near(size), _CIN)
    return fnp.where(size > _FAR, beyond, within).astype(x.dtype)


@_ci.defjvp
def _ci_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dot,) = primals, tangents
    return _ci(x), fnp.cos(x) / x * dot


_FAR: Final = 4.0


def _near(size: Array) -> Array:
    near = fnp.minimum(size, _FAR)
    return near * near / 8 - 1


def _auxiliary(size: Array) -> tuple[Array, Array, Array]:
    """Return f and g of x, and x, where it is finite and above 4; of 4 elsewhere."""
    far = fnp.where((size > _FAR) & (size < np.inf), size, _FAR)
    t = 1 - 16 / (far + 4)
    return chebyshev(t, _F) / far, chebyshev(t, _G) / far / far, far


# Si(x) / x, as a function of x^2 / 8 - 1 for |x| <= 4
_SI: Final = (
    0.684217670090758,
    -0.2776578526973602,
    0.03544140548666592,
    -0.0025631631447933976,
    0.00011623653904970093,
    -3.5904327241606043e-06,
    8.023421237057102e-08,
    -1.3562997692540251e-09,
    1.7944072159973677e-11,
    -1.9083873430871455e-13,
    1.6669989586824331e-15,
    -1.2173098836850304e-17,
)
# (Ci(x) - log(x) - gamma) / x^2, of the same
_CIN: Final = (
    -0.18537250875454844,
    0.058935748963644466,
    -0.005381896421135691,
    0.00029860052841962137,
    -1.09557257532162e-05,
    2.840545487734663e-07,
    -5.469739948753849e-09,
    8.124187461318157e-11,
    -9.58685931177066e-13,
    9.20266004392351e-15,
    -7.325887999017895e-17,
    4.914372667584291e-19,
)
# x f(x), as a function of 1 - 16 / (x + 4) for x >= 4
_F: Final = (
    0.9729535281885063,
    0.039229362453077406,
    -0.01434897981152699,
    0.0023697210481250152,
    -0.00021676952252410332,
    1.5432684861925974e-05,
    -2.625397167009433e-06,
    3.4203653698320624e-07,
    -1.6573960325507096e-08,
    5.767813811740866e-09,
    -8.052962495397799e-10,
    -4.0854122628909344e-11,
    -2.9714259354292865e-11,
    1.0585864007664446e-12,
    6.939697545113197e-13,
    3.278274461566157e-13,
    4.645403570114978e-14,
    -9.26901682047514e-17,
    -3.600245415590461e-15,
    -1.2957129044670546e-15,
    -2.6937285398440697e-16,
    -1.1285535099487596e-17,
)
# x^2 g(x), of the same
_G: Final = (
    0.9300503249598305,
    0.09920099202350277,
    -0.03275467847741712,
    0.0034080230522687315,
    0.00013318886395639084,
    -3.406220720020734e-05,
    -3.742168766984046e-06,
    -2.2083908959984238e-07,
    1.5004465139132122e-07,
    2.4124037948564904e-08,
    1.7977479574098307e-09,
    -8.627658688884791e-10,
    -2.741581758372487e-10,
    -4.334432246484672e-11,
    2.4395922813948475e-12,
    3.2083527933720358e-12,
    9.89414676194749e-13,
    1.4524887311560226e-13,
    -1.3438491260771449e-14,
    -1.609717171660656e-14,
    -5.55827176302847e-15,
    -1.0631567901791516e-15,
    1.2616686695816907e-18,
    9.298998705315773e-17,
    4.2803290910888596e-17,
)
