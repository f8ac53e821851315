"""The Faddeeva function, and the integrals that are values of it on a line: Dawson's and Fresnel's."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from fxad import dtypes, lax, numpy as fnp
from fxad.api.custom_function import custom_jvp
from fxad.scipy.arguments import at_least_single, broadcast_floats, reals
from fxad.tracing.array import Array, ArrayLike

_ROOT_PI: Final = math.sqrt(math.pi)


def wofz(z: ArrayLike) -> Array:
    """Return the Faddeeva function, exp(-z^2) erfc(-i z).

    Type:   floats or complex numbers -> complex. The error is relative to the absolute value; for a negative imaginary
            part also to exp(-z^2), so it grows near the zeros that are there.
    Source: Weideman, Computation of the Complex Error Function (1994), near 0; Laplace's continued fraction (DLMF
            7.9.3) far from it; DLMF 7.4.3 for a negative imaginary part.
    """
    (a,) = broadcast_floats("wofz", z)
    if a.dtype not in dtypes.COMPLEX:
        a = a.astype(dtypes.complex128 if a.dtype == dtypes.float64 else dtypes.complex64)
    low = a.imag < 0
    upper = _upper(fnp.where(low, -a, a))
    across, down = fnp.abs(a.real), fnp.abs(a.imag)
    gone = (across - down) * (across + down) > 800  # exp(-z^2) is 0
    x, y = fnp.where(low & ~gone, a.real, 0), fnp.where(low & ~gone, a.imag, 0)
    growth = 2 * fnp.exp((y - x) * (y + x))
    # On the imaginary axis, down to an infinite y, the phase is 0 and so is its sine. Products of 0 and an infinity
    # would be nan.
    phase = -2 * x * fnp.where(x == 0, fnp.maximum(y, -fnp.finfo(y.dtype).max), y)
    sine = fnp.where(fnp.isinf(growth) & (phase == 0), 0, growth) * fnp.sin(phase)
    mirrored = fnp.where(gone, 0, lax.complex(growth * fnp.cos(phase), sine)) - upper
    return fnp.where(low, mirrored, upper)


def _coefficients(n: int) -> tuple[float, ...]:
    """Return Weideman's coefficients, the highest power first: a discrete Fourier transform of exp(-t^2) (L^2 + t^2)
    at t = L tan(theta / 2)."""
    size = 4 * n
    theta = np.arange(-size + 1, size) * np.pi / size
    t = _scale(n) * np.tan(theta / 2)
    f = np.concatenate([[0.0], np.exp(-t * t) * (_scale(n) ** 2 + t * t)])
    a = np.real(np.fft.fft(np.fft.fftshift(f))) / len(f)
    return tuple([float(v) for v in a[n:0:-1]])


def _scale(n: int) -> float:
    return math.sqrt(n / math.sqrt(2))


_N: Final = 40
_L: Final = _scale(_N)
_WEIDEMAN: Final = _coefficients(_N)
# where the continued fraction has all digits; the derivative of the other formula loses those of 2 z^2
_FAR_IN_DOUBLE: Final = 8.0
_FAR_IN_SINGLE: Final = 4.5
_FRACTION: Final = 20  # number of terms of the continued fraction


def _upper(z: Array) -> Array:
    """Return the function where the imaginary part is not negative."""
    limit = _FAR_IN_DOUBLE if z.dtype == dtypes.complex128 else _FAR_IN_SINGLE
    far = fnp.maximum(fnp.abs(z.real), fnp.abs(z.imag)) > limit
    infinite = fnp.isinf(z.real) | fnp.isinf(z.imag)
    distant = fnp.where(far & ~infinite, z, 10j)
    fraction = distant
    for k in range(_FRACTION, 0, -1):
        fraction = distant - (k / 2) / fraction
    beyond = fnp.where(infinite, 0, 1j / _ROOT_PI / fraction)
    return fnp.where(far, beyond, _within(fnp.where(far, 1j, z))).astype(z.dtype)


@custom_jvp
def _within(z: Array) -> Array:
    below = _L - 1j * z
    ratio = (_L + 1j * z) / below
    total = fnp.full_like(z, _WEIDEMAN[0])
    for c in _WEIDEMAN[1:]:
        total = total * ratio + c
    return (2 * total / below + 1 / _ROOT_PI) / below


@_within.defjvp
def _within_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (z,), (dot,) = primals, tangents
    value = _within(z)
    return value, (2j / _ROOT_PI - 2 * z * value) * dot


# ------------------------------------------------------------------------------------------------------------- Dawson


def dawsn(x: ArrayLike) -> Array:
    """Return Dawson's integral, exp(-x^2) times the integral of exp(t^2) from 0 to x.

    Source: the power series near 0 (DLMF 7.6.3); Rybicki's exponentially accurate sum (Computers in Physics 3, 1989);
            the asymptotic series (DLMF 7.12.1) far from it.
    """
    (a,) = broadcast_floats("dawsn", *reals("dawsn", x))
    return at_least_single(_dawsn, a)


_STEP: Final = 0.25


def _dawsn(x: Array) -> Array:
    far = fnp.abs(x) > (10 if x.dtype == dtypes.float64 else 5)
    inverse = 1 / fnp.where(far, x, 10)
    half_square = inverse * inverse / 2
    total = fnp.ones_like(x)
    for k in range(14, 0, -1):
        total = 1 + (2 * k - 1) * half_square * total
    return fnp.where(far, inverse / 2 * total, _dawsn_within(fnp.where(far, 0, x)))


@custom_jvp
def _dawsn_within(x: Array) -> Array:
    near = fnp.abs(x) < 1
    square = fnp.square(fnp.where(near, x, 0))
    series = fnp.ones_like(x)
    for k in range(22, 0, -1):
        series = 1 - 2 * square / (2 * k + 1) * series
    size = fnp.where(near, 1, fnp.abs(x))

    def add(k: Array, total: Array) -> Array:
        # the odd numbers n with |x - n h| < 6.5, about the one that is nearest
        n = 2 * fnp.floor(size / (2 * _STEP)) + 2 * (k - 13).astype(x.dtype) + 1
        return total + fnp.exp(-fnp.square(size - n * _STEP)) / n

    rybicki = lax.fori_loop(0, 27, add, fnp.zeros_like(x)) / _ROOT_PI
    return fnp.where(near, x * series, fnp.copysign(rybicki, x))


@_dawsn_within.defjvp
def _dawsn_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dot,) = primals, tangents
    value = _dawsn_within(x)
    return value, (1 - 2 * x * value) * dot


# ------------------------------------------------------------------------------------------------------------- Fresnel


def fresnel(x: ArrayLike) -> tuple[Array, Array]:
    """Return Fresnel's integrals S and C, of sin(pi t^2 / 2) and cos(pi t^2 / 2) from 0 to x.

    Source: the power series near 0 (DLMF 7.6.4 and 7.6.6); the Faddeeva function at exp(i pi / 4) sqrt(pi / 2) x (DLMF
            7.5.8) elsewhere, with x^2 reduced by multiples of 4 before it is rounded.
    """
    (a,) = broadcast_floats("fresnel", *reals("fresnel", x))
    return at_least_single(_fresnel_s, a), at_least_single(_fresnel_c, a)


def _angle(x: Array) -> tuple[Array, Array]:
    """Return the sine and the cosine of pi x^2 / 2."""
    near = fnp.abs(x) < 1
    square = fnp.square(fnp.where(near, x, 0))
    exponent, mantissa = (11, 25) if x.dtype == dtypes.float64 else (8, 11)
    finite = fnp.isfinite(x) & (fnp.abs(x) < 1 / fnp.finfo(x.dtype).eps)  # beyond, x^2 is a multiple of 4
    x = fnp.where(finite, x, 0)
    high = lax.stop_gradient(lax.reduce_precision(x, exponent, mantissa))
    low = x - high  # both squares and the product are exact
    rest = _off_4(_off_4(high * high) + _off_4(2 * high * low) + low * low)
    rest = fnp.where(near, square, rest) * (math.pi / 2)
    return fnp.sin(rest), fnp.cos(rest)


def _off_4(x: Array) -> Array:
    """Return x less the nearest multiple of 4."""
    return x - 4 * fnp.round(x / 4)


def _fresnel_terms(x: Array) -> tuple[Array, Array, Array, Array]:
    """Return True where |x| is small, the power series of S and C there, and 1/2 - C + i (1/2 - S) elsewhere."""
    near = fnp.abs(x) < 1.4
    small = fnp.where(near, x, 0)
    half = small * small * (math.pi / 2)
    square = half * half
    s, c = fnp.zeros_like(x), fnp.zeros_like(x)
    for k in range(15, -1, -1):
        c = 1 / (4 * k + 1) - square * c / ((2 * k + 1) * (2 * k + 2))
        s = 1 / (4 * k + 3) - square * s / ((2 * k + 2) * (2 * k + 3))
    size = fnp.where(near, 2, fnp.abs(x))
    scaled = fnp.where(fnp.isinf(size), 0, size * (_ROOT_PI / 2))
    w = fnp.where(fnp.isinf(size), 0, _upper(lax.complex(scaled, scaled)))
    sine, cosine = _angle(size)
    rest = w * lax.complex(cosine, sine) * (0.5 + 0.5j)
    return near, small * half * s, small * c, rest.astype(w.dtype)


@custom_jvp
def _fresnel_s(x: Array) -> Array:
    near, s, _, rest = _fresnel_terms(x)
    return fnp.where(near, s, fnp.copysign(0.5 - rest.imag, x)).astype(x.dtype)


@custom_jvp
def _fresnel_c(x: Array) -> Array:
    near, _, c, rest = _fresnel_terms(x)
    return fnp.where(near, c, fnp.copysign(0.5 - rest.real, x)).astype(x.dtype)


@_fresnel_s.defjvp
def _fresnel_s_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dot,) = primals, tangents
    return _fresnel_s(x), _angle_wave(x)[0] * dot


@_fresnel_c.defjvp
def _fresnel_c_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dot,) = primals, tangents
    return _fresnel_c(x), _angle_wave(x)[1] * dot


@custom_jvp
def _angle_wave(x: Array) -> tuple[Array, Array]:
    return _angle(x)


@_angle_wave.defjvp
def _angle_wave_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    (x,), (dot,) = primals, tangents
    sine, cosine = _angle_wave(x)
    speed = math.pi * x * dot
    return (sine, cosine), (cosine * speed, -sine * speed)
