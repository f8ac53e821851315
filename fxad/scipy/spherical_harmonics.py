"""Spherical harmonics, by recurrences of normalized Legendre functions."""

from __future__ import annotations

import math

import numpy as np

from fxad import dtypes, lax, numpy as fnp
from fxad.errors import DTypeError, ParameterError, TracerError
from fxad.operations.arguments import to_int
from fxad.scipy.arguments import broadcast_floats, reals
from fxad.tracing.array import Array, ArrayLike
from fxad.tracing.tracer import Tracer


def sph_harm_y(
    n: ArrayLike,
    m: ArrayLike,
    theta: ArrayLike,
    phi: ArrayLike,
    diff_n: int | None = None,
    n_max: int | None = None,
) -> Array:
    """Return the spherical harmonic of degree n and order m at the polar angle theta and the azimuth phi, with the
    phase (-1)^m of Condon and Shortley; 0 where |m| > n.

    Type:   integers n and m, real angles -> complex. `n_max` is the greatest degree; it must be given where n is
            traced. The result is nan for a degree above it.
    Raises: DTypeError for degrees or orders that are not integers; ParameterError for `diff_n`.
    Rule:   differentiable in the angles to any order.
    Source: DLMF 14.30.1, 14.10.3 and 14.7.15, for the normalized functions. sin(theta)^m must not underflow.
    """
    if diff_n is not None and to_int("sph_harm_y", "diff_n", diff_n) != 0:
        raise ParameterError(f"sph_harm_y: diff_n is {diff_n}", remedy="use grad or jvp for derivatives in the angles")
    degree, order = fnp.asarray(n), fnp.asarray(m)
    for name, value in (("n", degree), ("m", order)):
        if value.dtype not in dtypes.INTEGER:
            raise DTypeError(f"sph_harm_y: {name} must be integers, got {value.dtype}", remedy="convert them first")
    if n_max is not None:
        most = to_int("sph_harm_y", "n_max", n_max)
    elif isinstance(n, Tracer):
        raise TracerError("sph_harm_y: n is traced", remedy="give n_max=, the greatest degree")
    else:
        most = int(np.max(np.asarray(n), initial=0))
    if order.dtype.itemsize < 4:
        order = order.astype(dtypes.int32)  # int8 has no absolute value of -128
    polar, azimuth = broadcast_floats("sph_harm_y", *reals("sph_harm_y", theta, phi))
    wide = dtypes.accumulated(polar.dtype)
    degree, order, polar, azimuth = fnp.broadcast_arrays(degree, order, polar.astype(wide), azimuth.astype(wide))
    size = fnp.abs(order)
    legendre = _legendre(degree, size, polar, most)
    sign = fnp.where((order < 0) & (size % 2 == 1), -1, 1)
    turn = order.astype(wide) * azimuth
    value = fnp.where(degree > most, fnp.nan, sign * legendre)
    return lax.complex(value * fnp.cos(turn), value * fnp.sin(turn))


def _legendre(degree: Array, order: Array, theta: Array, most: int) -> Array:
    """Return the normalized Legendre functions of degrees up to `most`."""
    sine, cosine = fnp.sin(theta), fnp.cos(theta)
    sine = fnp.where(sine < 0, -sine, sine)  # at 0 it has the slope of the angles above
    m = order.astype(theta.dtype)

    def step(k: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        diagonal, before, last = carry  # of the orders up to m; the degrees k - 2 and k - 1 of the order m
        whole = k.astype(theta.dtype)
        diagonal = fnp.where(k <= order, diagonal * -fnp.sqrt((2 * whole + 1) / (2 * whole)) * sine, diagonal)
        squares = fnp.where(k > order, fnp.square(whole) - m * m, 1)
        above = fnp.square(whole - 1)
        scale = fnp.sqrt((4 * fnp.square(whole) - 1) / squares)
        less = fnp.sqrt(fnp.maximum(above - m * m, 0) / (4 * above - 1))
        further = scale * (cosine * last - fnp.where(k > order + 1, less, 0) * before)
        goes_on = (k > order) & (k <= degree)
        before = fnp.where(goes_on, last, before)
        last = fnp.where(goes_on, further, fnp.where(k <= order, diagonal, last))
        return diagonal, before, last

    start = fnp.full_like(theta, math.sqrt(0.25 / math.pi))
    (_, _, value) = lax.fori_loop(1, most + 1, step, (start, fnp.zeros_like(theta), start))
    return fnp.where(order > degree, 0, value)
