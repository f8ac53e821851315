"""Probability distributions, as in `scipy.stats`: `norm.logpdf(x, loc, scale)`.

Each is a namespace of functions of arrays. Outside its support a density is 0 and its logarithm -inf.
"""

from __future__ import annotations

import math
from typing import Final

from fxad import lax
from fxad import numpy as fnp
from fxad.scipy import special
from fxad.scipy.arguments import floating
from fxad.tracing.array import Array, ArrayLike

_LOG_2PI: Final = math.log(2 * math.pi)


def _standard(name: str, x: ArrayLike, loc: ArrayLike, scale: ArrayLike) -> tuple[Array, Array]:
    """Return (x - loc) / scale and scale."""
    v, at, width = floating(name, x, loc, scale)
    return (v - at) / width, width


def _inside(logp: Array, inside: Array) -> Array:
    return fnp.where(inside, logp, -fnp.inf).astype(logp.dtype)


def _norm_logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the density of the normal distribution."""
    z, s = _standard("norm.logpdf", x, loc, scale)
    return -(z * z + _LOG_2PI) / 2 - fnp.log(s)


def _norm_pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The density of the normal distribution."""
    return fnp.exp(_norm_logpdf(x, loc, scale))


def _norm_cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The distribution function of the normal distribution."""
    return lax.ndtr(_standard("norm.cdf", x, loc, scale)[0])


def _norm_logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the distribution function of the normal distribution."""
    return lax.log_ndtr(_standard("norm.logcdf", x, loc, scale)[0])


def _norm_sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """1 - cdf(x), with all digits where it is small."""
    return lax.ndtr(-_standard("norm.sf", x, loc, scale)[0])


def _norm_logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of `sf`."""
    return lax.log_ndtr(-_standard("norm.logsf", x, loc, scale)[0])


def _norm_ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The quantile function of the normal distribution."""
    p, at, width = floating("norm.ppf", q, loc, scale)
    return lax.ndtri(p) * width + at


class norm:
    """The normal distribution."""

    logpdf = staticmethod(_norm_logpdf)
    pdf = staticmethod(_norm_pdf)
    cdf = staticmethod(_norm_cdf)
    logcdf = staticmethod(_norm_logcdf)
    sf = staticmethod(_norm_sf)
    logsf = staticmethod(_norm_logsf)
    ppf = staticmethod(_norm_ppf)


def _uniform_logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the density of the uniform distribution on [loc, loc + scale]."""
    z, s = _standard("uniform.logpdf", x, loc, scale)
    return _inside(-fnp.log(s), (z >= 0) & (z <= 1))


def _uniform_pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The density of the uniform distribution on [loc, loc + scale]."""
    return fnp.exp(_uniform_logpdf(x, loc, scale))


class uniform:
    """The uniform distribution on [loc, loc + scale]."""

    logpdf = staticmethod(_uniform_logpdf)
    pdf = staticmethod(_uniform_pdf)


def _expon_logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the density of the exponential distribution."""
    z, s = _standard("expon.logpdf", x, loc, scale)
    return _inside(-z - fnp.log(s), z >= 0)


def _expon_pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The density of the exponential distribution."""
    return fnp.exp(_expon_logpdf(x, loc, scale))


class expon:
    """The exponential distribution."""

    logpdf = staticmethod(_expon_logpdf)
    pdf = staticmethod(_expon_pdf)


def _laplace_logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the density of Laplace's distribution."""
    z, s = _standard("laplace.logpdf", x, loc, scale)
    return -abs(z) - fnp.log(2 * s)


def _laplace_pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The density of Laplace's distribution."""
    return fnp.exp(_laplace_logpdf(x, loc, scale))


class laplace:
    """Laplace's distribution."""

    logpdf = staticmethod(_laplace_logpdf)
    pdf = staticmethod(_laplace_pdf)


def _gamma_logpdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the density of the gamma distribution of shape a."""
    v, k, at, s = floating("gamma.logpdf", x, a, loc, scale)
    z = (v - at) / s
    return _inside(special.xlogy(k - 1, z) - z - lax.lgamma(k) - fnp.log(s), z >= 0)


def _gamma_pdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The density of the gamma distribution of shape a."""
    return fnp.exp(_gamma_logpdf(x, a, loc, scale))


