"""Distributions of whole numbers.

Source: Johnson, Kemp, Kotz, Univariate Discrete Distributions (2005).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final

import fxad.numpy as fnp
from fxad import lax
from fxad.nn.activations import log1mexp
from fxad.numpy.composites import jit_composite
from fxad.scipy import special
from fxad.scipy.arguments import broadcast_floats
from fxad.scipy.stats.continuous import beta_logsf, beta_sf
from fxad.scipy.stats.densities import beta_log_pdf, gamma_log_pdf
from fxad.scipy.stats.distribution import Discrete
from fxad.scipy.stats.tails import log_betainc, log_gammainc, log_gammaincc
from fxad.tracing.array import Array, ArrayLike


def _with_value(formula: Array, exact: Array, holds: Array) -> Array:
    """Return `exact` where it holds, with the derivatives of a formula that rounds."""
    holds = holds & fnp.isfinite(exact) & fnp.isfinite(formula)
    slope = formula - lax.stop_gradient(formula)
    return fnp.where(holds, lax.stop_gradient(exact) + slope, formula)


def _binom_logpmf(k: Array, n: Array, p: Array) -> Array:
    formula = beta_log_pdf(k + 1, n - k + 1, p) - fnp.log(n + 1)
    ends = fnp.where(k == 0, lax.xlog1py(n, -p), lax.xlogy(n, p))
    return _with_value(formula, ends, (k == 0) | (k == n))


def _betabinom_logpmf(k: Array, n: Array, a: Array, b: Array) -> Array:
    # C(n, k) B(k + a, n - k + b) / B(a, b), each as a density at p: the result does not depend on p
    p = lax.stop_gradient((k + a) / (n + a + b))
    return _binom_logpmf(k, n, p) + beta_log_pdf(a, b, p) - beta_log_pdf(k + a, n - k + b, p)


def _nbinom_logpmf(k: Array, n: Array, p: Array) -> Array:
    formula = beta_log_pdf(n + 1, k + 1, p) + fnp.log(n / ((n + k) * (n + k + 1)))
    return _with_value(formula, lax.xlogy(n, p), k == 0)


def _is_probability(p: Array) -> Array:
    return (p >= 0) & (p <= 1)


def _is_count(n: Array) -> Array:
    return (n >= 0) & (n == fnp.floor(n))


bernoulli: Final = Discrete(
    "bernoulli",
    ("p",),
    log_mass=lambda k, p: lax.xlogy(k, p) + lax.xlog1py(1 - k, -p),
    functions={
        "cdf": lambda k, p: fnp.where(k < 1, 1 - p, 1.0),
        "sf": lambda k, p: fnp.where(k < 1, p, 0.0),
        "logcdf": lambda k, p: fnp.where(k < 1, fnp.log1p(-p), 0.0),
        "ppf": lambda q, p: fnp.where(q <= 0, -1.0, fnp.where(q <= 1 - p, 0.0, 1.0)),
    },
    support=(0.0, 1.0),
    possible=_is_probability,
)

binom: Final = Discrete(
    "binom",
    ("n", "p"),
    log_mass=_binom_logpmf,
    functions={
        "cdf": lambda k, n, p: beta_sf(p, k + 1, n - k),
        "sf": lambda k, n, p: special.betainc(k + 1, n - k, p),
        "logcdf": lambda k, n, p: beta_logsf(p, k + 1, n - k),
        "logsf": lambda k, n, p: log_betainc(k + 1, n - k, p),
    },
    support=lambda n, *_: (0.0, n),
    possible=lambda n, p: _is_count(n) & _is_probability(p),
)

betabinom: Final = Discrete(
    "betabinom",
    ("n", "a", "b"),
    log_mass=_betabinom_logpmf,
    support=lambda n, *_: (0.0, n),
    possible=lambda n, a, b: _is_count(n) & (a > 0) & (b > 0),
)


def _geom_cdf(k: Array, p: Array) -> Array:
    return -fnp.expm1(k * fnp.log1p(-p))


def _geom_ppf(q: Array, p: Array) -> Array:
    k = fnp.ceil(fnp.where(p == 1, 0, fnp.log1p(-q) / fnp.log1p(-p)))
    # the quotient is rounded, so the least k with cdf(k) >= q may be its neighbour
    k = fnp.where((k > 1) & (_geom_cdf(k - 1, p) >= q), k - 1, k)
    return fnp.where(fnp.where(k < 1, q > 0, _geom_cdf(k, p) < q), k + 1, k)


geom: Final = Discrete(
    "geom",
    ("p",),
    log_mass=lambda k, p: lax.xlog1py(k - 1, -p) + fnp.log(p),
    functions={
        "cdf": _geom_cdf,
        "sf": lambda k, p: fnp.exp(k * fnp.log1p(-p)),
        "logcdf": lambda k, p: log1mexp(-k * fnp.log1p(-p)),
        "logsf": lambda k, p: k * fnp.log1p(-p),
        "ppf": _geom_ppf,
    },
    support=(1.0, math.inf),
    possible=lambda p: (p > 0) & (p <= 1),
)

nbinom: Final = Discrete(
    "nbinom",
    ("n", "p"),
    log_mass=_nbinom_logpmf,
    functions={
        "cdf": lambda k, n, p: special.betainc(n, k + 1, p),
        "sf": lambda k, n, p: beta_sf(p, n, k + 1),
        "logcdf": lambda k, n, p: log_betainc(n, k + 1, p),
        "logsf": lambda k, n, p: beta_logsf(p, n, k + 1),
    },
    possible=lambda n, p: (n > 0) & (p > 0) & (p <= 1),
)


@final
@dataclass(frozen=True, eq=False)
class Poisson(Discrete):
    """The Poisson distribution: a distribution of whole numbers with an entropy."""

    def entropy(self, mu: ArrayLike, loc: ArrayLike = 0.0) -> Array:
        """Return the entropy -sum(p log p), in nats.

        Type:   floats or integers that broadcast -> floats; `loc` changes no value. nan for mu below 0.
        Rule:   differentiable with respect to mu > 0.
        Cost:   256 probabilities for each element.
        Source: the sum over k < 256 for mu < 100; above, the series of Evans and Boersma, The entropy of a Poisson
                distribution (SIAM Review 30, 1988), whose first term left out is below 1e-10.
        """
        mean, shift = broadcast_floats("poisson.entropy", mu, loc)
        return jit_composite(_poisson_entropy, mean, shift)


def _poisson_entropy(mu: Array, loc: Array) -> Array:
    by_sum = mu < _SUMMED
    small, large = fnp.where(by_sum & (mu >= 0), mu, 1)[..., None], fnp.where(by_sum, _SUMMED, mu)
    k = fnp.arange(_TERMS).astype(mu.dtype)
    # Loader's form rounds at the scale of 1, where the logarithm for k = 0 is -mu
    few = small < 1
    plain = special.xlogy(k, fnp.where(few, small, 1)) - small - fnp.where(k < 2, 0, special.gammaln(k + 1))
    log = fnp.where(few, plain, gamma_log_pdf(k + 1, fnp.where(few, 1, small)))
    probability = fnp.exp(log)
    total = fnp.sum(probability * fnp.where(probability > 0, -log, 0), -1)
    r = 1 / large
    series = 0.5 * fnp.log(2 * math.pi * math.e * large) - r * (1 / 12 + r * (1 / 24 + r * (19 / 360 + r * (9 / 80))))
    valid = (mu >= 0) & ~fnp.isnan(loc)
    return fnp.where(valid, fnp.where(by_sum, total, series), fnp.nan)


_SUMMED: Final = 100.0  # the probability of k >= _TERMS is below 1e-36 for this mean
_TERMS: Final = 256

poisson: Final = Poisson(
    "poisson",
    ("mu",),
    log_mass=lambda k, mu: gamma_log_pdf(k + 1, mu),
    functions={
        "cdf": lambda k, mu: special.gammaincc(k + 1, mu),
        "sf": lambda k, mu: special.gammainc(k + 1, mu),
        "logcdf": lambda k, mu: log_gammaincc(k + 1, mu),
        "logsf": lambda k, mu: log_gammainc(k + 1, mu),
    },
    possible=lambda mu: mu >= 0,
)
