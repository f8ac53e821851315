"""The gamma function of complex numbers, and its logarithm."""

from __future__ import annotations

import math
from typing import Final

from fxad import lax, numpy as fnp
from fxad.tracing.array import Array

_SHIFT: Final = 10
# Bernoulli's numbers B_2k over 2k (2k - 1)
_STIRLING: Final = (
    1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400,
)  # fmt: skip


def complex_loggamma(z: Array) -> Array:
    """Return the logarithm of gamma(z), real for positive z and analytic but for the negative axis, whose values belong
    to the side that the sign of the imaginary part says; nan at the poles. The error is relative to 1 next to the zeros
    1 and 2.

    Source: DLMF 5.11.1 (Stirling's series) beyond 10, 5.5.1 (recurrence) and 5.5.3 (reflection).
    """
    dtype = z.dtype
    pole = (z.imag == 0) & (z.real <= 0) & (z.real == fnp.floor(z.real))
    z = fnp.where(pole, 1, z)
    below = fnp.signbit(z.imag)
    up = fnp.where(below, fnp.conj(z), z)
    left = up.real < 0.5
    right = fnp.where(left, 1 - up, up)
    value = _stirling(right + _SHIFT)
    for k in range(_SHIFT):
        value = value - fnp.log(right + k)
    # log(sin(pi z)) above the real axis: sin(pi z) = i / 2 exp(-i pi z) (1 - exp(2 i pi z))
    safe = fnp.where(left, up, 0.25)
    turned = lax.complex(-2 * math.pi * safe.imag, 2 * math.pi * (safe.real - fnp.round(safe.real)))
    log_sine = fnp.log(-fnp.expm1(turned)) - math.log(2)
    rotated = lax.complex(math.pi * safe.imag, math.pi * (0.5 - safe.real))
    value = fnp.where(left, math.log(math.pi) - log_sine - rotated - value, value)
    return fnp.where(pole, complex(math.nan, math.nan), fnp.where(below, fnp.conj(value), value)).astype(dtype)


def _stirling(z: Array) -> Array:
    inverse = 1 / z
    square = inverse * inverse
    series = fnp.zeros_like(z)
    for c in reversed(_STIRLING):
        series = series * square + c
    return (z - 0.5) * fnp.log(z) - z + math.log(2 * math.pi) / 2 + series * inverse


def complex_gamma(z: Array) -> Array:
    """Return gamma(z); nan at the poles."""
    return fnp.exp(complex_loggamma(z))