def _gamma_cdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The distribution function of the gamma distribution of shape a."""
    v, k, at, s = floating("gamma.cdf", x, a, loc, scale)
    return lax.igamma(k, fnp.maximum((v - at) / s, 0))


class gamma:
    """The gamma distribution."""

    logpdf = staticmethod(_gamma_logpdf)
    pdf = staticmethod(_gamma_pdf)
    cdf = staticmethod(_gamma_cdf)


def _beta_logpdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the density of the beta distribution."""
    v, p, q, at, s = floating("beta.logpdf", x, a, b, loc, scale)
    z = (v - at) / s
    inside = (z >= 0) & (z <= 1)
    safe = fnp.where(inside, z, 0.5)
    logp = special.xlogy(p - 1, safe) + special.xlog1py(q - 1, -safe) - special.betaln(p, q) - fnp.log(s)
    return _inside(logp, inside)


def _beta_pdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The density of the beta distribution."""
    return fnp.exp(_beta_logpdf(x, a, b, loc, scale))


class beta:
    """The beta distribution."""

    logpdf = staticmethod(_beta_logpdf)
    pdf = staticmethod(_beta_pdf)


def _t_logpdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the density of Student's t distribution."""
    v, n, at, s = floating("t.logpdf", x, df, loc, scale)
    z = (v - at) / s
    half = (n + 1) / 2
    constant = lax.lgamma(half) - lax.lgamma(n / 2) - fnp.log(n * math.pi) / 2 - fnp.log(s)
    return constant - half * fnp.log1p(z * z / n)


def _t_pdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The density of Student's t distribution."""
    return fnp.exp(_t_logpdf(x, df, loc, scale))


class t:
    """Student's t distribution."""

    logpdf = staticmethod(_t_logpdf)
    pdf = staticmethod(_t_pdf)


def _poisson_logpmf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The logarithm of the probability of k in Poisson's distribution."""
    v, rate, at = floating("poisson.logpmf", k, mu, loc)
    n = v - at
    return _inside(special.xlogy(n, rate) - rate - lax.lgamma(fnp.maximum(n, 0) + 1), (n >= 0) & (n == fnp.floor(n)))


def _poisson_pmf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The probability of k in Poisson's distribution."""
    return fnp.exp(_poisson_logpmf(k, mu, loc))


class poisson:
    """Poisson's distribution."""

    logpmf = staticmethod(_poisson_logpmf)
    pmf = staticmethod(_poisson_pmf)


def _bernoulli_logpmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The logarithm of the probability of k, 0 or 1."""
    v, q, at = floating("bernoulli.logpmf", k, p, loc)
    n = v - at
    return _inside(special.xlogy(n, q) + special.xlog1py(1 - n, -q), (n == 0) | (n == 1))


def _bernoulli_pmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The probability of k, 0 or 1."""
    return fnp.exp(_bernoulli_logpmf(k, p, loc))


class bernoulli:
    """The distribution of a coin."""

    logpmf = staticmethod(_bernoulli_logpmf)
    pmf = staticmethod(_bernoulli_pmf)


def _mvn_logpdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike) -> Array:
    """The logarithm of the density of a normal vector, along the last axis."""
    v, at = floating("multivariate_normal.logpdf", x, mean)
    factor = fnp.linalg.cholesky(fnp.asarray(cov).astype(v.dtype))
    n = v.shape[-1]
    off = fnp.linalg.solve_triangular(fnp.broadcast_to(factor, (*v.shape[:-1], n, n)), (v - at)[..., None], lower=True)[
        ..., 0
    ]
    log_det = fnp.sum(fnp.log(fnp.diagonal(factor, axis1=-2, axis2=-1)), -1)
    return -(fnp.sum(off * off, -1) + n * _LOG_2PI) / 2 - log_det


def _mvn_pdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike) -> Array:
    """The density of a normal vector, along the last axis."""
    return fnp.exp(_mvn_logpdf(x, mean, cov))


class multivariate_normal:
    """The normal distribution of vectors."""

    logpdf = staticmethod(_mvn_logpdf)
    pdf = staticmethod(_mvn_pdf)


__all__ = [
    "bernoulli", "beta", "expon", "gamma", "laplace", "multivariate_normal", "norm", "poisson", "t", "uniform",
]  # fmt: skip
