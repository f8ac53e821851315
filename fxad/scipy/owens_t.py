"""Owen's T function: the probability that a normal variable is above h, and another between 0 and a times it."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from fxad import dtypes, lax, numpy as fnp
from fxad.api.custom_function import custom_jvp
from fxad.scipy.arguments import broadcast_floats, reals
from fxad.tracing.array import Array, ArrayLike

_RULE: Final = tuple([(float(x), float(w)) for x, w in zip(*np.polynomial.legendre.leggauss(40), strict=True)])
_TAIL: Final = 8.7  # exp(-x^2 / 2) for a larger x is below the precision of float64


def owens_t(h: ArrayLike, a: ArrayLike) -> Array:
    """Return Owen's T function, the integral of exp(-h^2 (1 + x^2) / 2) / (1 + x^2) from 0 to a, over 2 pi.

    Source: Owen, Tables for Computing Bivariate Normal Probabilities (1956), for a above 1; Gauss' quadrature of the
            part of [0, a] in which the integrand is not 0 elsewhere. All terms of the sum are positive.
    """
    first, second = broadcast_floats("owens_t", *reals("owens_t", h, a))
    wide = dtypes.accumulated(first.dtype)
    return _owens_t(first.astype(wide), second.astype(wide)).astype(first.dtype)


@custom_jvp
def _owens_t(h: Array, a: Array) -> Array:
    size, bound = fnp.abs(h), fnp.abs(a)
    above = bound > 1
    product = fnp.where(size == 0, 0, size * bound)
    steep = fnp.where(above, product, size)
    end = fnp.where(above, 1 / fnp.where(above, bound, 1), bound)
    half = fnp.minimum(end, _TAIL / fnp.where(steep > 0, steep, 1)) / 2
    half = fnp.where(steep > 0, half, end / 2)
    falling = fnp.minimum(steep, 1e10)
    total = fnp.zeros_like(half)
    for node, weight in _RULE:
        x = half * (1 + node)
        total = total + weight * fnp.exp(-fnp.square(falling * x) / 2) / (1 + x * x)
    value = total * half * fnp.exp(-fnp.square(falling) / 2) / (2 * math.pi)
    near, far = lax.ndtr(-size), lax.ndtr(-product)
    reflected = (near + far) / 2 - near * far - value
    found = fnp.where(a < 0, -1, 1) * fnp.where(above, reflected, value)
    return fnp.where(fnp.isnan(h) | fnp.isnan(a), fnp.nan, found).astype(value.dtype)


@_owens_t.defjvp
def _owens_t_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (h, a), (h_dot, a_dot) = primals, tangents
    # both derivatives are constant in h * a where it is far from 0: an infinite operand would make theirs nan
    product = fnp.where((h == 0) | (a == 0), 0, h * a)
    far = (fnp.abs(product) > 40) | fnp.isinf(a) | fnp.isinf(h)
    near_h, near_a = fnp.where(far, 0, h), fnp.where(far, 0, a)
    sign = fnp.where(far, lax.stop_gradient(fnp.sign(product)), lax.erf(near_h * near_a / math.sqrt(2)))
    along_h = -fnp.exp(-fnp.square(fnp.where(fnp.isinf(h), 40, h)) / 2) * sign / math.sqrt(8 * math.pi)
    squares = fnp.square(near_h) + fnp.square(near_h * near_a)
    along_a = fnp.where(far, 0, fnp.exp(-squares / 2) / (2 * math.pi * (1 + near_a * near_a)))
    return _owens_t(h, a), along_h * h_dot + along_a * a_dot
