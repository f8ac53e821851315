"""Special functions: of the gamma and beta family, Bessel's, Hurwitz's."""

from __future__ import annotations

from fxad.array import Array, ArrayLike, binder
from fxad.ir import Primitive
from fxad.lax.binary import _SCALARS, _scalar
from fxad.primitives.elementwise.gamma import IGAMMA, IGAMMA_GRAD_A, IGAMMAC, RANDOM_GAMMA_GRAD


def _binary(prim: Primitive, x: ArrayLike, y: ArrayLike) -> Array:
    scalar = type(x) in _SCALARS or type(y) in _SCALARS
    return _scalar(prim, x, y) if scalar else binder().bind(prim, (x, y))[0]


def igamma(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized lower incomplete gamma function: P(a, x), from 0 at x = 0 to 1."""
    return _binary(IGAMMA, a, x)


def igammac(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized upper incomplete gamma function: Q(a, x) = 1 - P(a, x), with all digits where it is small."""
    return _binary(IGAMMAC, a, x)


def igamma_grad_a(a: ArrayLike, x: ArrayLike) -> Array:
    """The derivative of igamma(a, x) in a."""
    return _binary(IGAMMA_GRAD_A, a, x)


def random_gamma_grad(a: ArrayLike, sample: ArrayLike) -> Array:
    """The derivative of a sample of the gamma distribution in its shape parameter a, its quantile kept."""
    return _binary(RANDOM_GAMMA_GRAD, a, sample)
