"""Logarithms of densities without cancellation: the terms of a sum of logarithms of gamma functions are as large as the
parameters, and their sum is not (Loader, Fast and Accurate Computation of Binomial Probabilities, 2000)."""

from __future__ import annotations

from fxad.operations import special
from fxad.tracing.array import Array, binder


def gamma_log_pdf(a: Array, x: Array) -> Array:
    """Return log of x^(a-1) exp(-x) / gamma(a)."""
    return binder().apply(special.gamma_log_pdf, (a, x), ())[0]


def beta_log_pdf(a: Array, b: Array, x: Array) -> Array:
    """Return log of x^(a-1) (1-x)^(b-1) / B(a, b)."""
    return binder().apply(special.beta_log_pdf, (a, b, x), ())[0]
