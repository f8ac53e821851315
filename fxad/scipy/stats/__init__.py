"""`scipy.stats`: distributions as values, and statistics of samples.

>>> from fxad.scipy.stats import norm
>>> print(norm.logpdf(0.0))
-0.9189385
"""

from typing import TYPE_CHECKING, NoReturn

from fxad.scipy.stats.continuous import (
    beta,
    cauchy,
    chi2,
    expon,
    gamma,
    gennorm,
    gumbel_l,
    gumbel_r,
    laplace,
    logistic,
    norm,
    pareto,
    t,
    truncnorm,
    uniform,
    vonmises,
    wrapcauchy,
)
from fxad.scipy.stats.discrete import bernoulli, betabinom, binom, geom, nbinom, poisson
from fxad.scipy.stats.kernel_density import GaussianKde, gaussian_kde
from fxad.scipy.stats.multivariate import dirichlet, multinomial, multivariate_normal
from fxad.scipy.stats.samples import ModeResult, mode, rankdata, sem
from fxad.support.absent import absent

if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        raise AttributeError(absent(__name__, name), name=name)


__all__ = [
    "GaussianKde", "ModeResult", "bernoulli", "beta", "betabinom", "binom", "cauchy", "chi2", "dirichlet", "expon",
    "gamma", "gaussian_kde", "gennorm", "geom", "gumbel_l", "gumbel_r", "laplace", "logistic", "mode", "multinomial",
    "multivariate_normal", "nbinom", "norm", "pareto", "poisson", "rankdata", "sem", "t", "truncnorm", "uniform",
    "vonmises", "wrapcauchy",
]  # fmt: skip


def __dir__() -> list[str]:
    """Return the names of the module, without those that it imports."""
    return sorted(__all__)
