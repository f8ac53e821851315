"""NumPy's special functions."""

from __future__ import annotations

import math

from fxad import dtypes, lax
from fxad.numpy.apply import apply_op, as_array
from fxad.numpy.binary import fmod, where
from fxad.numpy.composites import jit_composite
from fxad.numpy.creation import zeros_like
from fxad.numpy.unary import abs, exp, imag, isfinite, isinf, real, round, sin
from fxad.operations import special
from fxad.tracing.array import Array, ArrayLike


def i0(x: ArrayLike) -> Array:
    """Return the modified Bessel function of the first kind of order 0."""
    return apply_op("i0", special.i0, (x,))


def sinc(x: ArrayLike, /) -> Array:
    """Return sin(pi x) / (pi x), 1 at 0, and 0 where the real part is infinite."""
    if as_array("sinc", x).dtype in dtypes.COMPLEX:
        return jit_composite(_complex_sinc, as_array("sinc", x))
    return apply_op("sinc", special.sinc, (x,))


def _complex_sinc(z: Array) -> Array:
    near = abs(z) < 0.5
    small = where(near, z, 0)
    coefficients = [(-1) ** k * math.pi ** (2 * k) / math.factorial(2 * k + 1) for k in reversed(range(13))]
    series = zeros_like(z)
    for coefficient in coefficients:
        series = series * small * small + coefficient
    # the distance from the next integer is exact, and the product of a large z with pi is not
    real_part, infinite = real(z), isinf(real(z))
    finite = where(infinite, 1, real_part)
    nearest = round(finite)
    turns, odd = lax.complex(finite - nearest, imag(z)), fmod(nearest, 2) != 0
    divisor = math.pi * where(near, 1, z)
    # far from the real axis the sine is i exp(-i pi z) / 2 or its conjugate: it overflows before the quotient
    far, above = abs(imag(z)) > 20, imag(z) > 0
    root = exp(where(above, -0.5j, 0.5j) * (math.pi * where(far, turns, 0)))
    away = where(far, root * (where(above, 0.5j, -0.5j) * root / divisor), sin(math.pi * turns) / divisor)
    return where(infinite & isfinite(imag(z)), 0, where(near, series, where(odd, -away, away)))
