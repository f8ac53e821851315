"""Special functions: of the gamma and beta family, Bessel's, Hurwitz's."""

from __future__ import annotations

from fxad.errors import ParameterError, ShapeError
from fxad.lax.binary import apply_binary, apply_broadcast
from fxad.operations import special
from fxad.operations.arguments import to_int
from fxad.primitives.elementwise.bessel import BESSEL_I0E, BESSEL_I1E, ZETA
from fxad.primitives.elementwise.beta import REGULARIZED_INCOMPLETE_BETA
from fxad.primitives.elementwise.gamma import IGAMMA, IGAMMA_GRAD_A, IGAMMAC, RANDOM_GAMMA_GRAD
from fxad.tracing.array import Array, ArrayLike, binder


def igamma(a: ArrayLike, x: ArrayLike) -> Array:
    """Return the regularized lower incomplete gamma function: P(a, x), from 0 at x = 0 to 1."""
    return apply_binary(IGAMMA, a, x)


def igammac(a: ArrayLike, x: ArrayLike) -> Array:
    """Return the regularized upper incomplete gamma function: Q(a, x) = 1 - P(a, x), with all digits where it is
    small."""
    return apply_binary(IGAMMAC, a, x)


def igamma_grad_a(a: ArrayLike, x: ArrayLike) -> Array:
    """Return the derivative of igamma(a, x) in a."""
    return apply_binary(IGAMMA_GRAD_A, a, x)


def random_gamma_grad(a: ArrayLike, sample: ArrayLike) -> Array:
    """Return the derivative of a sample of the gamma distribution in its shape parameter a, at a fixed quantile."""
    return apply_binary(RANDOM_GAMMA_GRAD, a, sample)


def bessel_i0e(x: ArrayLike) -> Array:
    """Return exp(-|x|) times the modified Bessel function of the first kind of order 0."""
    return binder().bind(BESSEL_I0E, (x,))[0]


def bessel_i1e(x: ArrayLike) -> Array:
    """Return exp(-|x|) times the modified Bessel function of the first kind of order 1."""
    return binder().bind(BESSEL_I1E, (x,))[0]


def zeta(x: ArrayLike, q: ArrayLike) -> Array:
    """Return Hurwitz's zeta function: the sum of (q + k)^-x over k = 0, 1, 2, ..."""
    return apply_binary(ZETA, x, q)


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Return the regularized incomplete beta function: from 0 at x = 0 to 1 at x = 1."""
    try:
        return binder().apply(special.same_types, (a, b, x), (REGULARIZED_INCOMPLETE_BETA,))[0]
    except ShapeError as e:
        return apply_broadcast(REGULARIZED_INCOMPLETE_BETA, (a, b, x), e)


regularized_incomplete_beta = betainc

# ------------------------------------------------- functions of others: integers become floats, operands are promoted


def betaln(a: ArrayLike, b: ArrayLike) -> Array:
    """Return log |B(a, b)|, of the beta function."""
    return binder().apply(special.betaln, (a, b), ())[0]


def multigammaln(a: ArrayLike, d: int) -> Array:
    """Return log of the multivariate gamma function of dimension d. Raises: ParameterError for d < 1."""
    d = to_int("multigammaln", "d", d)
    if d < 1:
        raise ParameterError(f"multigammaln: the dimension must be positive, got {d}")
    return binder().apply(special.multigammaln, (a,), (d,))[0]


def entr(x: ArrayLike) -> Array:
    """Return -x log x: 0 at 0, -inf below."""
    return binder().apply(special.entr, (x,), ())[0]


def xlogy(x: ArrayLike, y: ArrayLike) -> Array:
    """Return x log y, 0 where x is 0."""
    return binder().apply(special.xlogy, (x, y), ())[0]


def xlog1py(x: ArrayLike, y: ArrayLike) -> Array:
    """Return x log(1 + y), 0 where x is 0."""
    return binder().apply(special.xlog1py, (x, y), ())[0]


def logit(x: ArrayLike) -> Array:
    """Return log(x / (1 - x)), the inverse of expit."""
    return binder().apply(special.logit, (x,), ())[0]


def expit(x: ArrayLike) -> Array:
    """Return 1 / (1 + exp(-x))."""
    return binder().apply(special.expit, (x,), ())[0]


def ndtr(x: ArrayLike) -> Array:
    """Return the distribution function of the standard normal distribution."""
    return binder().apply(special.ndtr, (x,), ())[0]


def log_ndtr(x: ArrayLike) -> Array:
    """Return log of ndtr, also where ndtr is too small to be represented."""
    return binder().apply(special.log_ndtr, (x,), ())[0]


def ndtri(p: ArrayLike) -> Array:
    """Return the inverse of ndtr: -inf at 0, inf at 1, nan outside."""
    return binder().apply(special.ndtri, (p,), ())[0]


def i0(x: ArrayLike) -> Array:
    """Return the modified Bessel function of the first kind of order 0."""
    return binder().apply(special.i0, (x,), ())[0]


def i1(x: ArrayLike) -> Array:
    """Return the modified Bessel function of the first kind of order 1."""
    return binder().apply(special.i1, (x,), ())[0]
