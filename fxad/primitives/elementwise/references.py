"""Double-precision references of special functions that the standard library lacks.

scipy is imported when the interpreter first runs such a function: its import takes half as long as that of fxad.
"""

from __future__ import annotations

import importlib
import math
from functools import partial

import numpy as np
import numpy.typing as npt

from fxad.ir import NDArray

Doubles = npt.NDArray[np.float64]
Quadrature = tuple[Doubles, Doubles]  # nodes and weights


def scipy_special(name: str, *args: NDArray) -> NDArray:
    """Return a function of `scipy.special`, of operands in double precision."""
    function = getattr(importlib.import_module("scipy.special"), name)
    return np.asarray(function(*[a.astype(np.float64) for a in args]))


def log1p_complex(z: NDArray) -> NDArray:
    """Return log(1 + z), with the digits of a small z: NumPy adds 1 first."""
    a, b = np.real(z).astype(np.float64), np.imag(z).astype(np.float64)
    square_less_1 = a * (2 + a) + b * b  # |1 + z|^2 - 1
    near = (square_less_1 > -0.5) & (square_less_1 < 1)
    log_near = np.log1p(np.clip(square_less_1, -0.5, 1)) / 2
    out = np.empty(np.shape(z), np.complex128)
    out.real, out.imag = np.where(near, log_near, np.log(np.hypot(1 + a, b))), np.arctan2(b, 1 + a)
    return out


def divide(x: NDArray, y: NDArray) -> NDArray:
    """Return x / y. Complex numbers are divided as in annex G.5.1 of C99: by an infinity NumPy gives nan, and by a zero
    it loses its sign."""
    quotient = np.divide(x, y)
    if not np.iscomplexobj(quotient):
        return quotient
    a, b, c, d = np.real(x), np.imag(x), np.real(y), np.imag(y)
    infinite = (np.isinf(c) | np.isinf(d)) & np.isfinite(x)
    zero = (c == 0) & (d == 0) & ~(np.isnan(a) & np.isnan(b))
    # the direction of an infinity, and the infinity with the sign of a zero
    u, v, pole = np.copysign(np.isinf(c), c), np.copysign(np.isinf(d), d), np.copysign(np.inf, c)
    out = np.array(quotient)
    out.real = np.where(infinite, 0 * (a * u + b * v), np.where(zero, pole * a, np.real(out)))
    out.imag = np.where(infinite, 0 * (b * u - a * v), np.where(zero, pole * b, np.imag(out)))
    return out


def gamma_slopes(a: NDArray, x: NDArray) -> tuple[Doubles, Doubles]:
    """Return the derivative of igamma(a, x) in a, and that of a gamma sample x in its shape a."""
    quadrature = np.polynomial.legendre.leggauss(60)
    slopes = np.frompyfunc(partial(_gamma_slopes, quadrature), 2, 2)
    values = slopes(a.astype(np.float64), x.astype(np.float64))
    return np.asarray(values[0], np.float64), np.asarray(values[1], np.float64)


def _gamma_slopes(quadrature: Quadrature, a: float, x: float) -> tuple[float, float]:
    if not (a > 0 and x >= 0):
        return math.nan, math.nan
    if x == 0 or math.isinf(x) or math.isinf(a):
        return 0.0, 0.0 if x == 0 else math.nan
    # where x > a the power series loses digits; the integral of the upper function does not
    psi = float(scipy_special("digamma", np.asarray(a + 1)))  # digamma(a) is psi - 1 / a
    if a > 1e8 and abs(x - a) < 1e-3 * a:
        ratio = -_slope_of_large_sample(a, x)
    elif x > 1 and x > a:
        ratio = -_upper_slope(quadrature, a, x, psi - 1 / a)
    else:
        ratio = _lower_slope(a, x, psi)
    return ratio * math.exp(_log_gamma_pdf(a, x)), -ratio


def _log_gamma_pdf(a: float, x: float) -> float:
    """Return log d igamma / dx; for a large a by Stirling's formula, because the terms would cancel."""
    if a < 100:
        return (a - 1) * math.log(x) - x - math.lgamma(a)
    mu = (x - a) / a
    if abs(mu) < 1e-3:
        excess = mu * mu * (1 / 2 - mu * (1 / 3 - mu * (1 / 4 - mu * (1 / 5 - mu / 6))))
    else:
        excess = mu - (math.log1p(mu) if mu > -0.5 else math.log(x) - math.log(a))  # mu may round to -1
    correction = (1 / 12 - (1 / 360 - 1 / (1260 * a * a)) / (a * a)) / a
    return 0.5 * math.log(a / (2 * math.pi)) - math.log(x) - a * excess - correction


def _slope_of_large_sample(a: float, x: float) -> float:
    """Return the derivative in a of a gamma sample x near a large a, where the power series needs sqrt(a) terms.

    Source: the expansion of Cornish and Fisher, x = a + z sqrt(a) + (z^2 - 1)/3 + z^3/(36 sqrt(a)) - z^4/(270 a) + ...,
            differentiated at a fixed z; t = z / sqrt(a).
    """
    mu = (x - a + 1 / 3) / a
    t = mu - mu * mu / 3 + 7 / 36 * mu**3
    return 1 + t / 2 - t**3 / 72 + t**4 / 270


def _lower_slope(a: float, x: float, psi: float) -> float:
    """Return (d igamma / da) / (d igamma / dx) by the power series."""
    total, slope, term, dterm, n = 1.0, 0.0, 1.0, 0.0, 0
    while term > 1e-17 * total or abs(dterm) > 1e-17 * abs(slope):
        n += 1
        ratio = x / (a + n)
        dterm = dterm * ratio - term * ratio / (a + n)
        term *= ratio
        total += term
        slope += dterm
    return (slope + total * (math.log(x) - psi)) * x / a


def _upper_slope(quadrature: Quadrature, a: float, x: float, psi: float) -> float:
    """Return -(d igamma / da) / (d igamma / dx): the integral of exp(-s) (1 + s/x)^(a-1) (log(x + s) - psi) over s >
    0."""
    nodes, weights = quadrature
    # the integrand falls like exp(-s (1 - (a-1)/x)) at first and like exp(-s) at last
    width = 1 / max(1 - (a - 1) / x, 1 / math.sqrt(x)) if a > 1 else 1.0
    edges = np.concatenate([[0.0], np.geomspace(width / 8, 60 * width, 24)])
    middle, half = (edges[1:] + edges[:-1]) / 2, (edges[1:] - edges[:-1]) / 2
    s = middle[:, None] + half[:, None] * nodes
    f = np.exp((a - 1) * np.log1p(s / x) - s) * (np.log(x + s) - psi)
    return float(np.sum(half[:, None] * weights * f))
