"""Bessel functions of the first kind, of all orders up to a given one."""

from __future__ import annotations

import math
from typing import Final

from fxad import dtypes, lax, numpy as fnp
from fxad.api.custom_function import custom_jvp
from fxad.errors import ParameterError
from fxad.operations.arguments import to_int
from fxad.scipy.arguments import broadcast_floats, reals
from fxad.tracing.array import Array, ArrayLike

_FAR: Final = 25.0  # from here on, Hankel's expansions of the orders 0 and 1 have all digits of float64
_TERMS: Final = 12
_MOST: Final = 4096


def bessel_jn(z: ArrayLike, *, v: int, n_iter: int = 50) -> Array:
    """Return the Bessel functions of the first kind J_0(z), J_1(z), ..., J_v(z), stacked along a new first axis.

    Where a function oscillates, the error is relative to its amplitude, so a value next to a zero has fewer digits.

    Type:   real numbers of any size; 0 <= v <= 4096. `n_iter` is the least order from which the recurrence begins:
            it begins high enough for all digits, so a greater number changes nothing.
    Raises: ParameterError for other orders.
    Source: Miller's backward recurrence as a continued fraction (DLMF 10.74(iv)) for |z| <= max(v, 25); elsewhere
            Hankel's expansions (DLMF 10.17) and the forward recurrence.
    """
    (a,) = broadcast_floats("bessel_jn", *reals("bessel_jn", z))
    order, start = to_int("bessel_jn", "v", v), to_int("bessel_jn", "n_iter", n_iter)
    if not 0 <= order <= _MOST:
        raise ParameterError(f"bessel_jn: v is {order}", remedy=f"give an order from 0 to {_MOST}")
    if not 0 <= start <= _MOST:
        raise ParameterError(f"bessel_jn: n_iter is {start}", remedy=f"give a number from 0 to {_MOST}")
    return _orders(a.astype(dtypes.accumulated(a.dtype)), order, start).astype(a.dtype)


def _orders(z: Array, order: int, start: int) -> Array:
    """Return J_0(z), ..., J_order(z)."""

    @custom_jvp
    def orders(z: Array) -> Array:
        top, size = max(order, int(_FAR)), fnp.abs(z)
        far = size > top
        values = fnp.where(
            far,
            _forward(fnp.where(far, size, 100), order),
            _backward(fnp.where(far, 0, size), order, max(start, top + 20 + int(12 * top ** (1 / 3)))),
        )
        odd = (fnp.arange(order + 1) % 2 == 1).reshape((order + 1,) + (1,) * z.ndim)
        return fnp.where(odd & (z < 0), -values, values).astype(z.dtype)

    @orders.defjvp
    def tangent(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
        (z,), (dot,) = primals, tangents
        values = _orders(z, order + 1, start)
        before = fnp.concatenate([-values[1:2], values[:-2]])  # J_-1 is -J_1
        return values[:-1], (before - values[1:]) / 2 * dot

    return orders(z)


def _backward(z: Array, order: int, start: int) -> Array:
    """Return the values for 0 <= z, where `start` is large beside z: J_start / J_(start - 1) is 0 to all digits.

    The ratios J_k / J_(k - 1) are a continued fraction, and 1 = J_0 + 2 (J_2 + J_4 + ...).
    """
    tiny = float(fnp.finfo(z.dtype).tiny)

    def step(carry: tuple[Array, Array], k: Array) -> tuple[tuple[Array, Array], Array]:
        ratio, total = carry  # the total of twice the further even orders, over J_k
        below = 2 * k - z * ratio
        ratio = z / fnp.where(below == 0, tiny, below)
        return (ratio, (2 * (fnp.remainder(k, 2) == 0) + total) * ratio), ratio

    zero = fnp.zeros_like(z)
    orders = fnp.arange(1, start + 1).astype(z.dtype)
    (_, total), ratios = lax.scan(step, (zero, zero), orders, reverse=True)
    first = 1 / (1 + total)
    return fnp.concatenate([first[None], first * fnp.cumprod(ratios[:order], axis=0)])


def _forward(z: Array, order: int) -> Array:
    """Return the values for z > max(order, 25), where the forward recurrence is stable."""
    infinite = z == math.inf
    z = fnp.where(infinite, 100, z)
    sine, cosine, scale = fnp.sin(z), fnp.cos(z), fnp.where(infinite, 0, fnp.sqrt(1 / (math.pi * z)))
    (p, q), (r, s) = _hankel(z, 0), _hankel(z, 1)
    first = scale * (p * (cosine + sine) - q * (sine - cosine))
    second = scale * (r * (sine - cosine) + s * (sine + cosine))

    def step(carry: tuple[Array, Array], k: Array) -> tuple[tuple[Array, Array], Array]:
        before, last = carry
        return (last, 2 * k / z * last - before), before

    orders = fnp.arange(1, order + 2).astype(z.dtype)
    return lax.scan(step, (first, second), orders)[1]


def _hankel(z: Array, order: int) -> tuple[Array, Array]:
    """Return the two series of Hankel's expansion."""
    coefficients = [1.0]
    for k in range(1, 2 * _TERMS):
        coefficients.append(coefficients[-1] * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k))
    inverse = 1 / z
    square = -inverse * inverse
    even, odd = fnp.zeros_like(z), fnp.zeros_like(z)
    for a, b in zip(coefficients[-2::-2], coefficients[-1::-2], strict=True):
        even, odd = even * square + a, odd * square + b
    return even, odd * inverse
