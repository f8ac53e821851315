"""Distributions of whole numbers.

Source: Johnson, Kemp, Kotz, Univariate Discrete Distributions (2005).
"""

from __future__ import annotations

import math
from typing import Final

import fxad.numpy as fnp
from fxad import lax
from fxad.scipy import special
from fxad.scipy.stats.distribution import Discrete
from fxad.tracing.array import Array


def _log_choose(n: Array, k: Array) -> Array:
    return -lax.betaln(n - k + 1, k + 1) - fnp.log(n + 1)


bernoulli: Final = Discrete(
    "bernoulli",
    ("p",),
    mass=lambda k, p: lax.xlogy(k, p) + lax.xlog1py(1 - k, -p),
    functions={
        "cdf": lambda k, p: fnp.where(k < 1, 1 - p, 1.0),
        "ppf": lambda q, p: fnp.where(q <= 0, -1.0, fnp.where(q <= 1 - p, 0.0, 1.0)),
    },
    support=(0.0, 1.0),
)

binom: Final = Discrete(
    "binom",
    ("n", "p"),
    mass=lambda k, n, p: _log_choose(n, k) + lax.xlogy(k, p) + lax.xlog1py(n - k, -p),
    functions={"cdf": lambda k, n, p: special.betainc(n - k, k + 1, 1 - p)},
    support=lambda n, *_: (0.0, n),
)

betabinom: Final = Discrete(
    "betabinom",
    ("n", "a", "b"),
    mass=lambda k, n, a, b: _log_choose(n, k) + lax.betaln(k + a, n - k + b) - lax.betaln(a, b),
    support=lambda n, *_: (0.0, n),
)

geom: Final = Discrete(
    "geom",
    ("p",),
    mass=lambda k, p: lax.xlog1py(k - 1, -p) + fnp.log(p),
    functions={
        "cdf": lambda k, p: -fnp.expm1(k * fnp.log1p(-p)),
        "ppf": lambda q, p: fnp.ceil(fnp.log1p(-q) / fnp.log1p(-p)),
    },
    support=(1.0, math.inf),
)

nbinom: Final = Discrete(
    "nbinom",
    ("n", "p"),
    mass=lambda k, n, p: lax.lgamma(k + n) - lax.lgamma(n) - lax.lgamma(k + 1) + lax.xlogy(n, p) + lax.xlog1py(k, -p),
    functions={"cdf": lambda k, n, p: special.betainc(n, k + 1, p)},
)

poisson: Final = Discrete(
    "poisson",
    ("mu",),
    mass=lambda k, mu: lax.xlogy(k, mu) - mu - lax.lgamma(k + 1),
    functions={"cdf": lambda k, mu: special.gammaincc(k + 1, mu)},
)
