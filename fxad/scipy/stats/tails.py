"""Logarithms of the incomplete gamma and beta functions, far in a tail where these functions underflow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import fxad.numpy as fnp
from fxad import dtypes, lax
from fxad.scipy import special
from fxad.scipy.stats.densities import beta_log_pdf, gamma_log_pdf
from fxad.tracing.array import Array

# The fractions are used where a function is below this: there they have all digits after so many terms.
_SMALL: Final = 1e-25
_TERMS: Final = 32


def log_gammainc(a: Array, x: Array) -> Array:
    """Return log(gammainc(a, x)), also where gammainc is below the smallest float.

    Source: DLMF 8.9.1: P = pdf x / (a - a x / (a + 1 + x / (a + 2 - (a + 1) x / (a + 3 + ...)))).
    """
    dtype = x.dtype
    a, x = [v.astype(dtypes.accumulated(dtype)) for v in (a, x)]
    below = special.gammainc(a, x)
    small = (below < _SMALL) & (x > 0) & (x < a)
    a_in, x_in = fnp.where(small, a, 100.0), fnp.where(small, x, 1.0)

    def two_terms(k: Array, fraction: Array) -> Array:
        minus, plus = (a_in + k) * x_in, (k + 1) * x_in
        return -minus / (a_in + (2 * k + 1) + plus / (a_in + (2 * k + 2) + fraction))

    fraction = _from_the_last(two_terms, fnp.zeros_like(a_in))
    far = gamma_log_pdf(a_in, x_in) + fnp.log(x_in) - fnp.log(a_in + fraction)
    return fnp.where(small, far, _log_of_share(fnp.where(small, 1.0, below), special.gammaincc(a, x))).astype(dtype)


def log_gammaincc(a: Array, x: Array) -> Array:
    """Return log(gammaincc(a, x)), also where gammaincc is below the smallest float.

    Source: DLMF 8.9.2.
    """
    dtype = x.dtype
    a, x = [v.astype(dtypes.accumulated(dtype)) for v in (a, x)]
    above = special.gammaincc(a, x)
    small = (above < _SMALL) & (x > a) & (x < fnp.inf)
    a_in, x_in = fnp.where(small, a, 1.0), fnp.where(small, x, 100.0)

    def term(k: Array, fraction: Array) -> Array:
        return (k + 1) * (k + 1 - a_in) / (x_in + (2 * k + 3) - a_in - fraction)

    fraction = _from_the_last(term, fnp.zeros_like(a_in))
    far = gamma_log_pdf(a_in, x_in) + fnp.log(x_in) - fnp.log(x_in + 1 - a_in - fraction)
    return fnp.where(small, far, _log_of_share(fnp.where(small, 1.0, above), special.gammainc(a, x))).astype(dtype)


def log_betainc(a: Array, b: Array, x: Array) -> Array:
    """Return log(betainc(a, b, x)), also where betainc is below the smallest float.

    Source: DLMF 8.17.22.
    """
    dtype = x.dtype
    a, b, x = [v.astype(dtypes.accumulated(dtype)) for v in (a, b, x)]
    below = special.betainc(a, b, x)
    small = (below < _SMALL) & (x > 0) & (x < a / (a + b))
    a_in, b_in, x_in = [fnp.where(small, v, other) for v, other in ((a, 100.0), (b, 1.0), (x, 0.1))]

    def two_terms(m: Array, fraction: Array) -> Array:
        even = (m + 1) * (b_in - (m + 1)) * x_in / ((a_in + (2 * m + 1)) * (a_in + (2 * m + 2)))
        odd = -(a_in + m) * (a_in + b_in + m) * x_in / ((a_in + 2 * m) * (a_in + (2 * m + 1)))
        return 1 + odd / (1 + even / fraction)

    fraction = _from_the_last(two_terms, fnp.ones_like(a_in))
    far = beta_log_pdf(a_in, b_in, x_in) + fnp.log(x_in) + fnp.log1p(-x_in) - fnp.log(a_in * fraction)
    rest = special.betainc(b, a, 1 - x)
    return fnp.where(small, far, _log_of_share(fnp.where(small, 1.0, below), rest)).astype(dtype)


def _from_the_last(term: Callable[[Array, Array], Array], start: Array) -> Array:
    """Return a continued fraction, computed from its last term to its first: `term` takes the number of the term."""
    return lax.fori_loop(0, _TERMS, lambda i, fraction: term((_TERMS - 1 - i).astype(start.dtype), fraction), start)


def _log_of_share(part: Array, rest: Array) -> Array:
    """Return log(part), from 1 - part where that is small."""
    near_one = part > 0.75
    return fnp.where(near_one, fnp.log1p(-fnp.where(near_one, rest, 0.0)), fnp.log(fnp.where(near_one, 1.0, part)))
