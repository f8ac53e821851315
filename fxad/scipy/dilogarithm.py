"""Spence's function: a series in the logarithm near 1, and functional equations far from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from fxad import numpy as fnp
from fxad.api.custom_function import custom_jvp
from fxad.scipy.arguments import at_least_single, broadcast_floats, reals
from fxad.tracing.array import Array, ArrayLike


def spence(x: ArrayLike) -> Array:
    """Return the integral of log(t) / (1 - t) from 1 to x, which is the dilogarithm of 1 - x; nan below 0.

    Source: Lewin, Polylogarithms and associated functions (1981), 1.5 to 1.12.
    """
    (a,) = broadcast_floats("spence", *reals("spence", x))
    return at_least_single(_spence, a)


# With L = -log(x), Li2(1 - x) = L - L^2 / 4 + the sum of B_2k L^(2k + 1) / (2k + 1)!, and the derivative by x is
# -L / (1 - exp(-L)) = -(1 + L / 2 + the sum of B_2k L^2k / (2k)!). Both converge for |L| < 2 pi; |L| is at most 1.


@custom_jvp
def _spence(x: Array) -> Array:
    swapped = x > math.e
    far = swapped | (x < 1 / math.e)
    # Li2(1 - s) + Li2(s) = pi^2 / 6 - log(s) log(1 - s), and Li2(1 - x) + Li2(1 - 1 / x) = -log(x)^2 / 2
    s = fnp.where(far & (x >= 0), fnp.where(swapped, 1 / fnp.where(swapped, x, 1), x), 0)
    logs = fnp.where(s > 0, fnp.log(fnp.where(s > 0, s, 1)) * fnp.log1p(-s), 0)
    reflected = math.pi**2 / 6 - logs - _near_1(-fnp.log1p(-s))
    log = fnp.log(fnp.where(swapped, x, 1))
    value = fnp.where(swapped, -log * log / 2 - reflected, reflected)
    value = fnp.where(far, value, _near_1(-fnp.log(fnp.where(far, 1, x))))
    return fnp.where(x < 0, fnp.nan, value).astype(x.dtype)


def _near_1(log: Array) -> Array:
    """Return the dilogarithm of 1 - exp(-log)."""
    square = log * log
    return log * (1 + square * _polynomial(square, _OF_VALUE)) - square / 4


@_spence.defjvp
def _spence_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dot,) = primals, tangents
    far = (x > math.e) | (x < 1 / math.e)
    log = -fnp.log(fnp.where(far, 1, x))
    square = log * log
    near = -(1 + log / 2 + square * _polynomial(square, _OF_SLOPE))
    apart = fnp.where(far, x, 2)
    return _spence(x), fnp.where(far, fnp.log(apart) / (1 - apart), near) * dot


def _polynomial(x: Array, coefficients: Sequence[float]) -> Array:
    """Return the polynomial with the lowest power first, by Horner's rule."""
    total = fnp.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total


_BERNOULLI: Final = (
    Fraction(1, 6), Fraction(-1, 30), Fraction(1, 42), Fraction(-1, 30), Fraction(5, 66), Fraction(-691, 2730),
    Fraction(7, 6), Fraction(-3617, 510), Fraction(43867, 798), Fraction(-174611, 330), Fraction(854513, 138),
)  # fmt: skip
_OF_VALUE: Final = tuple([float(b / math.factorial(2 * k + 3)) for k, b in enumerate(_BERNOULLI)])
_OF_SLOPE: Final = tuple([float(b / math.factorial(2 * k + 2)) for k, b in enumerate(_BERNOULLI)])
